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
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// cancelMargin is the time beyond Limits.KillGrace in which a runner has to answer a Cancel. Then the connection is cut, and
// the runner kills everything because of that.
const cancelMargin = 10 * time.Second

// collectMargin is added to it where the program was interrupted and its Artifacts are collected.
const collectMargin = time.Minute

var errSilent = errors.New("the runner is silent")

// RunInput is the input of an Execution. Run closes a reader that is an io.Closer as soon as it is not needed any more, and
// that Close must end a Read that blocks. A reader without Close may keep one goroutine until its Read returns.
type RunInput struct {
	// Workspace is a tar stream, or nil. It is read to its end before Stdin.
	Workspace io.Reader
	// Stdin is the program's standard input. It is empty if nil.
	Stdin io.Reader
}

// Run runs one Execution. It returns when the runner has answered, and then no process of the Execution is left. A second Run
// waits for the first. Run sets the fields Workspace and Stdin of start.
//
// The end of ctx stops the program as the contract says: SIGTERM, after Limits.KillGrace SIGKILL to all, and a Result with
// StatusKilled. An error from sink, or from a reader of in, does the same, and Run returns that error. Run calls sink in its
// own goroutine. The Result has no Image and no queue time. Codes: invalid (start is too long), unavailable (the runner is
// gone; ErrTaken if the program may have begun).
func (c *Conn) Run(ctx context.Context, start Start, in RunInput, sink executor.Sink) (executor.Result, error) {
	if !c.acquire(ctx) {
		closeInputs(in)
		return neverStarted(), nil
	}
	defer func() { c.turn <- struct{}{} }()
	if start.Tree != "" && start.Tree == c.kept {
		closeInputs(RunInput{Workspace: in.Workspace})
		in.Workspace = nil // the runner has it
	} else {
		c.kept = ""
	}
	start.Workspace = in.Workspace != nil
	start.Stdin = in.Stdin != nil
	f := newFollower(c)
	if err := c.begin(f); err != nil {
		closeInputs(in)
		return executor.Result{}, err
	}
	defer c.end()
	raw, err := json.Marshal(start)
	if err != nil || len(raw) > protocol.MaxStart {
		closeInputs(in)
		return executor.Result{}, executor.FieldErrorf(executor.Invalid, "code", "must be less than %d bytes, with all that comes with it", protocol.MaxStart)
	}
	if err := c.out.SendRaw(protocol.FrameStart, raw); err != nil {
		closeInputs(in)
		return executor.Result{}, executor.Errorf(executor.Unavailable, "runner: start: %w", err)
	}
	patience := start.Limits.KillGrace
	if start.Interrupt && (len(start.Outputs) > 0 || start.OutputsChanged) {
		patience += collectMargin
	}
	res, err := c.see(ctx, f, patience, in, sink)
	if f.isLost() && !f.started && f.start.mayHaveBegun(err) {
		err = executor.Errorf(executor.Unavailable, "runner: %w: %v", ErrTaken, c.Err())
	}
	if f.kept {
		c.kept = start.Tree
	}
	if f.started {
		res.PythonVersion, res.Requirements = start.PythonVersion, start.Requirements
	}
	return res, err
}

// see follows an Execution to its end, and sends in meanwhile.
func (c *Conn) see(ctx context.Context, f *follower, grace time.Duration, in RunInput, sink executor.Sink) (executor.Result, error) {
	// The end of ctx becomes a Cancel. The runner answers it as it answers any end.
	var cut *time.Timer
	var cutMu sync.Mutex
	cancel := sync.OnceFunc(func() {
		if !f.framed(protocol.FrameCancel, make([]byte, protocol.HeaderBytes)) {
			return // it has ended, or the connection has: that shows in the reader
		}
		cutMu.Lock()
		defer cutMu.Unlock()
		cut = time.AfterFunc(grace+cancelMargin, func() { c.cut(errors.New("the runner does not answer a cancel")) })
	})
	stop := context.AfterFunc(ctx, cancel)

	copied := make(chan struct{})
	if in.Workspace == nil {
		f.start.watch(func() { c.cut(errNoStart) })
	}
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
	f.start.end()
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
		// The caller wanted the program dead, and the end of the connection has killed it.
		return executor.Result{Status: executor.StatusKilled, CPU: -1}, nil
	}
	return res, err
}

