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
)

// helloTimeout bounds the Hello exchange: a runner that does not answer by then is not one.
const helloTimeout = 15 * time.Second

// byeTimeout bounds how long Close waits for a stream to take its last frame.
const byeTimeout = time.Second

// Conn is the host's end of a runner. All methods are safe for concurrent use; Executions run one at a time.
type Conn struct {
	rw    io.ReadWriteCloser
	out   *frameWriter
	reply helloReply
	door  atomic.Int32  // the runner's, until it was used
	turn  chan struct{} // one token: the right to run
	done  chan struct{} // closed when the reader has read its last
	alive sync.WaitGroup

	mu      sync.Mutex
	err     error // why the connection ended
	current *follower
	calls   calls
	heard   time.Time     // when the last frame came
	pong    chan struct{} // closed at the next HelloReply
}

// NewConn takes rw for its own and does the Hello exchange with the runner at its other end. Codes: unavailable (nobody
// answers, another version), invalid (the runner refuses cfg).
func NewConn(rw io.ReadWriteCloser, cfg Config) (*Conn, error) {
	c := newConn(rw)
	_, cfg.Door = rw.(DoorOpener)
	return c.open(func(frames *frameReader) error { return c.hello(frames, cfg) })
}

func newConn(rw io.ReadWriteCloser) *Conn {
	return &Conn{
		rw:   rw,
		out:  &frameWriter{w: rw},
		turn: make(chan struct{}, 1),
		done: make(chan struct{}),
		pong: make(chan struct{}),
	}
}

// open speaks first, within helloTimeout, and starts what lives as long as the connection.
func (c *Conn) open(speak func(*frameReader) error) (*Conn, error) {
	timer := time.AfterFunc(helloTimeout, func() { _ = c.rw.Close() })
	frames := newFrameReader(c.rw)
	err := speak(frames)
	if !timer.Stop() {
		err = executor.Errorf(executor.Unavailable, "runner: no hello within %s", helloTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, c.rw.Close())
	}
	c.heard = time.Now()
	if c.reply.Silence > 0 {
		c.out.protect(marker(c.reply.Epoch))
		c.alive.Go(c.keepAlive)
	}
	if c.current == nil {
		c.turn <- struct{}{}
	}
	go c.read(frames)
	return c, nil
}

func (c *Conn) hello(frames *frameReader, cfg Config) error {
	if err := c.out.json(frameHello, hello{Version: Version, Config: cfg}); err != nil {
		return executor.Errorf(executor.Unavailable, "runner: hello: %w", err)
	}
	t, n, err := frames.header()
	if err != nil {
		return executor.Errorf(executor.Unavailable, "runner: no hello: %w", err)
	}
	return c.accept(frames, t, n)
}

// accept reads the answer to a hello.
func (c *Conn) accept(frames *frameReader, t frameType, n int) error {
	if t != frameHelloReply {
		return executor.Errorf(executor.Unavailable, "runner: frame type %d instead of a hello", t)
	}
	if err := readJSON(frames, n, &c.reply); err != nil {
		return executor.Errorf(executor.Unavailable, "runner: hello: %w", err)
	}
	if c.reply.Version != Version {
		return executor.Errorf(executor.Unavailable, "runner: speaks version %d, this host %d", c.reply.Version, Version)
	}
	if c.reply.Error != "" {
		return executor.Errorf(cmp.Or(c.reply.Code, executor.Invalid), "runner: %s", c.reply.Error)
	}
	c.door.Store(int32(c.reply.Door)) //nolint:gosec // a descriptor
	return nil
}

// Epoch is the number that the runner drew when it started. ResumeConn needs it, and whoever knows it can take the runner
// over: it belongs into a Handle, not into a log or a label.
func (c *Conn) Epoch() uint64 { return c.reply.Epoch }

// PID is the runner's own process number, as the runner sees it.
func (c *Conn) PID() int { return c.reply.PID }

// Kernel is what the runner runs on, if that is not Linux itself: KernelGVisor; else empty.
func (c *Conn) Kernel() string { return c.reply.Kernel }

// Done is closed when the connection has ended, whichever side ended it, and before what was under way returns because of
// it. The Conn is of no use then.
func (c *Conn) Done() <-chan struct{} { return c.done }

var (
	errClosed   = errors.New("closed by the host")
	errDetached = errors.New("detached by the host")
)

// HungUp reports whether the connection was ended here, by Close or Detach.
func (c *Conn) HungUp() bool {
	err := c.Err()
	return errors.Is(err, errClosed) || errors.Is(err, errDetached)
}

// Err says why the connection ended; nil before Done.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the runner and the connection: the runner kills its program and exits, also with Config.Silence > 0. A Run
// under way returns unavailable. Idempotent. See Detach.
func (c *Conn) Close() error {
	c.fail(errClosed)
	if c.reply.Silence > 0 {
		// A stream without an end does not tell the runner that we are gone. One that takes nothing tells it nothing either.
		timer := time.AfterFunc(byeTimeout, func() { _ = c.rw.Close() })
		_ = c.out.frame(frameBye) // then the silence has to tell
		timer.Stop()
	}
	return c.hangUp()
}

// Detach lets go of the runner without ending it: our end is closed, and the program goes on for Config.Silence, in which
// ResumeConn may take it up again. A Run under way returns unavailable. With Config.Silence 0 it is Close. Idempotent.
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

// Ping asks the runner for a sign of life and does not wait for the answer: see Check. A Conn whose Config.Silence is > 0
// does it by itself, several times per Silence, and ends with unavailable when nothing is heard for that long.
func (c *Conn) Ping() error { return c.out.frame(framePing) }

// fail records why the connection ended; the first reason stays.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// read is the reader's goroutine: it ends with the connection. It never blocks on a Sink: what a follower has not taken
// yet is bounded by the windows.
func (c *Conn) read(frames *frameReader) {
	err := c.readAll(frames)
	if errors.Is(err, io.EOF) {
		err = errors.New("the runner went away")
	}
	c.fail(err)
	_ = c.rw.Close()
	close(c.done) // before whoever waits for an answer hears of it, and asks whether this is why
	c.mu.Lock()
	f := c.current
	err = c.err
	c.mu.Unlock()
	c.calls.lost(err)
	if f != nil {
		f.lost(executor.Errorf(executor.Unavailable, "runner: %w", err))
	}
}

func (c *Conn) readAll(frames *frameReader) error {
	for {
		t, n, err := frames.header()
		if err != nil {
			return err
		}
		f := c.hear(t)
		switch t {
		case frameHelloReply:
			if _, err := frames.payload(n); err != nil {
				return err
			}
			continue
		case frameSessionReply, frameSessionFile, frameSessionCredit:
			if err := c.calls.take(frames, t, n); err != nil {
				return err
			}
			continue
		case frameLost:
			return errors.New("the runner does not understand this host any more")
		default:
		}
		if f == nil {
			return fmt.Errorf("%w: frame type %d without an Execution", errFrame, t)
		}
		if err := f.take(frames, t, n); err != nil {
			return err
		}
	}
}

// begin makes f the receiver of what the runner sends.
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

// acquire waits for the turn; false: ctx ended first.
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
