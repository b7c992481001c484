package protocol

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// CarriesFiles reports whether f can send descriptors.
func (f *Writer) CarriesFiles() bool {
	_, ok := f.w.(*net.UnixConn)
	return ok
}

// SendFile sends a frame without payload, and file with it. The kernel may refuse to pass a descriptor and take everything else: it
// counts the descriptors that a user has in flight (ETOOMANYREFS), and needs memory for them. An error that is ErrNotPassed means that
// nothing was sent and that f works on. Any other error is that of f.
func (f *Writer) SendFile(t FrameType, file *os.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	conn, ok := f.w.(*net.UnixConn)
	if !ok {
		return ErrNotPassed
	}
	if f.err != nil {
		return f.err
	}
	frame, sent, sendErr := [HeaderBytes]byte{HeaderBytes - 1: byte(t)}, 0, error(nil)
	raw, err := file.SyscallConn() // Fd would make it blocking
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			sent, _, sendErr = conn.WriteMsgUnix(frame[:], unix.UnixRights(int(fd)), nil) //nolint:gosec // a descriptor
		})
	}
	switch err = errors.Join(err, sendErr); {
	case err == nil:
		return nil
	case sent <= 0: // a broken connection shows in the next frame
		return fmt.Errorf("%w: %w", ErrNotPassed, err)
	default:
		return f.broke(err)
	}
}

// DescriptorReader reads a socket and keeps the descriptors that come with the bytes. It is not safe for concurrent use.
type DescriptorReader struct {
	Conn  *net.UnixConn
	files []*os.File
	oob   [64]byte
}

// maxFiles bounds the descriptors that have come and were not taken.
const maxFiles = 4

// Read implements io.Reader.
func (r *DescriptorReader) Read(p []byte) (int, error) {
	n, oob, flags, _, err := r.Conn.ReadMsgUnix(p, r.oob[:]) // closed at exec
	if oob > 0 {
		if keepErr := r.keep(r.oob[:oob]); keepErr != nil {
			return 0, keepErr
		}
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		return 0, errors.New("the kernel has dropped a descriptor: this process has too many open, or too many came at once")
	}
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF // ReadMsgUnix leaves that to its caller
	}
	return max(n, 0), err // n is -1 after some errors
}

func (r *DescriptorReader) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
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
			return fmt.Errorf("%w: %d descriptors, %w", ErrFrame, len(r.files), err)
		}
	}
	return nil
}

// Take returns the descriptor that came first, or nil if there is none.
func (r *DescriptorReader) Take() *os.File {
	if r == nil || len(r.files) == 0 {
		return nil
	}
	f := r.files[0]
	r.files = r.files[1:]
	return f
}
