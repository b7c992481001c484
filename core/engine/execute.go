package engine

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// maxAttempts bounds how often an Execution is handed to a backend that was away each time.
const maxAttempts = 6

// verdict is the outcome of one call of Run or Attach.
type verdict struct {
	result executor.Result
	err    error
	// abandoned: the backend did not return. result and err are then empty.
	abandoned bool
	// broken is how the backend broke the contract; nil if it did not.
	broken error
	began  time.Time
	ended  time.Time
}

// run makes one attempt at x, which holds a slot. Then it ends x or lets it wait for another attempt.
func (e *Engine) run(x *execution) {
	// A panic in an attempt is an error.
	out, err := calls.Guard(func() (outcome, error) { return e.attempt(x), nil })
	switch {
	case err != nil:
		e.log.Error("internal error", "execution", x.id, "error", err)
		e.finish(x, failed(executor.StatusLost, executor.Internal, executor.PhaseNone, "internal error"))
	case out.left:
		x.end()
	case out.again:
		e.pause(x)
	default:
		e.finish(x, out.result)
	}
}

// outcome is the outcome of an attempt: a result, another attempt (again), or an attempt of the next life of the server (left).
type outcome struct {
	result      executor.Result
	again, left bool
}

func (e *Engine) attempt(x *execution) outcome {
	x.granted = time.Now()
	if x.adopted && x.attempts > 0 && x.on != nil {
		// An earlier life of the server may have left something of it, which would be in the way.
		if err := e.remove(x); err != nil && x.ctx.Err() == nil {
			err = executor.Errorf(executor.Unavailable, "remove the rest of an earlier attempt: %w", err)
			if e.again(x, verdict{err: err}) {
				x.on.forget()
				return outcome{again: true}
			}
			return outcome{result: e.failedJob(err)}
		}
	}
	rec, job, err := e.prepareJob(x)
	if err != nil {
		if x.ctx.Err() != nil {
			return outcome{result: x.unstarted()}
		}
		return outcome{result: e.failedJob(err)}
	}
	if x.ctx.Err() != nil {
		return outcome{result: x.unstarted()}
	}
	s, v := e.deliver(x, rec, job)
	switch {
	case s.failure() == nil && e.leftRunning(x, v):
		s.abandon(errShutdown)
		return outcome{left: true}
	case s.failure() == nil && e.again(x, v):
		x.on.forget()
		return outcome{again: true}
	}
	return outcome{result: e.conclude(x, s, v)}
}

// prepareJob counts the attempt and makes the Job for the backend.
func (e *Engine) prepareJob(x *execution) (executor.Record, executor.Job, error) {
	ctx, cancel := calls.StoreContext(x.ctx)
	defer cancel()
	rec, spec, err := x.record(ctx)
	if err != nil {
		return rec, executor.Job{}, err
	}
	x.collects = collects(spec)
	if x.on == nil {
		return rec, executor.Job{}, executor.Errorf(executor.Unavailable, "backend %s is not configured any more", x.backend)
	}
	x.attempts++
	if rec.Attempts != x.attempts {
		// Before the run, so that Attempts never says less than the number of runs.
		rec, err = e.store.Update(ctx, x.id, func(r *executor.Record) { r.Attempts, r.Backend = x.attempts, x.backend })
		if err != nil {
			return rec, executor.Job{}, err
		}
	}
	job := executor.Job{
		ID: x.id, Owner: x.owner, Attempt: x.attempts, Spec: spec, Limits: x.limits, ArtifactBytes: e.artifactBytes(x.limits),
		Workspace: x.workspace, Stdin: x.stdin,
	}
	if x.direct != nil || x.lasting {
		return rec, job, nil
	}
	if job.Workspace, err = e.fromBlob(ctx, rec.WorkspaceBlob); err == nil {
		job.Stdin, err = e.fromBlob(ctx, rec.StdinBlob)
	}
	if executor.CodeOf(err) == executor.NotFound {
		err = executor.Errorf(executor.Unavailable, "the input of the execution is gone")
	}
	return rec, job, err
}

// record returns the Record of x and its whole Spec.
func (x *execution) record(ctx context.Context) (executor.Record, executor.Spec, error) {
	if rec := x.fresh; rec != nil {
		x.fresh = nil
		return *rec, rec.Spec, nil
	}
	rec, err := x.engine.store.Get(ctx, x.id)
	if err != nil {
		return rec, executor.Spec{}, err
	}
	spec, err := x.engine.store.Spec(ctx, x.id)
	return rec, spec, err
}

// collects reports whether s asks for outputs.
func collects(s executor.Spec) bool { return len(s.Outputs) > 0 || s.OutputsChanged }

// failedJob is the Result of an Execution that could not be handed to its backend.
func (e *Engine) failedJob(err error) executor.Result {
	err = e.internal("prepare a job", err)
	return failed(executor.StatusLost, executor.CodeOf(err), executor.PhaseQueue, err.Error())
}

