package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// carriesFiles reports whether descriptors can be sent.
func (f *frameWriter) carriesFiles() bool {
	_, ok := f.w.(*net.UnixConn)
	return ok
}

// sendFile sends a frame without payload, and file with it. An error is the connection's.
func (f *frameWriter) sendFile(t frameType, file *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	conn, ok := f.w.(*net.UnixConn)
	if !ok || f.err != nil {
		return
	}
	raw, err := file.SyscallConn() // Fd would make it blocking
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			frame := [frameHeader]byte{frameHeader - 1: byte(t)}
			_, _, f.err = conn.WriteMsgUnix(frame[:], unix.UnixRights(int(fd)), nil) //nolint:gosec // a descriptor
		})
	}
	f.err = errors.Join(f.err, err)
}

// rightsReader reads a socket and keeps the descriptors that come with the bytes. Only one goroutine uses it.
type rightsReader struct {
	conn  *net.UnixConn
	files []*os.File
	oob   [64]byte
}

// maxFiles bounds the descriptors that came and were not taken yet.
const maxFiles = 4

// Read implements io.Reader.
func (r *rightsReader) Read(p []byte) (int, error) {
	n, oob, _, _, err := r.conn.ReadMsgUnix(p, r.oob[:]) // closed at exec
	if oob > 0 {
		if keepErr := r.keep(r.oob[:oob]); keepErr != nil {
			return 0, keepErr
		}
	}
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF // ReadMsgUnix leaves that to its caller
	}
	return n, err
}

func (r *rightsReader) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // something else than descriptors
		}
		for _, fd := range fds {
			err = errors.Join(err, unix.SetNonblock(fd, true))              // so that Close ends a Read
			r.files = append(r.files, os.NewFile(uintptr(fd), "workspace")) //nolint:gosec // a descriptor
		}
		if err != nil || len(r.files) > maxFiles {
			return fmt.Errorf("%w: %d descriptors, %w", errFrame, len(r.files), err)
		}
	}
	return nil
}

// take returns the descriptor that came first; nil without one.
func (r *rightsReader) take() *os.File {
	if r == nil || len(r.files) == 0 {
		return nil
	}
	f := r.files[0]
	r.files = r.files[1:]
	return f
}
