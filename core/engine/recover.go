package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// survey is what a Store holds at Start.
type survey struct {
	// unfinished are by age. Their Specs are in brief: each is read whole when its turn comes.
	unfinished []executor.Record
	finished   []kept
	// late have just ended, on a backend that holds them until they are removed.
	late []executor.Record
}

// survey reads all heads of the Store, page by page.
func (e *Engine) survey(ctx context.Context) (survey, error) {
	var s survey
	f := executor.Filter{Limit: maxPage}
	for {
		page, err := e.store.List(ctx, f)
		if err != nil {
			return survey{}, e.internal("read the store", err)
		}
		if len(page) == 0 {
			break
		}
		for _, rec := range page {
			if rec.Status.Terminal() {
				s.finished = append(s.finished, keptOf(rec))
				if rec.Started != nil && len(rec.Started.Handle) > 0 && time.Since(rec.FinishedAt) < e.deadlines.Reattach {
					s.late = append(s.late, rec)
				}
				continue
			}
			s.unfinished = append(s.unfinished, rec)
		}
		f.After = page[len(page)-1].ID
	}
	slices.SortFunc(s.unfinished, func(a, b executor.Record) int { return strings.Compare(a.ID, b.ID) })
	return s, nil
}

// recover takes over what an earlier life of the server left unfinished, the oldest first:
//
//   - queued and durable: it is queued again, in the same order; one that may have been started says so by its Attempts;
//   - queued otherwise: its caller went with the old process, it is lost;
//   - queued in a Session that is there no more, or lost: it is lost, too;
//   - running: its backend is asked to Attach where it can; else it is removed there, and lost.
//
// What had been cancelled is killed instead.
func (e *Engine) recover(unfinished []executor.Record) {
	for _, rec := range unfinished {
		var nothing problems
		x := e.newExecution(rec, e.resolveLimits(rec.Spec.Limits, &nothing))
		x.adopted = true
		reason, sessionOpen := e.recoverTurn(x, rec)
		if rec.Cancelled {
			x.cancel(errCancelled)
		}
		e.mu.Lock()
		x.place = e.queue.adopt(x.owner, x.backend)
		x.place.execution = x
		x.state = stateActive
		e.live[x.id] = x
		e.mu.Unlock()
		switch {
		case rec.Status == executor.StatusRunning:
			e.spawn(func() { e.reclaim(x, rec) })
		case rec.Cancelled:
			e.spawn(func() { e.finish(x, x.unstarted()) })
		case !rec.Spec.Durable:
			e.spawn(func() {
				e.finish(x, failed(executor.StatusLost, executor.Unavailable, executor.PhaseQueue, "the server stopped while it waited"))
			})
		case !sessionOpen:
			e.spawn(func() {
				e.finish(x, failed(executor.StatusLost, executor.Unavailable, executor.PhaseQueue, reason))
			})
		case rec.Attempts >= maxAttempts:
			e.spawn(func() {
				e.finish(x, failed(executor.StatusLost, executor.Unavailable, executor.PhasePrepare, "the server stopped each time it was started"))
			})
		default:
			e.requeue(x)
		}
	}
}

// removeLate tells backends to let go of what has ended shortly before this life: the one before may have died in between.
// What ended earlier they have let go of by themselves.
func (e *Engine) removeLate(late []executor.Record) {
	for _, rec := range late {
		if e.backends[rec.Backend] == nil {
			continue
		}
		x := e.newExecution(rec, executor.Limits{})
		if _, err := e.awaitBackend(x, rec); err == nil {
			e.remove(x)
		}
		x.cancel(nil)
		if e.accepting() != nil {
			return
		}
	}
}

// requeue lets a recovered Execution wait for its turn.
func (e *Engine) requeue(x *execution) {
	if !x.opened {
		if err := e.open(x, 0); err != nil {
			_ = e.stillborn(x, err)
			return
		}
	}
	x.enqueue(false)
}

