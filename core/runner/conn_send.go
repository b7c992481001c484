package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// send copies the Workspace, then Stdin. It returns only errors of the two readers. An error of the connection shows in the
// reader of frames.
func (f *follower) send(in RunInput) error {
	for _, part := range []struct {
		name      string
		r         io.Reader
		credit    *protocol.Credit
		data, end protocol.FrameType
	}{
		{"workspace", in.Workspace, f.workspace, protocol.FrameWorkspace, protocol.FrameWorkspaceEnd},
		{"stdin", in.Stdin, f.stdin, protocol.FrameStdin, protocol.FrameStdinEnd},
	} {
		if part.r == nil {
			continue
		}
		sent, err := true, error(nil)
		if part.credit == f.workspace {
			sent, err = f.handOver(part.r)
		}
		if sent && err == nil {
			sent, err = f.copy(part.r, part.credit, part.data)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", part.name, err)
		}
		if !sent {
			return nil
		}
		f.framed(part.end, make([]byte, protocol.HeaderBytes))
	}
	return nil
}

// handOver gives the runner the Workspace without frames, if it can: through the workspace pipe, or by sending r's own
// descriptor. Only the end of r is then left for copy. It reports false if the Execution ended first.
func (f *follower) handOver(r io.Reader) (bool, error) {
	if pipe := f.conn.openWorkspacePipe(); pipe != nil {
		return f.pour(pipe, r)
	}
	s, ok := r.(executor.FileStream)
	if !ok || !f.conn.out.CarriesFiles() {
		return true, nil
	}
	file := s.TakeFile()
	if file == nil {
		return true, nil
	}
	defer file.Close() //nolint:errcheck // the runner has its own
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	if !f.stopped {
		f.conn.out.SendFile(protocol.FrameFile, file)
	}
	return true, nil
}

// copy sends r in chunks. It reports false if the Execution ended before r did.
func (f *follower) copy(r io.Reader, c *protocol.Credit, t protocol.FrameType) (bool, error) {
	whole, err := copyChunks(r, c, nil, func(buf []byte) bool { return f.framed(t, buf) })
	if err != nil && f.isStopped() {
		return false, nil // the Close by this Conn ended the Read
	}
	return whole, err
}

// copyChunks reads r to its end and sends it in frames, as c allows. Each payload begins with head. send gets a buffer with room
// for a frame's header, and reports whether to go on. copyChunks reports whether all of r was sent. The error is r's: why c or
// send has ended is not said.
func copyChunks(r io.Reader, c *protocol.Credit, head []byte, send func(buf []byte) bool) (whole bool, err error) {
	buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer protocol.ChunkPool.Put(buf)
	at := protocol.HeaderBytes + copy((*buf)[protocol.HeaderBytes:], head)
	for {
		room, err := c.Take(protocol.ChunkBytes)
		if err != nil {
			return false, nil //nolint:nilerr // see above
		}
		n, err := r.Read((*buf)[at : at+room])
		c.Add(int64(room - n))
		if n > 0 && !send((*buf)[:at+n]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// framed sends a frame and reports whether it did. When the Execution has ended it sends nothing: no frame of an Execution may
// arrive after the next Start.
func (f *follower) framed(t protocol.FrameType, buf []byte) bool {
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	if f.stopped {
		return false
	}
	return f.conn.out.SendBuffer(t, buf) == nil
}

// stopSending ends send. It does not touch the readers.
func (f *follower) stopSending() {
	f.workspace.Stop(protocol.ErrStopped)
	f.stdin.Stop(protocol.ErrStopped)
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	f.stopped = true
	if f.release != nil {
		f.release()
	}
}

func (f *follower) isStopped() bool {
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	return f.stopped
}

// closedTwice reports whether err means only that the reader of frames has closed the connection already.
func (c *Conn) closedTwice(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}
