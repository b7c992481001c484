package engine

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// state is where a live Execution stands. The Engine's lock guards it.
type state int

const (
	// stateSpooling: its input is on its way to Blobs; the Store does not know it yet.
	stateSpooling state = iota
	// stateQueued: it waits for its turn, or pauses before another attempt; no goroutine is busy with it.
	stateQueued
	// stateActive: a goroutine runs it, or writes its end.
	stateActive
	// stateEnded: done is closed.
	stateEnded
)

// execution is an Execution that has not ended. What it was asked to do is in the Store; while it waits it is small.
type execution struct {
	engine  *Engine
	id      string
	owner   string
	backend string
	durable bool
	limits  executor.Limits
	created time.Time
	// since is when this process took it in; its wait is measured from here, so that a server that was away for long
	// does not lose what it had accepted.
	since time.Time

	// ctx is the work's: its end, with a cause, tells the backend to stop. Cleaning up has contexts of its own.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed when Finished is in the log, or when this process has nothing more to do with it.
	done chan struct{}

	// place, state and clock are guarded by the Engine's lock. clock ends a wait.
	place *place
	state state
	clock *time.Timer
	// session is the one it runs in, nil: none; turn its claim there.
	session *session
	turn    *turn

	// The rest belongs to the one goroutine that is busy with it.

	// direct is the streamed input of a run that started at once; nil: what input there is lies in Blobs.
	direct           *streamed
	workspace, stdin *executor.Source
	// fresh saves the first attempt of a direct run the way to the Store.
	fresh    *executor.Record
	attempts int
	retries  int
	// collects: it has outputs, which take time after its program has ended.
	collects bool
	// spooled: it has input in Blobs.
	spooled bool
	// adopted: an earlier life of the server may have started it.
	adopted bool
	// opened: Queued is in the log.
	opened bool
	// accepting: its caller's Accepted is running.
	accepting bool
	// granted is when its last attempt got its slot.
	granted time.Time
}

func (e *Engine) newExecution(rec executor.Record, limits executor.Limits) *execution {
	x := &execution{
		engine: e, id: rec.ID, owner: rec.Owner, backend: rec.Backend, limits: limits, durable: rec.Spec.Durable,
		created: rec.CreatedAt, since: time.Now(),
		attempts: rec.Attempts, opened: rec.LastSeq > 0, spooled: rec.WorkspaceBlob != "" || rec.StdinBlob != "",
		done: make(chan struct{}),
	}
	ctx := executor.WithPrincipal(e.base, executor.Principal{Owner: rec.Owner})
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	return x
}

// stop tells x to end. One that waits ends here and now; one that runs when its backend has stopped it. The first cause
// counts.
func (x *execution) stop(cause error) {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	x.stopLocked(cause)
}

// stopLocked is stop for a caller who holds the lock.
func (x *execution) stopLocked(cause error) {
	x.cancel(cause)
	if x.state != stateQueued {
		return
	}
	x.clock.Stop()
	x.engine.queue.release(x.place)
	x.finishLocked()
	x.turn.leaveLocked()
}

// finishLocked has a task write the end of x, which did not start. The caller holds the lock.
func (x *execution) finishLocked() {
	x.state = stateActive
	if !x.engine.spawnLocked(func() { x.engine.finish(x, x.unstarted()) }) {
		x.endLocked()
	}
}

// enqueue lets x wait for its turn, at the front of its owner's line if it had one before.
func (x *execution) enqueue(first bool) {
	e := x.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != serving {
		if x.durable && (x.ctx.Err() == nil || errors.Is(context.Cause(x.ctx), errShutdown)) {
			x.endLocked() // it stays queued for the next Start
			return
		}
		x.cancel(errShutdown)
	}
	if x.ctx.Err() != nil {
		// It was told to end before it could wait.
		x.finishLocked()
		return
	}
	x.state = stateQueued
	left := e.deadlines.Queue - time.Since(x.since)
	x.clock = time.AfterFunc(max(left, 0), func() { x.stop(errQueueDeadline) })
	if x.turn != nil {
		x.turn.waitLocked(first)
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

// dispatch starts what can start. The caller holds the lock.
func (e *Engine) dispatch() {
	for e.phase == serving {
		p := e.queue.next()
		if p == nil {
			return
		}
		x := p.execution
		x.clock.Stop()
		x.state = stateActive
		if !e.spawnLocked(func() { e.run(x) }) {
			e.queue.release(p)
		}
	}
}

// endLocked forgets x. The caller holds the lock.
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
	x.turn.leaveLocked()
	e.dispatch()
}

func (x *execution) end() {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	x.endLocked()
}
