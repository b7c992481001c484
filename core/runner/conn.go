package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// helloTimeout bounds the Hello exchange. It is what a runner waits for its first Hello, too. The end of a runner is seen without it, and a
// machine with a busy disk may need many seconds to load one.
const helloTimeout = time.Minute

// byeTimeout bounds how long Close waits for a stream to take its last frame.
const byeTimeout = time.Second

// unsentPatience is how long the reader of frames has to end after a write has failed.
const unsentPatience = time.Second

// Conn is a connection to a runner. Its methods are safe for concurrent use. Executions run one at a time.
type Conn struct {
	rw    io.ReadWriteCloser
	out   *protocol.Writer
	reply protocol.HelloReply
	pipe  atomic.Int32  // descriptor of the runner's workspace pipe; 0 when there is none, or it was used
	turn  chan struct{} // holds one token: the right to run
	kept  string        // the Start.Tree that the runner keeps; guarded by turn
	done  chan struct{} // closed when the reader of frames has ended
	alive sync.WaitGroup

	mu      sync.Mutex
	err     error // why the connection ended
	current *follower
	calls   calls
	heard   time.Time     // when the last frame came
	pong    chan struct{} // closed at the next HelloReply
}

// NewConn says Hello to the runner at the other end of rw, which it closes in the end. Codes: unavailable (no answer, or
// another version), invalid (the runner refuses cfg).
func NewConn(rw io.ReadWriteCloser, cfg Config) (*Conn, error) {
	c := newConn(rw)
	_, cfg.WorkspacePipe = rw.(DescriptorOpener)
	return c.open(func(frames *protocol.Reader) error { return c.hello(frames, cfg) })
}

func newConn(rw io.ReadWriteCloser) *Conn {
	c := &Conn{
		rw:   rw,
		out:  protocol.NewWriter(rw),
		turn: make(chan struct{}, 1),
		done: make(chan struct{}),
		pong: make(chan struct{}),
	}
	c.out.OnError = c.unsent
	return c
}

// unsent ends the connection because a frame could not be sent. If the runner is gone, the reader of frames says so, and has read the
// runner's last words by then. But a write may fail while the runner lives on, and then it waits for that frame for ever.
func (c *Conn) unsent(err error) {
	time.AfterFunc(unsentPatience, func() { c.cut(fmt.Errorf("%w: %w", errUnsent, err)) })
}

// cut ends the connection because of err.
func (c *Conn) cut(err error) {
	c.fail(err)
	_ = c.rw.Close() // done follows
}

// open calls speak, within helloTimeout, and starts the goroutines of the connection.
func (c *Conn) open(speak func(*protocol.Reader) error) (*Conn, error) {
	timer := time.AfterFunc(helloTimeout, func() { _ = c.rw.Close() })
	frames := protocol.NewReader(c.rw)
	err := speak(frames)
	if !timer.Stop() {
		err = executor.Errorf(executor.Unavailable, "runner: no reply to hello within %s", helloTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, c.rw.Close())
	}
	c.heard = time.Now()
	if c.reply.Silence > 0 {
		c.out.Protect(protocol.Marker(c.reply.Epoch))
		c.alive.Go(c.keepAlive)
	}
	if c.current == nil {
		c.turn <- struct{}{}
	}
	go c.read(frames)
	return c, nil
}

func (c *Conn) hello(frames *protocol.Reader, cfg Config) error {
	if err := c.out.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: cfg}); err != nil {
		return executor.Errorf(executor.Unavailable, "runner: hello: %w", err)
	}
	t, n, err := frames.Header()
	if err != nil {
		return executor.Errorf(executor.Unavailable, "runner: no reply to hello: %w", err)
	}
	return c.accept(frames, t, n)
}

// accept reads the reply to a Hello.
func (c *Conn) accept(frames *protocol.Reader, t protocol.FrameType, n int) error {
	if t != protocol.FrameHelloReply {
		return executor.Errorf(executor.Unavailable, "runner: frame type %d instead of a reply to hello", t)
	}
	if err := protocol.ReadJSON(frames, n, &c.reply); err != nil {
		return executor.Errorf(executor.Unavailable, "runner: hello: %w", err)
	}
	if c.reply.Version != protocol.Version {
		return executor.Errorf(executor.Unavailable, "runner: speaks version %d, this host %d", c.reply.Version, protocol.Version)
	}
	if c.reply.Error != "" {
		return executor.Errorf(cmp.Or(c.reply.Code, executor.Invalid), "runner: %s", c.reply.Error)
	}
	c.pipe.Store(int32(c.reply.WorkspacePipe)) //nolint:gosec // a descriptor
	return nil
}

// Epoch returns the number that the runner drew when it started. ResumeConn needs it. A process that
// knows the epoch can take over the runner, so the epoch must appear in Handles only, and never in logs or labels.
func (c *Conn) Epoch() uint64 { return c.reply.Epoch }

