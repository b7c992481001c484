package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// cancelMargin is what a runner gets beyond Limits.KillGrace to answer a Cancel; then the connection is cut, and the
// runner kills everything because of that.
const cancelMargin = 10 * time.Second

var (
	errStopped = errors.New("the Execution has ended")
	errSilent  = errors.New("the runner is silent")
)

// RunInput is what an Execution reads. Run closes a reader that is an io.Closer as soon as nobody needs it any more, and
// that Close must end a Read that blocks. A reader without Close may keep one goroutine until its Read returns; nothing
// is sent then.
type RunInput struct {
	// Workspace is a tar stream; nil without one. It is read to its end before Stdin.
	Workspace io.Reader
	// Stdin of the program; nil: empty and closed.
	Stdin io.Reader
}

// Run runs one Execution and blocks until the runner has answered for it, which means that no process of it is left. A
// second Run waits for the first. Start's Workspace and Stdin are set from in.
//
// The end of ctx stops the program as the contract says: SIGTERM, after Limits.KillGrace SIGKILL to all, and a Result
// with StatusKilled. An error from sink does the same, and Run returns that error, as it does an error from a reader of
// in. sink is called by Run's own goroutine. Result has no Image and no queue time. Codes: invalid (start is too long),
// unavailable (the runner went away).
func (c *Conn) Run(ctx context.Context, start Start, in RunInput, sink executor.Sink) (executor.Result, error) {
	if !c.acquire(ctx) {
		closeInputs(in)
		return neverStarted(), nil
	}
	defer func() { c.turn <- struct{}{} }()
	start.Workspace = in.Workspace != nil
	start.Stdin = in.Stdin != nil
	f := newFollower(c)
	if err := c.begin(f); err != nil {
		closeInputs(in)
		return executor.Result{}, err
	}
	defer c.end()
	raw, err := json.Marshal(start)
	if err != nil || len(raw) > maxStart {
		closeInputs(in)
		return executor.Result{}, executor.FieldErrorf(executor.Invalid, "code", "more than %d bytes with everything around it", maxStart)
	}
	if err := c.out.raw(frameStart, raw); err != nil {
		closeInputs(in)
		return executor.Result{}, executor.Errorf(executor.Unavailable, "runner: start: %w", err)
	}
	res, err := c.see(ctx, f, start.Limits.KillGrace, in, sink)
	if f.started {
		res.PythonVersion, res.Requirements = start.PythonVersion, start.Requirements
	}
	return res, err
}

// see sees the Execution that f follows to its end, sending in meanwhile.
func (c *Conn) see(ctx context.Context, f *follower, grace time.Duration, in RunInput, sink executor.Sink) (executor.Result, error) {
	// ctx's end becomes a Cancel on the wire; what follows is the runner's answer to it.
	var cut *time.Timer
	var cutMu sync.Mutex
	cancel := sync.OnceFunc(func() {
		if !f.framed(frameCancel, make([]byte, frameHeader)) {
			return // it has ended, or the connection has: that shows in the reader
		}
		cutMu.Lock()
		defer cutMu.Unlock()
		cut = time.AfterFunc(grace+cancelMargin, func() {
			c.fail(errors.New("no answer to a cancel"))
			_ = c.rw.Close()
		})
	})
	stop := context.AfterFunc(ctx, cancel)

	copied := make(chan struct{})
	if in.Workspace == nil && in.Stdin == nil {
		close(copied)
	} else {
		go func() {
			defer close(copied)
			if err := f.send(in); err != nil {
				f.inputFailed(err)
				cancel()
			}
		}()
	}

	res, err := f.follow(sink, cancel)
	f.stopSending()
	if closeInputs(in) {
		<-copied
	}
	if !stop() {
		cancel() // AfterFunc has begun: wait for its Once, so that the Cancel cannot hit the next Execution
	}
	cutMu.Lock()
	if cut != nil {
		cut.Stop()
	}
	cutMu.Unlock()
	if err != nil && ctx.Err() != nil && f.isLost() {
		// The caller wanted it dead and the broken connection has seen to that.
		return executor.Result{Status: executor.StatusKilled, CPU: -1}, nil
	}
	return res, err
}

func neverStarted() executor.Result {
	return executor.Result{Status: executor.StatusKilled}
}

// closeInputs closes what can be closed and reports whether that was everything.
func closeInputs(in RunInput) bool {
	all := true
	for _, r := range []io.Reader{in.Workspace, in.Stdin} {
		if r == nil {
			continue
		}
		if closer, ok := r.(io.Closer); ok {
			_ = closer.Close() // it was read; there is nothing to lose
		} else {
			all = false
		}
	}
	return all
}

// follower is one Execution on the host's side: the queue between the connection's reader and Run.
type follower struct {
	conn      *Conn
	workspace *credit
	stdin     *credit

	sendMu  sync.Mutex
	stopped bool
	// release lets go of a door and of what is poured into it; nil: there is none.
	release func()

	mu       sync.Mutex
	cond     *sync.Cond
	queue    []received
	held     int
	lostErr  error
	inputErr error

	// Of Run's goroutine only.
	started   bool
	earlier   [2]int64 // how much of each stream was written before
	unacked   int64
	acked     acked
	artifacts []executor.Artifact
	followed  bool // Follow was called
}

// received is a frame on its way to the Sink.
type received struct {
	t    frameType
	data []byte
}