// watch calls run, which is a call of Run or Attach, and makes sure that it ends. When a deadline passes or x is stopped, watch tells the
// backend to stop. If the backend does not return in time after that, watch gives the call up.
func (e *Engine) watch(x *execution, s *sink, run func() (executor.Result, error)) verdict {
	e.metrics.began(x.backend)
	defer e.metrics.ended(x.backend)
	answers, returned := calls.Go(run)
	allowance := e.deadlines.Prepare
	var held time.Duration // how long the log had blocked the backend when the clock was set
	set := time.Now()
	clock := time.NewTimer(allowance)
	defer clock.Stop()
	cause := errPrepareDeadline
	began, stopped := s.began, x.ctx.Done()
	var giveUp <-chan time.Time
	for {
		select {
		case got := <-answers:
			return verdict{result: got.Value, err: got.Err, broken: s.brokenLaw(), began: s.begun(), ended: time.Now()}
		case <-began:
			began = nil
			// A program that the Engine attaches to has only the rest of its time.
			allowance, cause = e.runAllowance(x.limits, x.collects)-time.Since(s.begun()), errRunDeadline
			allowance = max(allowance, e.runAllowance(executor.Limits{KillGrace: x.limits.KillGrace}, x.collects))
			set, held = time.Now(), s.waited()
			clock.Reset(allowance)
		case <-clock.C:
			// While the log blocks the program's output, the program's time does not pass.
			left := allowance - (time.Since(set) - (s.waited() - held))
			if left <= 0 {
				x.cancel(cause)
			} else {
				clock.Reset(max(left, time.Second))
			}
		case <-stopped:
			stopped = nil
			clock.Stop()
			timer := time.NewTimer(x.limits.KillGrace + e.deadlines.Stop)
			defer timer.Stop()
			giveUp = timer.C
		case <-giveUp:
			s.abandon(context.Cause(x.ctx))
			e.abandoned.Add(returned, "backend "+x.backend+" with "+x.id)
			e.log.Error("a backend did not stop an execution in time", "execution", x.id, "backend", x.backend)
			e.spawn(func() { _ = e.remove(x) })
			return verdict{abandoned: true, broken: s.brokenLaw(), began: s.begun(), ended: time.Now()}
		}
	}
}

// again reports whether x may have another attempt: the backend was away before the program started, and the input is still there. The
// caller has checked that the log has not failed, because that may have been at Started.
func (e *Engine) again(x *execution, v verdict) bool {
	if v.err == nil || v.abandoned || v.broken != nil || !v.began.IsZero() || x.ctx.Err() != nil {
		return false
	}
	away := executor.CodeOf(v.err) == executor.Unavailable
	if exhausted, ok := errors.AsType[*executor.Error](v.err); ok && exhausted.Code == executor.Exhausted {
		away = exhausted.RetryAfter > 0 // the backend has no place now; other bounds stay reached
	}
	if x.session != nil && executor.CodeOf(v.err) == executor.Conflict {
		away = true // the backend still runs an Execution of the Session that was given up here
	}
	if !away || x.retries+1 >= maxAttempts {
		return false
	}
	return x.direct == nil || !x.direct.wasOpened()
}

// pause gives x's slot back and lets it wait for its next attempt.
func (e *Engine) pause(x *execution) {
	x.retries++
	x.asked = 0
	wait := backOff(x.retries)
	e.log.Warn("backend away, execution waits", "execution", x.id, "backend", x.backend, "attempt", x.attempts, "wait", wait)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue.pause(x.place)
	x.turn.SetRunning(false)
	e.waitLocked(x, wait)
	e.dispatch()
}

// waitLocked lets x wait before it asks for its backend again. The caller holds the lock.
func (e *Engine) waitLocked(x *execution, wait time.Duration) {
	if e.phase != serving && x.durable && x.ctx.Err() == nil {
		x.endLocked() // x stays queued for the next Start
		return
	}
	if e.phase != serving {
		x.cancel(errShutdown) // Close does not look at it again
	}
	if x.ctx.Err() != nil {
		x.finishLocked()
		return
	}
	x.state = stateQueued
	x.clock = time.AfterFunc(wait, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if x.state != stateQueued || e.phase != serving {
			return // x is being ended
		}
		x.state = stateActive
		if !e.spawnLocked(func() { e.resume(x) }) {
			x.endLocked()
		}
	})
}

// resume puts x back into the queue if its backend is there again. While the backend is away no attempt is spent.
func (e *Engine) resume(x *execution) {
	_, err := e.info(x.ctx, x.on)
	if err == nil || x.ctx.Err() != nil {
		x.enqueue(true)
		return
	}
	if time.Since(x.since) >= e.deadlines.Queue {
		x.cancel(errQueueDeadline)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x.asked++
	e.waitLocked(x, backOff(x.retries+x.asked))
}

// backOff returns how long to wait before attempt n+1, or before the next question whether the backend is back: ½, 2, 8, then 30 seconds.
func backOff(n int) time.Duration {
	wait := 500 * time.Millisecond
	for ; n > 1 && wait < 30*time.Second; n-- {
		wait *= 4
	}
	return min(wait, 30*time.Second)
}

// clean removes x from its backend. While the backend is away it tries again, at most maxAttempts times: where programs outlive their
// plugin, the backend may come back with x.
func (e *Engine) clean(x *execution) {
	for try := 1; try <= maxAttempts; try++ {
		err := e.remove(x)
		if executor.CodeOf(err) != executor.Unavailable || errors.Is(err, calls.ErrGivenUp) || try == maxAttempts || e.accepting() != nil {
			return
		}
		e.sleep(backOff(try))
	}
}

// remove asks x's backend once to Remove it.
func (e *Engine) remove(x *execution) error {
	b := x.on
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), e.deadlines.Stop)
	defer cancel()
	_, err := calls.Ask(ctx, &e.abandoned, "Remove of "+x.id, 0, func() (struct{}, error) { return struct{}{}, b.Remove(ctx, x.id) })
	if err != nil {
		e.log.Warn("execution not removed from its backend", "execution", x.id, "backend", x.backend, "error", err)
	}
	return err
}
