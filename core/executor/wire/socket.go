package wire

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// socketFrom is the size from which a workspace is worth a socket. A workspace of unknown size is worth one, too.
	socketFrom = 1 << 20
	// pourBytes is how much of a source is read and written at once on a socket. More costs memory and gains nothing.
	pourBytes = 256 << 10
	// acceptPatience bounds the wait for the connection that the other side says it has made.
	acceptPatience = 5 * time.Second
)

// socket is where a peer that shares our files gets the bytes of a workspace without messages around them. The kernel's
// buffer is the back-pressure. The opening still begins and ends with messages, which also carry its error
// (docs/decisions/0003).
type socket struct {
	listener *net.UnixListener
	path     string
	once     sync.Once
}

// isBulky reports whether s is worth a socket.
func isBulky(s *executor.Source) bool { return s.SizeBytes < 0 || s.SizeBytes >= socketFrom }

// offer makes a socket in dir; nil where it cannot be made. The mode of dir says who can connect.
func offer(dir string) *socket {
	path := filepath.Join(dir, "s"+rand.Text()[:16])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil // the name is too long, for example: messages do as well
	}
	return &socket{listener: listener, path: path}
}

// accept takes the one connection and removes the name.
func (s *socket) accept() (*net.UnixConn, error) {
	if s == nil {
		return nil, executor.Errorf(executor.Invalid, "a socket that was not offered")
	}
	defer s.close()
	err := s.listener.SetDeadline(time.Now().Add(acceptPatience))
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "socket: %w", err)
	}
	conn, err := s.listener.AcceptUnix()
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "socket: %w", err)
	}
	_ = conn.SetWriteBuffer(4 * pourBytes) // a smaller buffer costs only speed
	return conn, nil
}

// close removes the name and ends accept. s may be nil.
func (s *socket) close() {
	if s != nil {
		s.once.Do(func() { _ = s.listener.Close() })
	}
}

// pour writes src to the connection of s. A reader that has gone away is no error.
func (o *opening) pour(s *socket, src *executor.Source) error {
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
	return pourInto(conn, rc)
}

// pourInto copies r to w. A reader of w that has gone away is no error. Any other error of a write is: the reader would take what it has got for
// the whole.
func pourInto(w io.Writer, r io.Reader) error {
	buf := make([]byte, pourBytes)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			_, err := w.Write(buf[:n])
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return executor.Errorf(executor.Unavailable, "socket: %w", err)
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

// dial connects to the socket at path; nil for an empty path or where it cannot connect, which messages make up for.
func dial(path string) *net.UnixConn {
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil
	}
	return conn
}

// openFile opens a source that is a local file.
func openFile(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "open a source: %w", err)
	}
	return &localFile{f: f}, nil
}

// localFile is an opened source that is a local file.
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
