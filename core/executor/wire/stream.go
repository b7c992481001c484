package wire

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// streamFrom is the size from which a workspace is worth a socket of its own; so is one of unknown size.
	streamFrom = 1 << 20
	// pourBytes is how much of a source is read and written at once on a stream. More costs memory and gains nothing.
	pourBytes = 256 << 10
	// streamPatience bounds the wait for a connection that the other side says it has made.
	streamPatience = 5 * time.Second
)

// stream is a socket on which a peer that shares our files can have the bytes of a workspace without messages around
// them. The socket's own buffer is the back-pressure. What the bytes mean stays with the messages: an opening begins and
// ends with those, and its error is in them (docs/decisions/0003).
type stream struct {
	listener *net.UnixListener
	path     string
	once     sync.Once
}

// isBulky reports whether a stream for s is worth its making. A file needs none.
func isBulky(s *executor.Source) bool {
	return s != nil && s.Path == "" && s.Open != nil && (s.SizeBytes < 0 || s.SizeBytes >= streamFrom)
}

// offer makes a stream in dir; nil where there can be none. Who can connect is a matter of dir's mode.
func offer(dir string) *stream {
	path := filepath.Join(dir, "s"+rand.Text()[:16])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil // the name is too long, for example: messages do as well
	}
	return &stream{listener: listener, path: path}
}

// accept takes the one connection. The name is gone then.
func (s *stream) accept() (*net.UnixConn, error) {
	if s == nil {
		return nil, executor.Errorf(executor.Invalid, "a stream that was not offered")
	}
	defer s.close()
	err := s.listener.SetDeadline(time.Now().Add(streamPatience))
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "stream: %w", err)
	}
	conn, err := s.listener.AcceptUnix()
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "stream: %w", err)
	}
	_ = conn.SetWriteBuffer(4 * pourBytes) // what the kernel does not give costs only speed
	return conn, nil
}

// close removes the name; accept returns. s may be nil.
func (s *stream) close() {
	if s != nil {
		s.once.Do(func() { _ = s.listener.Close() })
	}
}

// pour writes src to the stream. A reader that is gone wants no more, which is no error.
func (o *opening) pour(s *stream, src *executor.Source) error {
	conn, err := s.accept()
	if err != nil {
		return err
	}
	if !o.opened(conn) {
		return nil
	}
	rc, err := src.Open()
	if err != nil {
		return err
	}
	if !o.opened(rc) {
		return nil
	}
	buf := make([]byte, pourBytes)
	for {
		n, err := rc.Read(buf)
		if n > 0 {
			if _, err := conn.Write(buf[:n]); err != nil {
				return nil //nolint:nilerr // see above
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dial connects to a stream; nil where that cannot be done, which messages make up for.
func dial(path string) *net.UnixConn {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil
	}
	return conn
}

// localFile is a source that lies in a file.
type localFile struct {
	mu sync.Mutex
	f  *os.File // nil: taken
}

var _ executor.FileStream = (*localFile)(nil)

// Read implements io.Reader.
func (l *localFile) Read(b []byte) (int, error) {
	l.mu.Lock()
	f := l.f
	l.mu.Unlock()
	if f == nil {
		return 0, io.EOF
	}
	return f.Read(b)
}

// TakeFile implements executor.FileStream.
func (l *localFile) TakeFile() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.f
	l.f = nil
	return f
}

// Close implements io.Closer.
func (l *localFile) Close() error {
	if f := l.TakeFile(); f != nil {
		return f.Close()
	}
	return nil
}
