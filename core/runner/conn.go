package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// helloTimeout bounds the Hello exchange: a runner that does not answer by then is not one.
const helloTimeout = 15 * time.Second

// Conn is the host's end of a runner. All methods are safe for concurrent use; Executions run one at a time.
type Conn struct {
	rw    io.ReadWriteCloser
	out   *frameWriter
	reply helloReply
	turn  chan struct{} // one token: the right to run
	done  chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	err     error // why the connection ended
	current *follower
}

// NewConn takes rw for its own and does the Hello exchange with the runner at its other end. Codes: unavailable (nobody
// answers, another version), invalid (the runner refuses cfg).
func NewConn(rw io.ReadWriteCloser, cfg Config) (*Conn, error) {
	c := &Conn{
		rw:   rw,
		out:  &frameWriter{w: rw},
		turn: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	timer := time.AfterFunc(helloTimeout, func() { _ = rw.Close() })
	frames := newFrameReader(rw)
	err := c.hello(frames, cfg)
	if !timer.Stop() && err == nil {
		err = executor.Errorf(executor.Unavailable, "runner: no hello within %s", helloTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, rw.Close())
	}
	c.turn <- struct{}{}
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
		return executor.Errorf(executor.Invalid, "runner: %s", c.reply.Error)
	}
	return nil
}

// PID is the runner's own process number, as the runner sees it.
func (c *Conn) PID() int { return c.reply.PID }

// Done is closed when the connection has ended, whichever side ended it. The Conn is of no use then.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil before Done.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection: the runner kills its program and exits (with Config.Silence > 0 it first waits that long
// for another host). A Run under way returns unavailable. Idempotent.
func (c *Conn) Close() error {
	c.fail(errors.New("closed by the host"))
	err := c.rw.Close()
	<-c.done
	if err != nil && c.closedTwice(err) {
		return nil
	}
	return err
}

// Ping asks the runner for a sign of life; with Config.Silence > 0 a host does so several times per Silence. It does not
// wait for the answer: a runner that is gone closes Done.
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
	defer close(c.done)
	err := c.readAll(frames)
	if errors.Is(err, io.EOF) {
		err = errors.New("the runner went away")
	}
	c.fail(err)
	_ = c.rw.Close()
	c.mu.Lock()
	f := c.current
	err = c.err
	c.mu.Unlock()
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
		c.mu.Lock()
		f := c.current
		c.mu.Unlock()
		if t == frameHelloReply {
			if _, err := frames.payload(n); err != nil {
				return err
			}
			continue
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
