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

// send copies the Workspace, then Stdin. It returns only errors of the two readers. An error of the connection ends it, which the
// reader of frames tells.
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
		rest, sent, err := part.r, true, error(nil)
		if part.credit == f.workspace {
			rest, sent, err = f.handOver(part.r)
		}
		if sent && err == nil {
			sent, err = f.copy(rest, part.credit, part.data)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", part.name, err)
		}
		if !sent || !f.framed(part.end, make([]byte, protocol.HeaderBytes)) {
			return nil
		}
		if part.credit == f.workspace {
			f.start.watch(func() { f.conn.cut(errNoStart) })
		}
	}
	return nil
}

// handOver gives the runner the Workspace without frames, if it can: through the workspace pipe, or by sending r's own
// descriptor. rest is what is left for copy: the end of r, or all of it. It reports false if the Execution ended first.
func (f *follower) handOver(r io.Reader) (rest io.Reader, ok bool, err error) {
	if pipe := f.conn.openWorkspacePipe(); pipe != nil {
		ok, err = f.pour(pipe, r)
		return r, ok, err
	}
	s, ok := r.(executor.FileStream)
	if !ok || !f.conn.out.CarriesFiles() {
		return r, true, nil
	}
	file := s.TakeFile()
	if file == nil {
		return r, true, nil
	}
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	if f.stopped {
		_ = file.Close() // it was not read
		return nil, false, nil
	}
	if f.conn.out.SendFile(protocol.FrameFile, file) == nil {
		_ = file.Close() // the runner has its own
		return r, true, nil
	}
	// Frames may be possible all the same, and if not, the first of them says so.
	from, release := descriptorReader(file)
	f.release = release
	return &takenReader{from: from, rest: r}, true, nil
}

// takenReader reads a FileStream whose descriptor was taken from it.
type takenReader struct {
	from, rest io.Reader
	err        error // of from, which has ended
}

// Read implements io.Reader.
func (t *takenReader) Read(p []byte) (int, error) {
	if t.err == nil {
		n, err := t.from.Read(p)
		if t.err = err; n > 0 || err == nil {
			return n, nil
		}
	}
	// The stream knows whether that was all. A file whose read fails knows better.
	n, err := t.rest.Read(p)
	if errors.Is(err, io.EOF) {
		err = t.err
	}
	return n, err
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
