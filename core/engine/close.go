package engine

import (
	"context"
	"errors"
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
	errQueueDeadline   = errors.New("the execution waited too long")
	errPrepareDeadline = errors.New("the preparation took too long")
	errRunDeadline     = errors.New("the program ran on after its timeout")
	errViolation       = errors.New("the backend broke the order of events")
)

// strayGrace is how long Close waits for calls that were given up.
const strayGrace = time.Second

// Close ends the Engine. New requests are refused. A queued Execution that is Durable stays queued for the next Start; any other queued one
// is lost at once. Running Executions may finish until ctx ends. Then they are cancelled and lost, except a Durable one on a backend that
// keeps it: the next Start attaches to that. Sessions with a handle stay open, the others are closed. Close is idempotent, and safe
// without Start. The Store and the Blobs stay open: they are the caller's.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	first := e.phase == created || e.phase == serving
	if first {
		e.phase = draining
		close(e.stopping)
	}
	waiting := slices.SortedFunc(maps.Values(e.live), func(a, b *execution) int { return strings.Compare(a.id, b.id) })
	e.mu.Unlock()
	e.sessions.Drain()
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
	e.sessions.Release()
	e.halt(errShutdown)
	e.mu.Lock()
	e.phase = closed
	e.mu.Unlock()
	e.tasks.Wait()
	e.metrics.unregister()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), strayGrace)
	defer cancel()
	return e.abandoned.Wait(ctx)
}

// leaveQueued takes x out of the queue, if it is there. A Durable execution stays queued in the Store; any other is ended.
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
