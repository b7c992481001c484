package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
)

// DoorOpener is what the connection of a NewConn may be besides: a host that sees the runner's process, and may look into it,
// opens a descriptor of its for writing (/proc/PID/fd/FD). A Workspace then goes through a pipe of the runner's own, and
// neither its bytes nor credit for them take the way of the frames: behind a container's daemon a credit takes so long that
// a Workspace would wait for it most of the time.
type DoorOpener interface {
	// OpenDoor opens the pipe that is the runner's descriptor fd, for writes that do not block a thread. It is called at
	// most once. An error means that the Workspace takes the way of the frames.
	OpenDoor(fd int) (*os.File, error)
}

// pourBytes is how much is read at once where the kernel cannot pass it on by itself.
const pourBytes = 256 << 10

// openDoor opens the runner's door; nil: there is none, or it was used.
func (c *Conn) openDoor() *os.File {
	opener, ok := c.rw.(DoorOpener)
	fd := c.door.Swap(0)
	if !ok || fd == 0 {
		return nil
	}
	door, err := opener.OpenDoor(int(fd))
	if err != nil {
		return nil
	}
	return door
}

// pour sends r through door; false: the Execution ended, or refused it, before r did. What is left of r is its end.
func (f *follower) pour(door *os.File, r io.Reader) (bool, error) {
	from, closeFrom := r, func() {}
	if s, ok := r.(executor.FileStream); ok {
		if file := s.TakeFile(); file != nil {
			from, closeFrom = descriptorReader(file)
		}
	}
	// Either end may keep the other waiting when the Execution has ended.
	release := func() { _ = door.Close(); closeFrom() }
	defer release()
	if !f.opens(release) {
		return false, nil
	}
	out := &doorWriter{File: door}
	var err error
	if _, socket := from.(syscall.Conn); socket {
		_, err = out.ReadFrom(from) // moved by the kernel
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{from}, make([]byte, pourBytes))
	}
	if f.isStopped() || errors.Is(err, syscall.EPIPE) || out.failed != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, nil
}

// doorWriter tells errors of its own from those of what is copied.
type doorWriter struct {
	*os.File
	failed error
}

// Write implements io.Writer.
func (w *doorWriter) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		w.failed = fmt.Errorf("the runner's door: %w", err)
	}
	return n, err
}

// descriptorReader reads a file, or a socket in a way that lets the kernel move what comes out of it.
func descriptorReader(file *os.File) (io.Reader, func()) {
	if conn, err := net.FileConn(file); err == nil { // a duplicate
		_ = file.Close()
		return conn, func() { _ = conn.Close() }
	}
	return struct{ io.Reader }{file}, func() { _ = file.Close() }
}

// opens announces what comes through the door, and has release called when nobody wants it any more; false: nobody does.
func (f *follower) opens(release func()) bool {
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	if f.stopped || f.conn.out.frame(frameFile) != nil {
		return false
	}
	f.release = release
	return true
}