// Kernel returns protocol.KernelGVisor if the runner is on gVisor, and "" on Linux.
func (c *Conn) Kernel() string { return c.reply.Kernel }

// Done is closed when the connection has ended, whichever end ended it. It is closed before a Run that fails because of that
// returns.
func (c *Conn) Done() <-chan struct{} { return c.done }

// ErrTaken means that the runner had read the Start when it went away, and had not said yet whether the program has begun. A runner
// that ends without reading the Start breaks a socket of this machine otherwise. A runner that has not read all that follows the Start
// breaks it, too, so for such an Execution it is not known.
var ErrTaken = errors.New("the runner went away with the program")

var (
	errGone     = errors.New("the runner went away")
	errClosed   = errors.New("closed by the host")
	errDetached = errors.New("detached by the host")
)

// HungUp reports whether Close or Detach ended the connection.
func (c *Conn) HungUp() bool {
	err := c.Err()
	return errors.Is(err, errClosed) || errors.Is(err, errDetached)
}

// Err returns why the connection ended. It returns nil before Done is closed.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the runner and the connection. The runner kills its program and exits, also with Config.Silence > 0. A Run
// that has not ended returns unavailable. Idempotent. See Detach.
func (c *Conn) Close() error {
	c.fail(errClosed)
	if c.reply.Silence > 0 {
		// The stream does not tell the runner that this host is gone. If the stream takes no bytes, Config.Silence has to.
		timer := time.AfterFunc(byeTimeout, func() { _ = c.rw.Close() })
		_ = c.out.Send(protocol.FrameBye)
		timer.Stop()
	}
	return c.hangUp()
}

// Detach closes the connection and leaves the runner alone. The program goes on for Config.Silence, and until then ResumeConn
// can take it over. A Run that has not ended returns unavailable. With Config.Silence 0 Detach is Close. Idempotent.
func (c *Conn) Detach() error {
	c.fail(errDetached)
	return c.hangUp()
}

func (c *Conn) hangUp() error {
	err := c.rw.Close()
	<-c.done
	c.alive.Wait()
	if err != nil && c.closedTwice(err) {
		return nil
	}
	return err
}

// ping asks the runner for a sign of life and does not wait for the answer. Check does. keepAlive pings with Config.Silence > 0.
func (c *Conn) ping() error { return c.out.Send(protocol.FramePing) }

// fail records why the connection ended. The first reason stays.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// read reads frames until the connection ends, in a goroutine of its own. It never waits for a Sink: the windows bound what a
// follower has not taken yet.
func (c *Conn) read(frames *protocol.Reader) {
	err := c.readAll(frames)
	if errors.Is(err, io.EOF) {
		err = errGone
	}
	c.fail(err)
	_ = c.rw.Close()
	close(c.done) // before a caller that waits for an answer looks whether this is the reason
	c.mu.Lock()
	f := c.current
	err = c.err
	c.mu.Unlock()
	c.calls.lost(err)
	if f != nil {
		f.lost(executor.Errorf(executor.Unavailable, "runner: %w", err))
	}
}

func (c *Conn) readAll(frames *protocol.Reader) error {
	for {
		t, n, err := frames.Header()
		if err != nil {
			return err
		}
		f := c.hear(t)
		switch t {
		case protocol.FrameHelloReply:
			if _, err := frames.Payload(n); err != nil {
				return err
			}
			continue
		case protocol.FrameSessionReply, protocol.FrameSessionFile, protocol.FrameSessionCredit:
			if err := c.calls.take(frames, t, n); err != nil {
				return err
			}
			continue
		case protocol.FrameLost:
			return errors.New("the runner cannot follow this host any more")
		default:
		}
		if f == nil {
			return fmt.Errorf("%w: frame type %d without an Execution", protocol.ErrFrame, t)
		}
		if err := f.take(frames, t, n); err != nil {
			return err
		}
	}
}

// begin makes f the receiver of the runner's frames.
func (c *Conn) begin(f *follower) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return executor.Errorf(executor.Unavailable, "runner: %w", c.err)
	}
	select {
	case <-c.done:
		return executor.Errorf(executor.Unavailable, "runner: the connection has ended")
	default:
	}
	c.current = f
	return nil
}

func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
}

// acquire waits for the right to run. It reports false if ctx ended first.
func (c *Conn) acquire(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case <-c.turn:
		return true
	case <-ctx.Done():
		return false
	}
}

// What a host tells a runner.
type (
	// Config is fixed for a runner's life.
	Config = protocol.Config
	// Ahead is part of Config.
	Ahead = protocol.Ahead
	// Start asks a runner to run one Execution.
	Start = protocol.Start
	// SessionStart asks a runner to open a session.
	SessionStart = protocol.SessionStart
)