// reclaim ends, or follows to its end, an Execution whose program ran when the old process died.
func (e *Engine) reclaim(x *execution, rec executor.Record) {
	result := failed(executor.StatusLost, executor.Unavailable, executor.PhaseRun, "the server stopped while it ran")
	b := e.backends[x.backend]
	if b == nil {
		e.finish(x, result)
		return
	}
	info, err := e.awaitBackend(x, rec)
	if err == nil && x.session != nil {
		err = e.checkSandbox(x.ctx, x.session)
	}
	if err == nil && info.Capabilities.Attach && rec.Started != nil && len(rec.Started.Handle) > 0 {
		out, ok := e.attach(x, rec)
		switch {
		case ok && out.left:
			x.end()
			return
		case ok:
			e.finish(x, out.result)
			return
		}
	}
	if errors.Is(context.Cause(x.ctx), executor.ErrCallerGone) {
		x.end() // the next Start looks for it
		return
	}
	e.remove(x)
	if x.ctx.Err() != nil {
		result = x.unstarted()
	}
	result.StdoutBytes, result.StderrBytes = rec.StdoutBytes, rec.StderrBytes
	if rec.Started != nil {
		result.PythonVersion, result.Requirements = rec.Started.PythonVersion, rec.Started.Requirements
	}
	e.finish(x, result)
}

// awaitBackend gives the backend of a recovered Execution some time to come up: as much as after the death of its plugin
// where the program may run on, and is wanted.
func (e *Engine) awaitBackend(x *execution, rec executor.Record) (executor.Info, error) {
	for began := time.Now(); ; {
		patience := e.deadlines.Stop
		if rec.Started != nil && len(rec.Started.Handle) > 0 && x.ctx.Err() == nil {
			patience = e.deadlines.Reattach
		}
		info, err := e.info(e.base, x.backend)
		if err == nil || time.Since(began) > patience || e.accepting() != nil {
			return info, err
		}
		e.sleep(time.Second)
	}
}

// attach follows a program that outlived its core. ok is false if the backend has it no more.
func (e *Engine) attach(x *execution, rec executor.Record) (out outcome, ok bool) {
	ctx, cancel := storeContext(x.ctx)
	spec, err := e.store.Spec(ctx, x.id)
	cancel()
	if err != nil {
		return outcome{result: e.failedJob(err)}, true
	}
	x.collects = collects(spec)
	e.mu.Lock()
	e.queue.take(x.place)
	e.mu.Unlock()
	x.granted = rec.StartedAt // the nearest that is known of it
	s := e.newSink(x, rec)
	s.handle = rec.Started.Handle
	s.resumed(rec.StartedAt)
	job := executor.Job{ID: x.id, Owner: x.owner, Attempt: max(1, x.attempts), Spec: spec, Limits: x.limits}
	v, ok := e.attachTo(x, s, job)
	if !ok {
		s.abandon(v.err)
		return outcome{}, false
	}
	s, v = e.accompany(x, s, v, job)
	if s.failure() == nil && e.leftRunning(x, v) {
		s.abandon(errShutdown)
		return outcome{left: true}, true
	}
	return outcome{result: e.conclude(x, s, v)}, true
}

// recoverTurn gives a recovered Execution its claim on its Session: the turn itself to the one that ran. ok is false, and
// the reason given, if it can run there no more.
func (e *Engine) recoverTurn(x *execution, rec executor.Record) (reason string, ok bool) {
	if rec.Spec.Session == "" {
		return "", true
	}
	s, reason, ok := e.recoverInSession(rec)
	if s == nil {
		return reason, ok
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x.limits = limitsInSession(s.rec.Session, rec.Spec.Limits, x.limits)
	x.session, x.turn = s, &turn{session: s, x: x}
	s.line = append(s.line, x.turn)
	if rec.Status == executor.StatusRunning && s.current == nil {
		x.turn.takeLocked()
	}
	return reason, ok
}
