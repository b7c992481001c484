package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// lastTries is how often a stopping Engine still tries to write an end into a Store that does not take it.
const lastTries = 3

// finish writes the end of x, once, and lets go of everything it held. Its slot, and its turn in its Session, are free
// before the log is closed, so that who waits for the end finds them free. Where Results outlive us, the next one in the
// Session begins only when the log is closed: until then the backend has this one's Result, for the next life of the server.
func (e *Engine) finish(x *execution, r executor.Result) {
	defer x.end()
	e.ranInSession(x, r)
	keeps := false
	if b := e.backends[x.backend]; b != nil {
		keeps = b.keeps()
	}
	e.mu.Lock()
	e.queue.release(x.place)
	x.turn.overLocked(keeps)
	if !x.granted.IsZero() {
		e.learn(time.Since(x.granted))
	}
	e.dispatch()
	e.mu.Unlock()
	events := []executor.Event{{Body: executor.Finished{Result: r}}}
	if !x.opened {
		events = append([]executor.Event{{Body: executor.Queued{}}}, events...)
	}
	if !e.close(x, events) {
		return
	}
	runtime.Gosched() // who waits for the end goes first, the rest is bookkeeping
	e.metrics.finished(x.backend, r)
	facts := []any{"execution", x.id, "status", r.Status, "backend", x.backend, "attempts", x.attempts}
	if x.session != nil {
		facts = append(facts, "session", x.session.id, "language", x.session.rec.Language)
	}
	e.log.Info("execution finished", facts...)
	if e.backends[x.backend] != nil && !x.granted.IsZero() && (keeps || r.Status == executor.StatusLost) {
		// Where a program can outlive its plugin, what it left, and its Result, is kept for Attach until now; of a lost one
		// nobody knows.
		e.spawn(func() { e.clean(x) })
	}
	if x.spooled {
		e.dropBlobs(x.id, blobWorkspace, blobStdin)
	}
	e.retention.ended(x.id)
}

// close appends the last events. A Store that is away for a moment is tried again; one that is broken is tried until the
// Engine stops, and the next Start finds what was not closed.
func (e *Engine) close(x *execution, events []executor.Event) bool {
	wait := 100 * time.Millisecond
	for try, last := 1, 0; ; try++ {
		err := e.appendFinal(x, events)
		switch executor.CodeOf(err) {
		case "":
			return true
		case executor.NotFound, executor.Purged, executor.Conflict, executor.Invalid:
			e.log.Error("the end of an execution was refused", "execution", x.id, "error", err)
			return false
		}
		if e.accepting() != nil {
			last++
		}
		if last >= lastTries {
			e.log.Error("the end of an execution was not written", "execution", x.id, "error", err)
			return false
		}
		if try == 1 {
			e.log.Error("the end of an execution cannot be written yet", "execution", x.id, "error", err)
		}
		e.sleep(wait)
		wait = min(2*wait, 10*time.Second)
	}
}

func (e *Engine) appendFinal(x *execution, events []executor.Event) error {
	ctx, cancel := storeContext(x.ctx)
	defer cancel()
	return e.store.Append(ctx, x.id, events...)
}

// sleep waits for d, or briefly if the Engine is stopping.
func (e *Engine) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.stopping:
		timer.Reset(min(d, 100*time.Millisecond))
		<-timer.C
	}
}

// learn keeps the average time that a slot is held. The caller holds the lock.
func (e *Engine) learn(held time.Duration) {
	if e.average == 0 {
		e.average = held
		return
	}
	e.average += (held - e.average) / 16
}

// create makes x in the Store. existing is the Execution that has its idempotency key, if there is one.
func (e *Engine) create(ctx context.Context, rec executor.Record) (existing *executor.Record, err error) {
	ctx, cancel := storeContext(ctx)
	defer cancel()
	found, created, err := e.store.Create(ctx, rec)
	if err != nil {
		return nil, e.internal("create an execution", err)
	}
	if !created {
		return &found, nil
	}
	return nil, nil
}

// open writes the first event of x's log.
func (e *Engine) open(x *execution, position int) error {
	ctx, cancel := storeContext(x.ctx)
	defer cancel()
	if err := e.store.Append(ctx, x.id, executor.Event{Body: executor.Queued{Position: position}}); err != nil {
		return err
	}
	x.opened = true
	return nil
}
