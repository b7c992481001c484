package engine

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

// state is the state of a live Execution. The Engine's lock guards it.
type state int

const (
	// stateSpooling: its input is being spooled; it is not in the Store.
	stateSpooling state = iota
	// stateQueued: it waits for its turn, or pauses before another attempt. No goroutine works on it.
	stateQueued
	// stateActive: a goroutine runs it, or writes its end.
	stateActive
	// stateEnded: done is closed.
	stateEnded
)

// execution is an Execution that has not ended. Its Spec is in the Store, so an execution that waits takes little memory.
type execution struct {
	engine *Engine
	id     string
	owner  string
	// backend is the name of on. Both are fixed, except while it waits: then the Engine's lock guards them.
	backend string
	// on is nil if the backend is not configured any more.
	on *backend
	// anyBackend: its Spec names no backend.
	anyBackend bool
	durable    bool
	limits     executor.Limits
	created    time.Time
	// since is when this process took it in. Its wait counts from here, so that the time between two lives of the server does not
	// count.
	since time.Time

	// ctx is for the work. Its end, with a cause, tells the backend to stop. Cleaning up has contexts of its own.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed when Finished is in the log, or when this process leaves the Execution to the next one.
	done chan struct{}

	// place, state and clock are guarded by the Engine's lock. clock ends a wait.
	place *place
	state state
	clock *time.Timer
	// session is the Session that it runs in, and turn its claim there; both may be nil.
	session *sessions.Session
	turn    *sessions.Turn

	// The rest belongs to the one goroutine that works on it.

	// direct is the streamed input of a run that started at once. If it is nil, the input is in Blobs, if any, unless it is lasting.
	direct *streamed
	// lasting: workspace and stdin are the caller's, who keeps them until the Execution has ended.
	lasting          bool
	workspace, stdin *executor.Source
	// fresh is the Record of a direct run, which saves the first attempt a read of the Store.
	fresh    *executor.Record
	attempts int
	retries  int
	// asked counts how often it has asked for its backend in vain since its last attempt.
	asked int
	// collects: it has outputs to collect, which takes time after its program has ended.
	collects bool
	// about is what a hint about its end needs to know.
	about surroundings
	// spooled: it has input in Blobs.
	spooled bool
	// adopted: an earlier life of the server may have started it.
	adopted bool
	// accepting: its caller's Accepted is running.
	accepting bool
	// granted is when its last attempt got its slot.
	granted time.Time
}

// newExecution returns an execution that has joined its backend, which it leaves when it ends.
func (e *Engine) newExecution(rec executor.Record, limits executor.Limits, on *backend) *execution {
	on.Join()
	x := &execution{
		engine: e, id: rec.ID, owner: rec.Owner, backend: rec.Backend, on: on, limits: limits, durable: rec.Spec.Durable,
		created: rec.CreatedAt, since: time.Now(),
		attempts: rec.Attempts, spooled: rec.WorkspaceBlob != "" || rec.StdinBlob != "",
		done: make(chan struct{}),
	}
	ctx := executor.WithPrincipal(e.base, executor.Principal{Owner: rec.Owner})
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	return x
}

// stop tells x to end. An execution that waits ends at once; one that runs ends when its backend has stopped it. Of several causes the
// first one counts.
func (x *execution) stop(cause error) {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	x.stopLocked(cause)
}

// stopLocked is stop for a caller that holds the lock.
func (x *execution) stopLocked(cause error) {
	x.cancel(cause)
	if x.state != stateQueued {
		return
	}
	x.clock.Stop()
	x.engine.queue.release(x.place)
	x.finishLocked()
	x.engine.proceedLocked(x.turn.Leave(), false)
}

// finishLocked has a task write the end of x, which has not started. The caller holds the lock.
func (x *execution) finishLocked() {
	x.state = stateActive
	if !x.engine.spawnLocked(func() { x.engine.finish(x, x.unstarted()) }) {
		x.endLocked()
	}
}

// enqueue lets x wait for its turn; first: at the front of its owner's line.
func (x *execution) enqueue(first bool) {
	e := x.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != serving {
		if x.durable && (x.ctx.Err() == nil || errors.Is(context.Cause(x.ctx), errShutdown)) {
			x.endLocked() // x stays queued for the next Start
			return
		}
		x.cancel(errShutdown)
	}
	if x.ctx.Err() != nil {
		x.finishLocked()
		return
	}
	x.state = stateQueued
	left := e.deadlines.Queue - time.Since(x.since)
	x.clock = time.AfterFunc(max(left, 0), func() { x.stop(errQueueDeadline) })
	if x.turn != nil {
		e.proceedLocked(x.turn.Wait(), first)
		return
	}
	e.queue.wait(x.place, first)
	e.dispatch()
}

// tell calls the caller's Accepted, if there is one.
func (x *execution) tell(in executor.Input, as executor.Execution) {
	if in.Accepted == nil {
		return
	}
	x.accepting = true
	in.Accepted(visible(as))
	x.accepting = false
}

// dispatch starts the executions that can start. The caller holds the lock.
func (e *Engine) dispatch() {
	for e.phase == serving {
		p := e.queue.next()
		if p == nil {
			if !e.following && len(e.queue.crowded()) > 0 {
				e.following = e.spawnLocked(e.followCapacity)
			}
			return
		}
		x := p.execution
		x.clock.Stop()
		x.state = stateActive
		x.turn.SetRunning(true)
		if !e.spawnLocked(func() { e.run(x) }) {
			e.queue.release(p)
		}
	}
}

// endLocked takes x out of the Engine. The caller holds the lock.
func (x *execution) endLocked() {
	if x.state == stateEnded {
		return
	}
	e := x.engine
	if x.place != nil {
		e.queue.release(x.place)
	}
	x.state = stateEnded
	delete(e.live, x.id)
	close(x.done)
	x.cancel(nil)
	x.on.Leave()
	e.proceedLocked(x.turn.Leave(), false)
	e.dispatch()
}

func (x *execution) end() {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	x.endLocked()
}
