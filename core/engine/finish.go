package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// lastTries is how often an Engine that is stopping tries to write the end of an Execution into a Store that fails.
const lastTries = 3

// finish writes the end of x, once, and gives back everything that x held. Its slot and its turn in its Session are free before the log is
// closed, so that a caller that waits for the end finds them free. Where Results outlive this process, the next Execution in the Session
// begins only when the log is closed: until then the backend holds the Result, for the next life of the server.
func (e *Engine) finish(x *execution, r executor.Result) {
	defer x.end()
	if x.session != nil && !x.granted.IsZero() {
		x.session.Ran(r)
	}
	keeps := x.on.Keeps()
	e.mu.Lock()
	e.queue.release(x.place)
	e.proceedLocked(x.turn.Finish(keeps), false)
	if !x.granted.IsZero() {
		e.learn(time.Since(x.granted))
	}
	e.dispatch()
	e.mu.Unlock()
	if !e.close(x, executor.Event{Body: executor.Finished{Result: r}}) {
		return
	}
	runtime.Gosched() // lets the callers that wait for the end go first
	e.metrics.finished(x.backend, r)
	facts := []any{"execution", x.id, "status", r.Status, "backend", x.backend, "attempts", x.attempts}
	if x.session != nil {
		facts = append(facts, "session", x.session.ID, "language", x.session.Language)
	}
	e.log.Info("execution finished", facts...)
	if x.on != nil && !x.granted.IsZero() && (keeps || r.Status == executor.StatusLost) {
		// Where programs outlive their plugin, the backend keeps the Result and what the program left until it is removed. A
		// lost program may be anywhere.
		x.on.Join()
		clean := func() {
			defer x.on.Leave()
			e.clean(x)
		}
		if !e.spawn(clean) {
			x.on.Leave()
		}
	}
	if x.spooled {
		e.dropInput(x.id)
	}
	e.retention.ended(x.id)
}

// close appends end to x's log, and reports whether it is in there. It tries again until the Engine stops. The next Start
// takes over an Execution whose log was not closed.
func (e *Engine) close(x *execution, end executor.Event) bool {
	wait := 100 * time.Millisecond
	for try, last := 1, 0; ; try++ {
		err := e.appendFinal(x, end)
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

func (e *Engine) appendFinal(x *execution, end executor.Event) error {
	ctx, cancel := calls.StoreContext(x.ctx)
	defer cancel()
	return e.store.Append(ctx, x.id, end)
}

// sleep waits for d, or for at most 100 ms if the Engine is stopping.
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

// learn updates the average time that a slot is held. The caller holds the lock.
func (e *Engine) learn(held time.Duration) {
	if e.average == 0 {
		e.average = held
		return
	}
	e.average += (held - e.average) / 16
}

// create adds rec to the Store, with the first event of its log. existing is the Record that has its idempotency key, if
// there is one.
func (e *Engine) create(ctx context.Context, rec executor.Record, position int) (existing *executor.Record, err error) {
	ctx, cancel := calls.StoreContext(ctx)
	defer cancel()
	found, created, err := e.store.Create(ctx, rec, executor.Event{Body: executor.Queued{Position: position}})
	if err != nil {
		return nil, e.internal("create an execution", err)
	}
	if !created {
		return &found, nil
	}
	return nil, nil
}
