package job

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Reader reads the records of a file that may grow. It is not safe for concurrent use.
type Reader struct {
	src   *bufio.Reader
	line  []byte // what has come of the next record
	at    int64  // where the next record begins
	have  [2]int64
	ended bool
	err   error // of code internal; every Next fails with it
}

// NewReader returns a Reader of r, which begins at the beginning of the file. It leaves out the output that have says is in the log.
func NewReader(r io.Reader, have executor.Resume) *Reader { return newReader(r, have, 64<<10) }

// newReader is NewReader with a buffer of size bytes.
func newReader(r io.Reader, have executor.Resume, size int) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, size), have: [2]int64{have.Stdout, have.Stderr}}
}

// Next returns the next record. Of output it returns only what is not in the log yet.
//
// It returns io.EOF after the last record, and when the stream has no whole record more. In the second case the stream may have
// more later, and Next can be called again. It returns errors of the stream as they are. A record that cannot be is an error of
// code internal, and so is a gap in the output; nothing can be read after either.
func (r *Reader) Next() (Record, error) {
	for {
		switch {
		case r.err != nil:
			return Record{}, r.err
		case r.ended:
			return Record{}, io.EOF
		}
		line, err := r.read()
		if err != nil {
			return Record{}, err
		}
		rec, err := decode(line)
		if err != nil {
			return Record{}, r.broken("%w", err)
		}
		fresh, err := r.cut(&rec)
		if err != nil {
			return Record{}, err
		}
		r.at += int64(len(line)) + 1
		r.line = r.line[:0]
		r.ended = rec.Last()
		if fresh {
			return rec, nil
		}
	}
}

// read returns a whole line without its end. The slice is valid until r.line is used again.
func (r *Reader) read() ([]byte, error) {
	for {
		part, err := r.src.ReadSlice('\n')
		if len(r.line)+len(part) > MaxRecord+1 {
			return nil, r.broken("must be at most %d bytes", MaxRecord)
		}
		r.line = append(r.line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(r.line, []byte{'\n'}), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// cut removes from an Output what is in the log already. It reports whether anything is left.
func (r *Reader) cut(rec *Record) (bool, error) {
	if rec.Event == nil {
		return true, nil
	}
	o, ok := rec.Event.Body.(executor.Output)
	if !ok {
		return true, nil
	}
	have := &r.have[protocol.StreamIndex(o.Stream)]
	end := o.Offset + int64(len(o.Data))
	switch {
	case o.Offset > *have:
		return false, r.broken("output: %s has a gap between %d and %d", o.Stream, *have, o.Offset)
	case end <= *have:
		return false, nil
	}
	o.Data = o.Data[*have-o.Offset:]
	o.Offset = *have
	*have = end
	rec.Event.Body = o
	return true, nil
}

// broken ends r with an error of code internal.
func (r *Reader) broken(format string, args ...any) error {
	err := executor.Errorf(executor.Internal, format, args...)
	r.err = executor.Errorf(executor.Internal, "record at byte %d: %w", r.at, err)
	r.line = nil
	return r.err
}
