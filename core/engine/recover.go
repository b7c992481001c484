package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// survey is the content of a Store at Start.
type survey struct {
	// unfinished are in the order of their age, with their Specs in brief.
	unfinished []executor.Record
	finished   []finished
	// late have ended a short time ago, on a backend that holds them until they are removed.
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
				s.finished = append(s.finished, finishedOf(rec))
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

// recover takes over the Executions that an earlier life of the server left unfinished, the oldest first:
//
//   - queued and Durable: it is queued again, in the same order;
//   - queued and not Durable: it is lost, because its caller went with the old process;
//   - queued in a Session that is lost or gone: it is lost, too;
//   - running: the Engine attaches to it where its backend can; else it is removed there, and lost.
//
// An Execution that had been cancelled is killed.
func (e *Engine) recover(unfinished []executor.Record) {
	for _, rec := range unfinished {
		var nothing executor.Problems
		x := e.adoptExecution(rec, e.resolveLimits(rec.Spec.Limits, &nothing))
		x.adopted = true
		reason := e.rejoin(x, rec)
		if rec.Cancelled {
			x.cancel(errCancelled)
		}
		e.mu.Lock()
		x.place = e.queue.adopt(x.owner, x.on.keyOr(x.backend))
		x.place.execution = x
		x.state = stateActive
		e.live[x.id] = x
		e.mu.Unlock()
		lost := func(phase executor.Phase, reason string) {
			e.spawn(func() { e.finish(x, failed(executor.StatusLost, executor.Unavailable, phase, reason)) })
		}
		switch {
		case rec.Status == executor.StatusRunning:
			e.spawn(func() { e.reclaim(x, rec) })
		case rec.Cancelled:
			e.spawn(func() { e.finish(x, x.unstarted()) })
		case !rec.Spec.Durable:
			lost(executor.PhaseQueue, "the server stopped while it waited")
		case reason != "":
			lost(executor.PhaseQueue, reason)
		case rec.Attempts >= maxAttempts:
			lost(executor.PhasePrepare, "the server stopped each time it was started")
		default:
			x.enqueue(false)
		}
	}
}

// removeLate removes from their backends the Executions that ended shortly before this life of the server: the earlier life may have died
// before it could. What ended before that, the backends have removed by themselves.
func (e *Engine) removeLate(late []executor.Record) {
	for _, rec := range late {
		x := e.adoptExecution(rec, executor.Limits{})
		if x.on == nil {
			continue
		}
		if _, err := e.awaitBackend(x, rec); err == nil {
			_ = e.remove(x) // it is logged
		}
		x.cancel(nil)
		x.on.Leave()
		if e.accepting() != nil {
			return
		}
	}
}

// reclaim follows to its end, or ends, an Execution whose program ran when the old process died.
func (e *Engine) reclaim(x *execution, rec executor.Record) {
	result := failed(executor.StatusLost, executor.Unavailable, executor.PhaseRun, "the server stopped while it ran")
	if x.on == nil {
		e.finish(x, result)
		return
	}
	info, err := e.awaitBackend(x, rec)
	if err == nil && x.session != nil {
		err = x.session.Check(x.ctx)
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
	stopping := err != nil && x.ctx.Err() == nil && e.accepting() != nil && errors.Is(e.endCause(x), executor.ErrCallerGone)
	if stopping || errors.Is(context.Cause(x.ctx), executor.ErrCallerGone) {
		x.end() // the next Start takes it over
		return
	}
	_ = e.remove(x) // it is logged
	if x.ctx.Err() != nil {
		result = x.unstarted()
	}
	result.StdoutBytes, result.StderrBytes = rec.StdoutBytes, rec.StderrBytes
	if rec.Started != nil {
		result.PythonVersion, result.Requirements = rec.Started.PythonVersion, rec.Started.Requirements
	}
	e.finish(x, result)
}

// awaitBackend waits for the backend of a recovered Execution to come up: for Deadlines.Reattach where the program may run on and was not
// cancelled, else for Deadlines.Stop.
func (e *Engine) awaitBackend(x *execution, rec executor.Record) (executor.Info, error) {
	for began := time.Now(); ; {
		patience := e.deadlines.Stop
		if rec.Started != nil && len(rec.Started.Handle) > 0 && x.ctx.Err() == nil {
			patience = e.deadlines.Reattach
		}
		info, err := e.info(e.base, x.on)
		if err == nil || time.Since(began) > patience || e.accepting() != nil {
			return info, err
		}
		e.sleep(time.Second)
	}
}

// attach follows a program that outlived the old process. It reports false if the backend does not have it any more.
func (e *Engine) attach(x *execution, rec executor.Record) (out outcome, ok bool) {
	ctx, cancel := calls.StoreContext(x.ctx)
	spec, err := e.store.Spec(ctx, x.id)
	cancel()
	if err != nil {
		return outcome{result: e.failedJob(err)}, true
	}
	x.collects = collects(spec)
	e.mu.Lock()
	e.queue.take(x.place)
	e.mu.Unlock()
	x.granted = rec.StartedAt // when its slot was granted is not known
	s := e.newSink(x, rec)
	s.handle = rec.Started.Handle
	s.resumed(rec.StartedAt)
	job := executor.Job{ID: x.id, Owner: x.owner, Attempt: max(1, x.attempts), Spec: spec, Limits: x.limits, ArtifactBytes: e.artifactBytes(x.limits)}
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

// adoptExecution is newExecution for an Execution of an earlier life of the server. Its backend is the one that is configured under the
// name now, if any.
func (e *Engine) adoptExecution(rec executor.Record, limits executor.Limits) *execution {
	b, leave := e.backend(rec.Backend)
	defer leave()
	x := e.newExecution(rec, limits, b)
	x.anyBackend = rec.Spec.Backend == ""
	return x
}

// rejoin gives a recovered Execution its Turn in its Session. A reason says why it cannot run there any more.
func (e *Engine) rejoin(x *execution, rec executor.Record) (reason string) {
	if rec.Spec.Session == "" {
		return ""
	}
	x.session, x.turn, reason = e.sessions.Rejoin(rec.Spec.Session, x, rec.Status == executor.StatusRunning)
	if x.session != nil {
		x.limits = e.limitsInSession(x.session.Limits, rec.Spec.Limits, x.limits)
	}
	return reason
}
