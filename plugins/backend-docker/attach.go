package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// Attach implements executor.Backend. The container of a job outlives the plugin and the core, and its runner keeps the output
// that was not acknowledged.
func (b *Backend) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	var h handle
	if json.Unmarshal(r.Handle, &h) != nil || h.Container == "" {
		return executor.Result{}, executor.Errorf(executor.NotFound, "execution %s: the handle is not of this backend", job.ID)
	}
	o := runner.ResumeOptions{Epoch: h.Epoch, ExecutionID: job.ID, Stdout: r.Stdout, Stderr: r.Stderr}
	if job.Spec.Session != "" {
		return b.attachInSession(ctx, job, h, o, sink)
	}
	old := b.results.take(job.ID)
	if old != nil {
		_ = old.conn.Detach() // the connection has ended when Detach returns
	}
	s, err := b.resume(ctx, h, o)
	if err != nil {
		if old != nil {
			b.retire(job.ID, old, true, nil) // a later Attach may succeed
		}
		return executor.Result{}, err
	}
	b.claimed(job.ID, s.id, deadline(job.Limits)) // from now on the reaper does not take it for an orphan
	out := &resumedSink{Sink: sink, reached: reached{r.Stdout, r.Stderr}}
	result, err := b.see(ctx, s, func(ctx context.Context) (executor.Result, error) { return s.conn.Follow(ctx, out) })
	if b.letsGo(ctx) && executor.CodeOf(err) == executor.Unavailable {
		return executor.Result{}, err
	}
	result, err = b.diedOf(ctx, s, true, job.Limits.MemoryBytes, result, err)
	out.reached.count(&result)
	b.retire(job.ID, s, true, err)
	result.PythonVersion, result.Requirements, result.ImageDigest = out.started.PythonVersion, out.started.Requirements, h.Digest
	return result, err
}

// resume connects to a container of this installation and takes over its runner. Codes: not_found, unavailable.
func (b *Backend) resume(ctx context.Context, h handle, o runner.ResumeOptions) (*sandbox, error) {
	c, err := b.daemon.inspect(ctx, h.Container)
	if err != nil {
		return nil, err
	}
	if c.Labels[labelInstance] != b.place.Instance || c.Labels[labelKind] != kindSandbox {
		return nil, executor.Errorf(executor.NotFound, "container %s is not of this installation", short(h.Container))
	}
	if c.State != "running" {
		b.cleaner.remove(c.ID)
		return nil, executor.Errorf(executor.NotFound, "container %s has ended with exit code %d", short(c.ID), c.ExitCode)
	}
	conn, in, err := b.daemon.attach(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	rc, err := runner.ResumeConn(newStdio(conn, in, b.factory.inside(ctx, c.ID), b.log.With("container", short(c.ID))), o)
	if err != nil && ctx.Err() == nil && b.factory.died(ctx, c.ID) {
		return nil, executor.Errorf(executor.NotFound, "container %s has ended: %w", short(c.ID), err)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return &sandbox{id: c.ID, conn: rc, gone: rc.Done()}, nil
}

// resumedSink keeps the repeated Started to itself, because the log already has it.
type resumedSink struct {
	executor.Sink
	started executor.Started
	reached reached
}

// Emit implements executor.Sink.
func (w *resumedSink) Emit(e executor.Event) error {
	if s, ok := e.Body.(executor.Started); ok {
		w.started = s
		return nil
	}
	if o, ok := e.Body.(executor.Output); ok {
		w.reached.note(o)
	}
	return w.Sink.Emit(e)
}
