package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// Attach implements executor.Backend: the container of a job outlives the plugin and the core, and its runner keeps what was
// not acknowledged.
func (b *Backend) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	ctx, entered, err := b.enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer b.leave(job.ID, entered)
	var h handle
	if json.Unmarshal(r.Handle, &h) != nil || h.Container == "" {
		return executor.Result{}, executor.Errorf(executor.NotFound, "execution %s: not a handle of ours", job.ID)
	}
	o := runner.ResumeOptions{Epoch: h.Epoch, ExecutionID: job.ID, Stdout: r.Stdout, Stderr: r.Stderr}
	if job.Spec.Session != "" {
		return b.attachInSession(ctx, job, h, o, sink)
	}
	old := b.results.take(job.ID)
	if old != nil {
		_ = old.conn.Detach() // it has ended when this returns
	}
	s, err := b.resume(ctx, h, o)
	if err != nil {
		if old != nil {
			b.retire(job.ID, old, true, nil) // who asks better may have it
		}
		return executor.Result{}, err
	}
	b.claimed(job.ID, s.id, deadline(job.Limits)) // it is ours now, and no orphan
	out := &resumedSink{Sink: sink, reached: reached{r.Stdout, r.Stderr}}
	result, err := b.see(ctx, s, func(ctx context.Context) (executor.Result, error) { return s.conn.Follow(ctx, out) })
	if b.letsGo(ctx) && executor.CodeOf(err) == executor.Unavailable {
		return executor.Result{}, err
	}
	result, err = b.diedOf(ctx, s, true, result, err)
	out.reached.count(&result)
	b.retire(job.ID, s, true, err)
	result.PythonVersion, result.Requirements, result.ImageDigest = out.started.PythonVersion, out.started.Requirements, h.Digest
	return result, err
}

// resume finds a container of ours again and takes over its runner. Codes: not_found, unavailable.
func (b *Backend) resume(ctx context.Context, h handle, o runner.ResumeOptions) (*sandbox, error) {
	c, err := b.daemon.inspect(ctx, h.Container)
	if err != nil {
		return nil, err
	}
	if c.Labels[labelInstance] != b.place.Instance || c.Labels[labelKind] != kindSandbox {
		return nil, executor.Errorf(executor.NotFound, "container %s is not ours", short(h.Container))
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
		return nil, executor.Errorf(executor.NotFound, "container %s has ended meanwhile: %w", short(c.ID), err)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return &sandbox{id: c.ID, conn: rc, gone: rc.Done()}, nil
}

// resumedSink keeps the second Started, which the log has already.
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

// abandon is the death of this process as far as the daemon can tell: every connection is gone, and nobody cleans up. It is
// for tests, and is followed by no other call.
func (b *Backend) abandon() {
	b.mu.Lock()
	b.closed = true
	var ends []chan struct{}
	for _, r := range b.running {
		r.cancel(executor.ErrCallerGone)
		ends = append(ends, r.done)
	}
	b.mu.Unlock()
	for _, end := range ends {
		<-end
	}
	b.leaveSessions(true)
	b.stop(errClosed)
	b.wg.Wait()
	b.interpreters.close()
	b.pool.close()
	b.cleaner.wait()
	_ = b.daemon.close() // it never fails
}