func neverStarted() executor.Result {
	return executor.Result{Status: executor.StatusKilled}
}

// closeInputs closes the readers that can be closed. It reports whether those were all.
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

// follower is an Execution on the host's end: the queue between the reader of frames and Run.
type follower struct {
	conn      *Conn
	workspace *protocol.Credit
	stdin     *protocol.Credit
	start     startWatch

	sendMu  sync.Mutex
	stopped bool
	// release closes what send has opened: the workspace pipe, and the source of the Workspace. It is nil if nothing is open.
	release func()

	mu       sync.Mutex
	cond     *sync.Cond
	queue    []received
	held     int
	lostErr  error
	inputErr error

	// The following belong to the goroutine of Run.
	started   bool
	kept      bool     // the runner keeps the Workspace
	earlier   [2]int64 // how much of each stream was written before
	unacked   int64
	acked     protocol.Acknowledged
	artifacts []executor.Artifact
	followed  bool // Follow was called
}

func newFollower(c *Conn) *follower {
	f := &follower{conn: c, workspace: protocol.NewCredit(protocol.WorkspaceWindow), stdin: protocol.NewCredit(protocol.StdinWindow)}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// take handles one frame, in the goroutine of the reader.
func (f *follower) take(frames *protocol.Reader, t protocol.FrameType, n int) error {
	f.start.heard(t == protocol.FrameStarted || t == protocol.FrameExited)
	if t == protocol.FrameCredit {
		p, err := frames.Payload(n)
		if err != nil {
			return err
		}
		ch, add, err := protocol.ParseCredit(p)
		if err != nil {
			return err
		}
		switch ch {
		case protocol.ChannelWorkspace:
			f.workspace.Add(add)
		case protocol.ChannelStdin:
			f.stdin.Add(add)
		case protocol.ChannelArtifact:
			return fmt.Errorf("%w: the runner grants credit for artifacts", protocol.ErrFrame)
		}
		return nil
	}
	if t < protocol.FrameProgress {
		return fmt.Errorf("%w: the runner sent frame type %d", protocol.ErrFrame, t)
	}
	r := newReceived(t, n)
	if err := frames.Into(r.data); err != nil {
		return err
	}
	return f.put(r)
}

// lost ends the queue behind what is in it.
func (f *follower) lost(err error) {
	f.mu.Lock()
	f.lostErr = err
	f.cond.Broadcast()
	f.mu.Unlock()
	f.workspace.Stop(err)
	f.stdin.Stop(err)
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

// next waits for the next frame. Pieces of one stream that wait are one frame.
func (f *follower) next() (received, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && f.lostErr == nil {
		f.cond.Wait()
	}
	if len(f.queue) == 0 {
		return received{}, f.lostErr
	}
	return f.pop(), nil
}

// follow gives the frames to sink until Exited.
func (f *follower) follow(sink executor.Sink, cancel func()) (executor.Result, error) {
	var sinkErr error
	for {
		r, err := f.next()
		if err != nil {
			return executor.Result{}, err
		}
		if r.t == protocol.FrameExited {
			return f.exited(r.data, sinkErr)
		}
		err = f.hand(&r, sink, sinkErr == nil)
		if errors.Is(err, protocol.ErrFrame) || f.isLost() && err != nil {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "runner: %w", err)
		}
		if errors.Is(err, executor.ErrCallerGone) && f.conn.reply.Silence > 0 {
			// The receiver of the events is gone, which is no reason to kill the program. Another host goes on with it.
			_ = f.conn.Detach() // its error does not matter any more
			return executor.Result{}, err
		}
		if err != nil && sinkErr == nil {
			sinkErr = err
			cancel()
		}
	}
}

// hand gives the frame that was taken last to sink. Its buffer is used again if the sink is done with it.
func (f *follower) hand(r *received, sink executor.Sink, wanted bool) error {
	to := f.towards(sink)
	err := f.deliver(*r, to, wanted)
	if _, trails := to.(trailer); !trails && err == nil {
		r.release()
	}
	return err
}

// towards returns the sink for the frame that was taken last. If only output and the Result follow that frame, its Events travel
// with the Result.
func (f *follower) towards(sink executor.Sink) executor.Sink {
	trailing, ok := sink.(executor.TrailingSink)
	if !ok {
		return sink
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.queue {
		switch r.t {
		case protocol.FrameOutput:
		case protocol.FrameExited:
			if i == len(f.queue)-1 {
				return trailer{trailing}
			}
		default:
			return sink
		}
	}
	return sink
}

// trailer emits events that only the Result follows.
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
	if fail := res.Failure; fail != nil && fail.Code == executor.Internal && fail.Phase == executor.PhaseRun {
		return res, executor.Errorf(executor.Internal, "runner: %s", fail.Message)
	}
	return res, nil
}

// deliver gives one frame to sink, or drops it after an error of sink.
func (f *follower) deliver(r received, sink executor.Sink, wanted bool) error {
	switch r.t {
	case protocol.FrameOutput:
		o, err := protocol.ParseOutput(r.data)
		if err != nil {
			return err
		}
		if wanted {
			err = f.emitOutput(o, sink)
		}
		return errors.Join(err, f.ack(o))
	case protocol.FrameDisplay:
		var d executor.Display
		if err := json.Unmarshal(r.data, &d); err != nil {
			return fmt.Errorf("%w: display: %w", protocol.ErrFrame, err)
		}
		defer f.ackEvent()
		if wanted {
			return sink.Emit(executor.Event{Body: d})
		}
		return nil
	case protocol.FrameStarted:
		var s protocol.Started
		if err := json.Unmarshal(r.data, &s); err != nil {
			return fmt.Errorf("%w: started: %w", protocol.ErrFrame, err)
		}
		f.started, f.kept, f.earlier = true, s.Kept, [2]int64{s.EarlierStdout, s.EarlierStderr}
		if wanted {
			return sink.Emit(executor.Event{Body: s.Started})
		}
		return nil
	case protocol.FrameProgress:
		var p executor.Progress
		if err := json.Unmarshal(r.data, &p); err != nil {
			return fmt.Errorf("%w: progress: %w", protocol.ErrFrame, err)
		}
		if wanted {
			return sink.Emit(executor.Event{Body: p})
		}
		return nil
	case protocol.FrameArtifact:
		return f.artifact(r.data, sink, wanted)
	default:
		return fmt.Errorf("%w: unexpected frame type %d", protocol.ErrFrame, r.t)
	}
}

// emitOutput emits o, and marks the part of it that was written before the Execution began.
func (f *follower) emitOutput(o executor.Output, sink executor.Sink) error {
	if early := f.earlier[protocol.StreamIndex(o.Stream)] - o.Offset; early > 0 {
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

// ack tells the runner from time to time how far the output is in the log. The runner keeps the rest.
func (f *follower) ack(o executor.Output) error {
	f.acked.Streams[protocol.StreamIndex(o.Stream)] = o.Offset + int64(len(o.Data))
	f.unacked += int64(len(o.Data))
	if f.unacked < protocol.OutputWindow/4 {
		return nil
	}
	f.sendAck()
	return nil
}

// ackEvent tells the runner that one more event is in the log.
func (f *follower) ackEvent() {
	f.acked.Events++
	f.sendAck()
}

func (f *follower) sendAck() {
	f.unacked = 0
	_ = f.conn.out.Send(protocol.FrameAck, f.acked.Payload()...) // a broken connection shows in the reader
}
