package runner

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// ResumeOptions names the runner, and what of it a host wants to follow.
type ResumeOptions struct {
	// Epoch of the runner, as Conn.Epoch told.
	Epoch uint64
	// ExecutionID to follow; empty: none, for a Session that is only to be held (ExecutionID tells what it is at).
	ExecutionID string
	// Stdout and Stderr are the offsets up to which output is in the log.
	Stdout int64
	Stderr int64
}

// resumeAgain is how often a host that gets no answer introduces itself again: what the host before it had on its way may
// have come between.
const resumeAgain = 500 * time.Millisecond

// ResumeConn takes over a runner whose host is gone. rw is a new connection to the same standard streams, on which anything
// may come first: the rest of a frame, or all that was written while nobody listened. It takes rw for its own.
//
// With an ExecutionID the caller goes on with Follow, and nothing else of the Conn before that. Input that the gone host
// had not sent whole is cut: a Workspace fails the Execution in the phase prepare, Stdin ends.
//
// Codes: not_found (the runner is at no or another Execution, or output that the caller lacks is acknowledged and gone; it
// goes on, and others may resume it), unavailable (nobody answers within 15 s, and a runner of another epoch does not).
func ResumeConn(rw io.ReadWriteCloser, r ResumeOptions) (*Conn, error) {
	c := newConn(rw)
	if r.ExecutionID != "" {
		c.current = newFollower(c)
		c.current.acked.streams = [2]int64{r.Stdout, r.Stderr}
	}
	return c.open(func(frames *frameReader) error { return c.resume(frames, r) })
}

// ExecutionID is what the runner was at when this Conn was made; empty: nothing.
func (c *Conn) ExecutionID() string { return c.reply.ExecutionID }

func (c *Conn) resume(frames *frameReader, r ResumeOptions) error {
	var nonce [markerBytes]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand)
	raw, err := json.Marshal(hello{
		Version: Version, Epoch: r.Epoch, Resume: true, ExecutionID: r.ExecutionID, Stdout: r.Stdout, Stderr: r.Stderr, Nonce: nonce[:],
	})
	if err != nil {
		return err
	}
	intro := append(marker(r.Epoch), make([]byte, frameHeader)...)
	binary.BigEndian.PutUint32(intro[markerBytes:], uint32(len(raw))) //nolint:gosec // a few hundred bytes
	intro[len(intro)-1] = byte(frameHello)
	intro = append(intro, raw...)

	answered, introduced := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(introduced)
		again := time.NewTicker(resumeAgain)
		defer again.Stop()
		for {
			if _, err := c.rw.Write(intro); err != nil {
				_ = c.rw.Close() // the reader shall not wait
				return
			}
			select {
			case <-answered:
				return
			case <-again.C:
			}
		}
	}()
	err = frames.seek(nonce[:])
	if err == nil {
		var t frameType
		var n int
		if t, n, err = frames.header(); err == nil {
			err = c.accept(frames, t, n)
		}
	} else {
		err = executor.Errorf(executor.Unavailable, "runner: no answer: %w", err)
	}
	close(answered)
	if err != nil {
		_ = c.rw.Close() // ends a Write that blocks
	}
	<-introduced
	if c.current != nil {
		c.current.acked.events = c.reply.Events
	}
	return err
}

// Follow goes on with the Execution that ResumeConn named, as Run would have: Started (again), the output from the offsets
// on, the Artifacts (all of them, again), the Result. It is called once. Codes as Run's.
func (c *Conn) Follow(ctx context.Context, sink executor.Sink) (executor.Result, error) {
	c.mu.Lock()
	f := c.current
	c.mu.Unlock()
	if f == nil || f.followed {
		return executor.Result{}, executor.Errorf(executor.Internal, "runner: there is nothing to follow")
	}
	f.followed = true
	defer func() { c.turn <- struct{}{} }()
	defer c.end()
	return c.see(ctx, f, c.reply.KillGrace, RunInput{}, sink)
}

// Signal sends a signal to the process group of the program that runs; without one nothing happens. It does not wait.
func (c *Conn) Signal(sig syscall.Signal) error {
	return c.out.frame(frameSignal, byte(sig))
}

// Check asks the runner for a sign of life and waits for the answer. Codes: unavailable (the connection has ended, or ctx
// has).
func (c *Conn) Check(ctx context.Context) error {
	c.mu.Lock()
	pong := c.pong
	c.mu.Unlock()
	if err := c.Ping(); err != nil {
		return executor.Errorf(executor.Unavailable, "runner: ping: %w", err)
	}
	select {
	case <-pong:
		return nil
	case <-c.done:
		return executor.Errorf(executor.Unavailable, "runner: %w", c.Err())
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "runner: no answer to a ping: %w", context.Cause(ctx))
	}
}

// keepAlive Pings while the connection lasts, and ends it when the runner is silent: a stream without an end may lead
// nowhere.
func (c *Conn) keepAlive() {
	every := max(c.reply.Silence/4, time.Millisecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// Apart from the Pings, which block when the stream takes nothing.
	watch := time.NewTicker(every)
	defer watch.Stop()
	pinged := make(chan struct{})
	go func() {
		defer close(pinged)
		for {
			select {
			case <-c.done:
				return
			case <-ticker.C:
				_ = c.Ping() // a broken connection shows in the reader
			}
		}
	}()
	defer func() { <-pinged }()
	for {
		select {
		case <-c.done:
			return
		case <-watch.C:
			c.mu.Lock()
			silent := time.Since(c.heard) > c.reply.Silence
			c.mu.Unlock()
			if silent {
				c.fail(errSilent)
				_ = c.rw.Close() // done follows
			}
		}
	}
}

// hear notes that a frame came, and returns who it is for.
func (c *Conn) hear(t frameType) *follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if t == frameHelloReply {
		close(c.pong)
		c.pong = make(chan struct{})
	}
	return c.current
}
