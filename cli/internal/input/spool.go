package input

import (
	"errors"
	"io"
	"os"
	"runtime"
)

// defaultSpill is the size above which a tar moves from memory to a file (PRD §5: "spills to disk only > 500 MB").
const defaultSpill = 500 << 20

// spool is a byte store that is written once and can then be read at any offset. Its memory is in pieces, so that growing it
// copies nothing.
type spool struct {
	spill  int64
	pieces [][]byte
	size   int64
	file   *os.File
	dir    string
}

const piece = 1 << 20

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.size+int64(len(p)) > s.spill {
		if err := s.toFile(); err != nil {
			return 0, err
		}
	}
	if s.file != nil {
		n, err := s.file.Write(p)
		s.size += int64(n)
		return n, err
	}
	written := len(p)
	for len(p) > 0 {
		last := len(s.pieces) - 1
		if last < 0 || len(s.pieces[last]) == piece {
			s.pieces = append(s.pieces, nil) // grows by append: most tars are small
			last++
		}
		room := piece - len(s.pieces[last])
		n := min(room, len(p))
		s.pieces[last] = append(s.pieces[last], p[:n]...)
		p = p[n:]
	}
	s.size += int64(written)
	return written, nil
}

// toFile moves the bytes to a temporary file. The file's name is removed at once, so that a kill leaves no file. Windows cannot
// remove the name of an open file; there Close removes it.
func (s *spool) toFile() error {
	f, err := os.CreateTemp(s.dir, "python-executor-*.tar")
	if err != nil {
		return err
	}
	s.file = f
	if runtime.GOOS != "windows" {
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	for _, p := range s.pieces {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	s.pieces = nil
	return nil
}

// reader returns a new reader of all bytes; readers are independent of each other.
func (s *spool) reader() *io.SectionReader { return io.NewSectionReader(s, 0, s.size) }

// ReadAt implements io.ReaderAt.
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, off)
	}
	n := 0
	for n < len(p) && off < s.size {
		from := s.pieces[off/piece]
		c := copy(p[n:], from[off%piece:])
		n += c
		off += int64(c)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close releases the memory and the file. Idempotent.
func (s *spool) Close() error {
	s.pieces = nil
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file, s.size = nil, 0
	err := f.Close()
	if runtime.GOOS == "windows" {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// seekable has Seek, so that a tar.Reader can skip bytes.
type seekable struct{ *io.SectionReader }

// Close implements io.Closer.
func (seekable) Close() error { return nil }
