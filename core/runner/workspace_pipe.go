package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// DescriptorOpener is what the connection of a NewConn may implement besides, if the host may look into the runner's process:
// it opens one of the runner's descriptors for writing (/proc/PID/fd/FD). A Workspace then goes through a pipe of the runner's
// own instead of frames. Behind a container's daemon a Credit takes so long that a Workspace in frames waits for it most of
// the time.
type DescriptorOpener interface {
	// OpenDescriptor opens the pipe that is the runner's descriptor fd, for writes that do not block a thread. It is called at
	// most once. After an error the Workspace is sent in frames.
	OpenDescriptor(fd int) (*os.File, error)
}

// pourBytes is the size of the buffer where the kernel cannot move the bytes itself.
const pourBytes = 256 << 10

// openWorkspacePipe opens the runner's workspace pipe. It returns nil if there is none, or if it was used.
func (c *Conn) openWorkspacePipe() *os.File {
	opener, ok := c.rw.(DescriptorOpener)
	fd := c.pipe.Swap(0)
	if !ok || fd == 0 {
		return nil
	}
	pipe, err := opener.OpenDescriptor(int(fd))
	if err != nil {
		return nil
	}
	return pipe
}

// pour sends r through pipe. It reports false if the Execution ended, or refused the Workspace, before r ended. Otherwise only
// the end of r is left to read.
func (f *follower) pour(pipe *os.File, r io.Reader) (bool, error) {
	from, closeFrom := r, func() {}
	if s, ok := r.(executor.FileStream); ok {
		if file := s.TakeFile(); file != nil {
			from, closeFrom = descriptorReader(file)
		}
	}
	// When the Execution has ended, the copy may still wait for either end.
	release := func() { _ = pipe.Close(); closeFrom() }
	defer release()
	if !f.opens(release) {
		return false, nil
	}
	out := &pipeWriter{File: pipe}
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

// pipeWriter remembers its own error, to tell it from one of the source.
type pipeWriter struct {
	*os.File
	failed error
}

// Write implements io.Writer.
func (w *pipeWriter) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		w.failed = fmt.Errorf("the runner's workspace pipe: %w", err)
	}
	return n, err
}

// descriptorReader returns a reader of file. If file is a socket, the kernel can move its bytes into the pipe.
func descriptorReader(file *os.File) (io.Reader, func()) {
	if conn, err := net.FileConn(file); err == nil { // a duplicate
		_ = file.Close()
		return conn, func() { _ = conn.Close() }
	}
	return struct{ io.Reader }{file}, func() { _ = file.Close() }
}

// opens announces that the Workspace comes through the pipe. release is called when the Execution ends. It reports false if
// the Execution has ended already.
func (f *follower) opens(release func()) bool {
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	if f.stopped || f.conn.out.Send(protocol.FrameFile) != nil {
		return false
	}
	f.release = release
	return true
}
