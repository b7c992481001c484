package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/python-executor/python-executor/core/executor"
)

// send copies the Workspace, then Stdin. An error is one of the readers', never the connection's: that one shows in the
// reader of frames.
func (f *follower) send(in RunInput) error {
	for _, part := range []struct {
		name      string
		r         io.Reader
		credit    *credit
		data, end frameType
	}{
		{"workspace", in.Workspace, f.workspace, frameWorkspace, frameWorkspaceEnd},
		{"stdin", in.Stdin, f.stdin, frameStdin, frameStdinEnd},
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
		f.framed(part.end, make([]byte, frameHeader))
	}
	return nil
}

// handOver lets the runner read the Workspace out of the descriptor in which it lies, if it lies in one and c can carry
// it, or pours it through the runner's door. What is left of r for copy is then its end. False: the Execution ended before.
func (f *follower) handOver(r io.Reader) (bool, error) {
	if door := f.conn.openDoor(); door != nil {
		return f.pour(door, r)
	}
	s, ok := r.(executor.FileStream)
	if !ok || !f.conn.out.carriesFiles() {
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
		f.conn.out.sendFile(frameFile, file)
	}
	return true, nil
}

// copy sends r in chunks; false: the Execution ended before r did.
func (f *follower) copy(r io.Reader, c *credit, t frameType) (bool, error) {
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer chunks.Put(buf)
	for {
		room, err := c.take(chunkBytes)
		if err != nil {
			return false, nil //nolint:nilerr // the Execution has ended; its Result says how
		}
		n, err := r.Read((*buf)[frameHeader : frameHeader+room])
		c.add(int64(room - n))
		if n > 0 && !f.framed(t, (*buf)[:frameHeader+n]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			if f.isStopped() {
				return false, nil // our own Close ended the Read
			}
			return false, err
		}
	}
}

// framed sends a frame unless the Execution has ended: nothing of this one may arrive after the next Start.
func (f *follower) framed(t frameType, buf []byte) bool {
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	if f.stopped {
		return false
	}
	return f.conn.out.framed(t, buf) == nil
}

// stopSending ends send without touching the readers.
func (f *follower) stopSending() {
	f.workspace.stop(errStopped)
	f.stdin.stop(errStopped)
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

func readJSON(frames *frameReader, n int, v any) error {
	raw, err := frames.payload(n)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

// closedTwice reports whether err only says that a reader that ended had closed the connection already.
func (c *Conn) closedTwice(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}
