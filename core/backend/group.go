package backend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// progressPause is the least time between two Progress events of one waiter.
const progressPause = 200 * time.Millisecond

// errAbandoned is the cause of work whose last waiter has left.
var errAbandoned = errors.New("no waiter is left")

// Group lets all callers that want the same thing wait for one piece of work. The work has a ctx of its own: a waiter that
// leaves does not end it for the others. The work ends when the last waiter leaves. Group is safe for concurrent use.
//
// golang.org/x/sync/singleflight has no Progress, and does not end work without waiters (docs/decisions/0013).
type Group[T any] struct {
	// base is the backend's life.
	base context.Context
	wg   sync.WaitGroup

	mu    sync.Mutex
	works map[string]*work[T]
}

// work is one piece of work.
type work[T any] struct {
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when result and err are set
	waiters int           // guarded by Group.mu
	result  T
	err     error

	mu      sync.Mutex
	latest  executor.Progress
	changed chan struct{} // closed when latest changes
}

// NewGroup returns a Group whose work ends with base at the latest.
func NewGroup[T any](base context.Context) *Group[T] {
	return &Group[T]{base: base, works: map[string]*work[T]{}}
}

// Do waits for the work of key, and starts it with run if it is not under way. notify gets its Progress, on the caller's goroutine. The
// end of ctx ends the waiting: Do returns its cause. If this was the last waiter, Do first waits until the work has ended.
func (g *Group[T]) Do(ctx context.Context, key string, notify func(executor.Progress), run func(context.Context, func(executor.Progress)) (T, error)) (T, error) {
	w := g.join(key, run)
	defer g.leave(key, w)
	for {
		w.mu.Lock()
		latest, changed := w.latest, w.changed
		w.mu.Unlock()
		if latest.Message != "" {
			notify(latest)
			pause := time.NewTimer(progressPause)
			select {
			case <-pause.C:
			case <-w.done:
			case <-ctx.Done():
			}
			pause.Stop()
		}
		select {
		case <-w.done:
			return w.result, w.err
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		case <-changed:
		}
	}
}

// Go runs f in the background, for tasks that follow the work and that no caller waits for. The ctx ends with the Group's.
func (g *Group[T]) Go(f func(ctx context.Context)) { g.wg.Go(func() { f(g.base) }) }

// Wait waits until no work runs, and nothing that Go has started.
func (g *Group[T]) Wait() { g.wg.Wait() }

func (g *Group[T]) join(key string, run func(context.Context, func(executor.Progress)) (T, error)) *work[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	w, ok := g.works[key]
	if !ok {
		ctx, cancel := context.WithCancelCause(g.base)
		w = &work[T]{cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
		g.works[key] = w
		g.wg.Go(func() {
			defer cancel(nil)
			w.result, w.err = run(ctx, w.progress)
			g.mu.Lock()
			g.forget(key, w)
			g.mu.Unlock()
			close(w.done)
		})
	}
	w.waiters++
	return w
}

// leave takes a waiter away. The last waiter ends the work and waits until nothing of it is left.
func (g *Group[T]) leave(key string, w *work[T]) {
	g.mu.Lock()
	w.waiters--
	last := w.waiters == 0
	if last {
		g.forget(key, w) // the next caller starts anew instead of joining work that ends
	}
	g.mu.Unlock()
	if last {
		w.cancel(errAbandoned)
		<-w.done
	}
}

// forget lets the next caller of key start anew. The caller holds the lock.
func (g *Group[T]) forget(key string, w *work[T]) {
	if g.works[key] == w {
		delete(g.works, key)
	}
}

func (w *work[T]) progress(p executor.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = p
	close(w.changed)
	w.changed = make(chan struct{})
}
