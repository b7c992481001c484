package runner

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// ResumeOptions names a runner and what a host wants to follow of it.
type ResumeOptions struct {
	// Epoch is that of the runner: see Conn.Epoch.
	Epoch uint64
	// ExecutionID is the Execution to follow. It is empty for a Session that is only to be held.
	ExecutionID string
	// Stdout and Stderr are the offsets up to which output is in the log.
	Stdout int64
	Stderr int64
}

// resumeAgain is the time after which a host that gets no reply says Hello again. Bytes of the host before may have come
// between.
const resumeAgain = 500 * time.Millisecond

// ResumeConn takes over a runner whose host is gone. rw is a new connection to the same standard streams, which it closes in
// the end. Anything may come first on it: the rest of a frame, or all that was written without a host.
//
// With an ExecutionID, the caller has to call Follow before anything else. Input that the host before had not sent whole is
// cut: a Workspace fails the Execution in the phase prepare, and Stdin ends.
//
// Codes: not_found (the runner has another Execution or none, or the output that the host lacks was acknowledged; the runner
// goes on), unavailable (no reply within helloTimeout, as from a runner of another epoch).
func ResumeConn(rw io.ReadWriteCloser, r ResumeOptions) (*Conn, error) {
	c := newConn(rw)
	if r.ExecutionID != "" {
		c.current = newFollower(c)
		c.current.acked.Streams = [2]int64{r.Stdout, r.Stderr}
	}
	return c.open(func(frames *protocol.Reader) error { return c.resume(frames, r) })
}

func (c *Conn) resume(frames *protocol.Reader, r ResumeOptions) error {
	var nonce [protocol.MarkerBytes]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand)
	intro, err := protocol.AppendJSON(protocol.Marker(r.Epoch), protocol.FrameHello, protocol.Hello{
		Version: protocol.Version, Resume: true, ExecutionID: r.ExecutionID, Stdout: r.Stdout, Stderr: r.Stderr, Nonce: nonce[:],
	})
	if err != nil {
		return err
	}

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
	err = frames.Seek(nonce[:])
	if err == nil {
		var t protocol.FrameType
		var n int
		if t, n, err = frames.Header(); err == nil {
			err = c.accept(frames, t, n)
		}
	} else {
		err = executor.Errorf(executor.Unavailable, "runner: no reply to hello: %w", err)
	}
	close(answered)
	if err != nil {
		_ = c.rw.Close() // ends a Write that blocks
	}
	<-introduced
	if c.current != nil {
		c.current.acked.Events = c.reply.Events
	}
	return err
}

// Follow goes on with the Execution that ResumeConn named, as Run would have: Started again, the output from the offsets on,
// all Artifacts again, the Result. It is called once. Codes as Run's.
func (c *Conn) Follow(ctx context.Context, sink executor.Sink) (executor.Result, error) {
	c.mu.Lock()
	f := c.current
	c.mu.Unlock()
	if f == nil || f.followed {
		return executor.Result{}, executor.Errorf(executor.Internal, "runner: no execution to follow")
	}
	f.followed = true
	defer func() { c.turn <- struct{}{} }()
	defer c.end()
	return c.see(ctx, f, c.reply.KillGrace, RunInput{}, sink)
}

// Check asks the runner for a sign of life and waits for the answer. Codes: unavailable (the connection or ctx has ended).
func (c *Conn) Check(ctx context.Context) error {
	c.mu.Lock()
	pong := c.pong
	c.mu.Unlock()
	if err := c.ping(); err != nil {
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

// keepAlive pings while the connection lasts, and ends it when the runner has been silent for Config.Silence.
func (c *Conn) keepAlive() {
	every := max(c.reply.Silence/4, time.Millisecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// The watch is apart from the pings, which block when the stream takes no bytes.
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
				_ = c.ping() // a broken connection shows in the reader
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
				c.cut(errSilent)
			}
		}
	}
}

// hear notes that a frame came, and returns the follower that it is for.
func (c *Conn) hear(t protocol.FrameType) *follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if t == protocol.FrameHelloReply {
		close(c.pong)
		c.pong = make(chan struct{})
	}
	return c.current
}
