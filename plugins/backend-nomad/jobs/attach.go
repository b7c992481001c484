package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
)

// stopped stops the job and waits until nothing of it runs.
func (x *execution) stopped(ctx context.Context) error {
	if err := x.cluster.deregister(ctx, x.tracked.id, false); err != nil {
		return refusal("stop the job", err)
	}
	return x.gone(ctx)
}

// gone waits until nothing of a stopped job runs.
func (x *execution) gone(ctx context.Context) error {
	again := time.NewTicker(refreshTime)
	defer again.Stop()
	for look := true; ; {
		if look {
			if err := x.refresh(ctx); err != nil {
				return err
			}
		}
		a, e, stale := x.tracked.now()
		if a != nil && a.over() || a == nil && (e == nil || unplaceable(e)) {
			return nil
		}
		select {
		case <-x.tracked.changed:
			look = stale
		case <-again.C:
			look = true
		case <-ctx.Done():
			return executor.Errorf(executor.Unavailable, "the job is not stopped yet: %w", context.Cause(ctx))
		}
	}
}

// leaveTime bounds how long an allocation whose runner has written its last record is left to end by itself.
const leaveTime = time.Minute

// leave waits until the allocation has ended by itself, for leaveTime at most. A node that is to stop a task whose container has ended,
// and that does not know so because it was away, tries to kill it for minutes and keeps the container meanwhile.
func (x *execution) leave(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = x.gone(bounded) // the stop comes next
}

// unplaceable reports whether e, the last evaluation of a stopped job, leaves nothing to place. Nomad cancels the evaluation of a job that
// waits for a place, and may do so after it has completed the one of the stop.
func unplaceable(e *api.Evaluation) bool {
	return e.TriggeredBy == "job-deregister" && e.Status == api.EvalStatusComplete || e.Status == api.EvalStatusCancelled
}

// Remove implements executor.Backend. The job is stopped. Nomad shows it until Config.PurgeAfterSeconds have passed, but its Result
// cannot be asked for any more.
func (b *Backend) Remove(ctx context.Context, id string) error {
	if err := b.running.Remove(ctx, id); err != nil {
		return err
	}
	inner, leave, err := b.running.Enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	b.transfer.drop(id)
	j, err := b.cluster.info(inner, jobID(id))
	if err != nil {
		return refusal("look for the job", err)
	}
	if j == nil || !b.owns(j) {
		return nil
	}
	t, release := b.watcher.track(jobID(id))
	defer release()
	t.begin(*j.CreateIndex)
	x := &execution{Backend: b, job: executor.Job{ID: id}, tracked: t}
	if _, ended := b.ended.LoadAndDelete(id); ended {
		x.leave(inner)
	}
	if j.Stop == nil || !*j.Stop {
		if err := b.cluster.deregister(inner, jobID(id), false); err != nil {
			return refusal("stop the job", err)
		}
	}
	if j.Status == nil || *j.Status != "dead" {
		if err := x.gone(inner); err != nil {
			return err
		}
	}
	if b.config.PurgeAfterSeconds == 0 {
		return b.purge(inner, jobID(id))
	}
	return nil
}

// Attach implements executor.Backend.
func (b *Backend) Attach(ctx context.Context, j executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	ctx, leave, err := b.running.Enter(ctx, j.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	var h handle
	if json.Unmarshal(r.Handle, &h) != nil || h.Alloc == "" || h.Job != jobID(j.ID) {
		return executor.Result{}, executor.Errorf(executor.NotFound, "execution %s: the handle is not of this backend", j.ID)
	}
	found, err := b.cluster.info(ctx, h.Job)
	if err != nil {
		return executor.Result{}, refusal("look for the job", err)
	}
	if found == nil || !b.owns(found) || found.Stop != nil && *found.Stop {
		return executor.Result{}, executor.Errorf(executor.NotFound, "job %s is gone", h.Job)
	}
	t, release := b.watcher.track(h.Job)
	defer release()
	t.begin(*found.CreateIndex)
	x := &execution{Backend: b, job: j, tracked: t, sink: sink, resumed: true, begun: time.Now(), reached: [2]int64{r.Stdout, r.Stderr}}
	return x.see(ctx, func(ctx, caller context.Context) (executor.Result, error) {
		a, err := x.placed(ctx, caller, taskProgram)
		if err == nil && (a == nil || a.ID != h.Alloc) {
			err = executor.Errorf(executor.NotFound, "allocation %s is gone", h.Alloc)
		}
		if err != nil {
			return executor.Result{}, err
		}
		last, err := x.read(ctx, a.ID, taskProgram, r)
		return x.conclude(ctx, caller, taskProgram, last, err)
	})
}
