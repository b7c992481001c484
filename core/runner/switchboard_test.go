//go:build linux

package runner

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// switchboard stands between a runner's standard streams and its hosts as dockerd does: hosts attach and vanish, and the runner
// is not told. While nobody is attached, what the runner writes is swallowed, or (hold) stays in its pipe until that is full.
type switchboard struct {
	tb   testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	err  lockedBuffer
	hold bool

	mu     sync.Mutex
	cond   *sync.Cond
	client *client
	closed bool
}

// startSwitchboard starts a runner on pipes. cmd may be nil: this test binary as a runner.
func startSwitchboard(tb testing.TB, cmd *exec.Cmd) *switchboard {
	tb.Helper()
	if cmd == nil {
		cmd = exec.Command("/proc/self/exe", "runner", "--stdio")
	}
	r := &switchboard{tb: tb, cmd: cmd}
	r.cond = sync.NewCond(&r.mu)
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stderr = &r.err
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	var pumping sync.WaitGroup
	pumping.Go(func() { r.pump(out) })
	tb.Cleanup(func() {
		r.mu.Lock()
		r.closed = true
		r.cond.Broadcast()
		r.mu.Unlock()
		_ = r.in.Close()
		_ = cmd.Process.Kill()
		pumping.Wait()
		_ = cmd.Wait() // the tests that care have waited
	})
	return r
}

func (r *switchboard) pump(out io.Reader) {
	buf := make([]byte, 4096)
	for {
		r.mu.Lock()
		for r.hold && r.client == nil && !r.closed {
			r.cond.Wait()
		}
		r.mu.Unlock()
		n, err := out.Read(buf)
		r.mu.Lock()
		c := r.client
		r.mu.Unlock()
		if c != nil {
			c.receive(buf[:n], err)
		}
		if err != nil {
			return
		}
	}
}

// attach gives a host a connection, in place of the one before. It vanishes after down bytes to the host, or up bytes from
// it; negative: never.
func (r *switchboard) attach(up, down int) *client {
	c := &client{board: r, up: up, down: down}
	c.cond = sync.NewCond(&c.mu)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = c
	r.cond.Broadcast()
	return c
}

// client is a host's connection.
type client struct {
	board *switchboard

	mu       sync.Mutex
	cond     *sync.Cond
	up, down int
	buf      []byte
	err      error
}

func (c *client) receive(p []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = append(c.buf, p...)
	if err != nil {
		c.err = io.EOF
	}
	c.cond.Broadcast()
}

// Read implements io.Reader.
func (c *client) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) == 0 && c.err == nil && c.down != 0 {
		c.cond.Wait()
	}
	if c.down == 0 || c.err != nil && len(c.buf) == 0 {
		c.vanish()
		return 0, io.ErrUnexpectedEOF
	}
	if c.down > 0 && len(p) > c.down {
		p = p[:c.down]
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	if c.down > 0 {
		c.down -= n
	}
	return n, nil
}

// Write implements io.Writer.
func (c *client) Write(p []byte) (int, error) {
	c.mu.Lock()
	n := len(p)
	if c.up >= 0 {
		n = min(n, c.up)
		c.up -= n
	}
	gone := c.err != nil
	c.mu.Unlock()
	if gone {
		return 0, os.ErrClosed
	}
	if _, err := c.board.in.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		_ = c.Close()
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// Close implements io.Closer: the host is gone, as after kill -9.
func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vanish()
	return nil
}

func (c *client) vanish() {
	if c.err == nil {
		c.err = io.EOF
	}
	c.buf, c.down = nil, 0
	c.cond.Broadcast()
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	if c.board.client == c {
		c.board.client = nil
	}
}