func newFollower(c *Conn) *follower {
	f := &follower{conn: c, workspace: newCredit(workspaceWindow), stdin: newCredit(stdinWindow)}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// take handles one frame, on the reader's goroutine.
func (f *follower) take(frames *frameReader, t frameType, n int) error {
	if t == frameCredit {
		p, err := frames.payload(n)
		if err != nil {
			return err
		}
		ch, add, err := parseCredit(p)
		if err != nil {
			return err
		}
		switch ch {
		case channelWorkspace:
			f.workspace.add(add)
		case channelStdin:
			f.stdin.add(add)
		case channelArtifact:
			return fmt.Errorf("%w: the runner grants credit for artifacts", errFrame)
		}
		return nil
	}
	if t < frameProgress {
		return fmt.Errorf("%w: the runner sent frame type %d", errFrame, t)
	}
	data := make([]byte, n)
	if err := frames.into(data); err != nil {
		return err
	}
	return f.put(received{t, data})
}

// lost ends the queue after what is in it.
func (f *follower) lost(err error) {
	f.mu.Lock()
	f.lostErr = err
	f.cond.Broadcast()
	f.mu.Unlock()
	f.workspace.stop(err)
	f.stdin.stop(err)
}

func (f *follower) isLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lostErr != nil
}

func (f *follower) inputFailed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inputErr = err
}

// next waits for the next frame.
func (f *follower) next() (received, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && f.lostErr == nil {
		f.cond.Wait()
	}
	if len(f.queue) == 0 {
		return received{}, f.lostErr
	}
	r := f.queue[0]
	f.queue[0] = received{}
	f.queue = f.queue[1:]
	f.held -= len(r.data)
	return r, nil
}

// follow hands what comes to sink until Exited.
func (f *follower) follow(sink executor.Sink, cancel func()) (executor.Result, error) {
	var sinkErr error
	for {
		r, err := f.next()
		if err != nil {
			return executor.Result{}, err
		}
		if r.t == frameExited {
			return f.exited(r.data, sinkErr)
		}
		err = f.deliver(r, f.towards(sink), sinkErr == nil)
		if errors.Is(err, errFrame) || f.isLost() && err != nil {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "runner: %w", err)
		}
		if errors.Is(err, executor.ErrCallerGone) && f.conn.reply.Silence > 0 {
			// Nobody wants it dead: whoever took its events is. Another host goes on with it.
			_ = f.conn.Detach() // what it could not tell us matters to nobody
			return executor.Result{}, err
		}
		if err != nil && sinkErr == nil {
			sinkErr = err
			cancel()
		}
	}
}

// towards is sink for the frame that was taken last, or, when nothing but output follows it and the Result is here, one that
// lets it travel with that.
func (f *follower) towards(sink executor.Sink) executor.Sink {
	trailing, ok := sink.(executor.TrailingSink)
	if !ok {
		return sink
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.queue {
		switch r.t {
		case frameOutput:
		case frameExited:
			if i == len(f.queue)-1 {
				return trailer{trailing}
			}
		default:
			return sink
		}
	}
	return sink
}

// trailer emits what nothing follows but the Result.
type trailer struct{ executor.TrailingSink }

// Emit implements executor.Sink.
func (t trailer) Emit(e executor.Event) error { return t.Trail(e) }

func (f *follower) exited(raw []byte, sinkErr error) (executor.Result, error) {
	var res executor.Result
	if err := json.Unmarshal(raw, &res); err != nil {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "runner: result: %w", err)
	}
	res.Artifacts = f.artifacts
	f.mu.Lock()
	defer f.mu.Unlock()
	if sinkErr != nil {
		return res, sinkErr
	}
	if f.inputErr != nil {
		return res, f.inputErr
	}
	return res, nil
}

// deliver gives one frame to sink, or drops it after a sink's error.
func (f *follower) deliver(r received, sink executor.Sink, wanted bool) error {
	switch r.t {
	case frameOutput:
		o, err := parseOutput(r.data)
		if err != nil {
			return err
		}
		if wanted {
			err = f.emitOutput(o, sink)
		}
		return errors.Join(err, f.ack(o))
	case frameDisplay:
		var d executor.Display
		if err := json.Unmarshal(r.data, &d); err != nil {
			return fmt.Errorf("%w: display: %w", errFrame, err)
		}
		defer f.ackEvent()
		if wanted {
			return sink.Emit(executor.Event{Body: d})
		}
		return nil
	case frameStarted:
		var s startedFrame
		if err := json.Unmarshal(r.data, &s); err != nil {
			return fmt.Errorf("%w: started: %w", errFrame, err)
		}
		f.started, f.earlier = true, [2]int64{s.EarlierStdout, s.EarlierStderr}
		if wanted {
			return sink.Emit(executor.Event{Body: s.Started})
		}
		return nil
	case frameProgress:
		var p executor.Progress
		if err := json.Unmarshal(r.data, &p); err != nil {
			return fmt.Errorf("%w: progress: %w", errFrame, err)
		}
		if wanted {
			return sink.Emit(executor.Event{Body: p})
		}
		return nil
	case frameArtifact:
		return f.artifact(r.data, sink, wanted)
	default:
		return fmt.Errorf("%w: unexpected frame type %d", errFrame, r.t)
	}
}

// emitOutput marks what was written before the Execution began, which may end within o.
func (f *follower) emitOutput(o executor.Output, sink executor.Sink) error {
	i := 0
	if o.Stream == executor.Stderr {
		i = 1
	}
	if early := f.earlier[i] - o.Offset; early > 0 {
		first := o
		first.Earlier = true
		first.Data = o.Data[:min(early, int64(len(o.Data)))]
		if err := sink.Emit(executor.Event{Body: first}); err != nil {
			return err
		}
		o.Offset, o.Data = o.Offset+int64(len(first.Data)), o.Data[len(first.Data):]
		if len(o.Data) == 0 {
			return nil
		}
	}
	return sink.Emit(executor.Event{Body: o})
}
