package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// intake makes the Sources of a call on the side that reads them.
type intake struct {
	send func(*pb.SourceRequest) error

	mu      sync.Mutex
	err     error
	last    uint64
	readers map[uint64]*sourceReader
}

func newIntake(send func(*pb.SourceRequest) error) *intake {
	return &intake{send: send, readers: map[uint64]*sourceReader{}}
}

// source is the Source that the other side announced; nil for nil.
func (in *intake) source(s *pb.Source, name string) *executor.Source {
	if s == nil {
		return nil
	}
	out := &executor.Source{Digest: s.Digest, SizeBytes: s.SizeBytes, Replayable: s.Replayable, Path: s.Path}
	if s.Path != "" {
		out.Open = func() (io.ReadCloser, error) {
			f, err := os.Open(s.Path)
			if err != nil {
				return nil, executor.Errorf(executor.Internal, "open %s: %w", name, err)
			}
			return &localFile{f: f}, nil
		}
		return out
	}
	var streamed atomic.Bool // by the first opening
	out.Open = func() (io.ReadCloser, error) {
		if s.Stream == "" || streamed.Swap(true) {
			return in.open(name, nil)
		}
		return in.open(name, dial(s.Stream))
	}
	return out
}

// open opens a source. With conn its bytes come there, else in messages.
func (in *intake) open(name string, conn *net.UnixConn) (io.ReadCloser, error) {
	credit := int64(windowBytes)
	if conn != nil {
		credit = 0
	}
	in.mu.Lock()
	if in.err != nil {
		defer in.mu.Unlock()
		closeConn(conn)
		return nil, in.err
	}
	in.last++
	r := &sourceReader{in: in, id: in.last, conn: conn, allowed: credit}
	r.more.L = &r.mu
	in.readers[r.id] = r
	in.mu.Unlock()
	if err := in.request(&pb.SourceRequest{Id: r.id, Action: &pb.SourceRequest_Open{
		Open: &pb.SourceOpen{Name: name, Credit: credit, Stream: conn != nil},
	}}); err != nil {
		in.forget(r.id)
		closeConn(conn)
		return nil, err
	}
	return r, nil
}

func (in *intake) request(r *pb.SourceRequest) error {
	if err := in.send(r); err != nil {
		return executor.Errorf(executor.Unavailable, "ask for input: %w", err)
	}
	return nil
}

func (in *intake) forget(id uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.readers, id)
}

// deliver takes a reply. It does not block: it runs on the goroutine that receives. An error means that the other side
// does not keep to the protocol.
func (in *intake) deliver(reply *pb.SourceReply) error {
	in.mu.Lock()
	r := in.readers[reply.GetId()]
	last := in.last
	in.mu.Unlock()
	if r == nil {
		if reply.GetId() == 0 || reply.GetId() > last {
			return executor.Errorf(executor.Invalid, "data for source %d, which nobody opened", reply.GetId())
		}
		return nil // closed here while it was under way
	}
	switch part := reply.GetPart().(type) {
	case *pb.SourceReply_Data:
		return r.deliver(part.Data)
	case *pb.SourceReply_End:
		err := fromError(part.End.GetError())
		if err == nil {
			err = io.EOF
		}
		r.end(err)
	}
	return nil
}

// fail ends every opening, and those to come, with err.
func (in *intake) fail(err error) {
	in.mu.Lock()
	if in.err == nil {
		in.err = err
	}
	readers := in.readers
	in.readers = map[uint64]*sourceReader{}
	in.mu.Unlock()
	for _, r := range readers {
		r.end(err)
		r.mu.Lock()
		r.dropConn()
		r.mu.Unlock()
	}
}

var errSourceClosed = errors.New("read of a closed source")

var _ executor.FileStream = (*sourceReader)(nil)

// sourceReader is one opening. It holds at most windowBytes.
type sourceReader struct {
	in *intake
	id uint64

	mu   sync.Mutex
	more sync.Cond
	// conn has the bytes of an opening that is streamed, until its end.
	conn   *net.UnixConn
	chunks [][]byte
	// allowed is the credit that the other side has left; used is what was read and not yet given back as credit.
	allowed int64
	used    int64
	err     error
}

func (r *sourceReader) deliver(data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allowed -= int64(len(data))
	if r.allowed < 0 {
		return executor.Errorf(executor.Invalid, "more data of source %d than credit", r.id)
	}
	if len(data) > 0 && r.err == nil {
		r.chunks = append(r.chunks, data)
		r.more.Broadcast()
	}
	return nil
}

func (r *sourceReader) end(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.more.Broadcast()
}

// Read implements io.Reader.
func (r *sourceReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	if conn := r.conn; conn != nil {
		r.mu.Unlock()
		if n, err := conn.Read(b); n > 0 || err == nil {
			return n, nil
		}
		// Whether that was the source's end, its failure or our own Close is said elsewhere.
		r.mu.Lock()
		r.dropConn()
	}
	for len(r.chunks) == 0 && r.err == nil {
		r.more.Wait()
	}
	if len(r.chunks) == 0 || errors.Is(r.err, errSourceClosed) {
		defer r.mu.Unlock()
		return 0, r.err
	}
	n := copy(b, r.chunks[0])
	if n == len(r.chunks[0]) {
		r.chunks[0] = nil
		r.chunks = r.chunks[1:]
	} else {
		r.chunks[0] = r.chunks[0][n:]
	}
	r.used += int64(n)
	var back int64
	if r.err == nil && r.used >= chunkBytes {
		back, r.used = r.used, 0
		r.allowed += back
	}
	r.mu.Unlock()
	if back > 0 {
		if err := r.in.request(&pb.SourceRequest{Id: r.id, Action: &pb.SourceRequest_Credit{Credit: back}}); err != nil {
			r.end(err)
		}
	}
	return n, nil
}

// TakeFile implements executor.FileStream.
func (r *sourceReader) TakeFile() *os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	f, err := r.conn.File() // a duplicate
	if err != nil {
		return nil
	}
	r.dropConn()
	return f
}

// dropConn closes the stream, if there is one. The caller holds the lock.
func (r *sourceReader) dropConn() {
	closeConn(r.conn)
	r.conn = nil
}

func closeConn(conn *net.UnixConn) {
	if conn != nil {
		_ = conn.Close() // it was read
	}
}

// Close implements io.Closer: the other side stops sending.
func (r *sourceReader) Close() error {
	r.mu.Lock()
	ended := r.err != nil
	r.err = errSourceClosed
	r.chunks = nil
	r.dropConn()
	r.mu.Unlock()
	r.more.Broadcast()
	r.in.forget(r.id)
	if !ended {
		// If this cannot be sent, the stream is at its end, and so is the source.
		_ = r.in.request(&pb.SourceRequest{Id: r.id, Action: &pb.SourceRequest_Close{Close: &pb.SourceClose{}}})
	}
	return nil
}
