package backend

import (
	"context"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// ErrClosed is the error of a call to a backend that is closed.
var ErrClosed = executor.Errorf(executor.Unavailable, "the backend is closed")

// Jobs registers the running jobs of a backend by Execution. The zero value is ready. It is safe for concurrent use.
type Jobs struct {
	mu      sync.Mutex
	closed  bool
	running map[string]*job
}

type job struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// Enter registers a job. The returned ctx ends with the given one, and by Remove and Close. The caller must call leave when
// nothing of the job is left. Codes: conflict (the Execution has a job already), unavailable (after Close).
func (j *Jobs) Enter(ctx context.Context, id string) (inner context.Context, leave func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, nil, ErrClosed
	}
	if j.running[id] != nil {
		return nil, nil, executor.Errorf(executor.Conflict, "execution %s runs already", id)
	}
	if j.running == nil {
		j.running = map[string]*job{}
	}
	inner, cancel := context.WithCancelCause(ctx)
	one := &job{cancel: cancel, done: make(chan struct{})}
	j.running[id] = one
	return inner, func() {
		j.mu.Lock()
		delete(j.running, id)
		j.mu.Unlock()
		cancel(nil)
		close(one.done)
	}, nil
}

// Remove ends the job of an Execution, if there is one, and waits until it has left. Codes: unavailable (ctx ended first).
func (j *Jobs) Remove(ctx context.Context, id string) error {
	j.mu.Lock()
	one := j.running[id]
	j.mu.Unlock()
	if one == nil {
		return nil
	}
	one.cancel(executor.Errorf(executor.Unavailable, "removed"))
	select {
	case <-one.done:
		return nil
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "remove %s: %w", id, context.Cause(ctx))
	}
}

// Close ends all jobs with cause, lets no further job in, and waits until all have left. It reports whether this was the
// first call.
func (j *Jobs) Close(cause error) (first bool) {
	j.mu.Lock()
	first = !j.closed
	j.closed = true
	var all []*job
	for _, one := range j.running {
		one.cancel(cause)
		all = append(all, one)
	}
	j.mu.Unlock()
	for _, one := range all {
		<-one.done
	}
	return first
}
