package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The causes with which an Execution is told to end.
var (
	errCancelled       = errors.New("cancelled")
	errCallerGone      = errors.New("the caller went away before its input was read")
	errShutdown        = errors.New("the server stopped")
	errQueueDeadline   = errors.New("it waited too long")
	errPrepareDeadline = errors.New("its preparation took too long")
	errRunDeadline     = errors.New("it ran on after its timeout")
	errViolation       = errors.New("the backend broke the order of events")
)

// strayGrace is how long Close waits for calls that were given up before.
const strayGrace = time.Second

// Close refuses what is new and ends the Engine. What is queued durably stays queued for the next Start; what is queued
// otherwise has a caller who waits on this process, and is lost at once. What runs may finish until ctx ends; then it is
// cancelled, and is lost too, but for a durable one on a backend that keeps it: the next Start attaches to it. So with
// Sessions: those on a backend that can adopt them stay, the others are closed. Idempotent; safe without Start. The Store and the Blobs stay open: they are the caller's.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	first := e.phase == created || e.phase == serving
	if first {
		e.phase = draining
		close(e.stopping)
	}
	waiting := e.inOrder()
	e.mu.Unlock()
	if first {
		for _, x := range waiting {
			e.leaveQueued(x)
		}
	}
	for _, x := range waiting {
		select {
		case <-x.done:
		case <-ctx.Done():
			x.stop(e.endCause(x))
		}
	}
	for _, x := range waiting {
		<-x.done
	}
	e.releaseSessions()
	e.halt(errShutdown)
	e.mu.Lock()
	e.phase = closed
	e.mu.Unlock()
	e.tasks.Wait()
	e.metrics.unregister()
	return e.waitForStrays(ctx)
}

// inOrder returns the live Executions by age. The caller holds the lock.
func (e *Engine) inOrder() []*execution {
	list := make([]*execution, 0, len(e.live))
	for _, x := range e.live {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *execution) int { return strings.Compare(a.id, b.id) })
	return list
}

// leaveQueued takes x out of the queue, if it is there: for the next Start if it is durable, else for ever.
func (e *Engine) leaveQueued(x *execution) {
	e.mu.Lock()
	if x.state == stateQueued && x.durable {
		x.clock.Stop()
		x.endLocked()
		e.mu.Unlock()
		return
	}
	queued := x.state == stateQueued || x.state == stateSpooling
	e.mu.Unlock()
	if queued {
		x.stop(errShutdown)
	}
}

// stray notes a goroutine that the Engine no longer waits for: a backend that does not return, a stream that does not
// end. done is closed when it has ended.
func (e *Engine) stray(done <-chan struct{}, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for other := range e.strays {
		select {
		case <-other:
			delete(e.strays, other)
		default:
		}
	}
	e.strays[done] = what
}

func (e *Engine) waitForStrays(ctx context.Context) error {
	e.mu.Lock()
	strays := maps.Clone(e.strays)
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), strayGrace)
	defer cancel()
	var errs []error
	for done, what := range strays {
		select {
		case <-done:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s has not returned", what))
		}
	}
	return errors.Join(errs...)
}
