package dockerbackend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// progressPause is the least time between two Progress events of one waiter.
const progressPause = 200 * time.Millisecond

// errNobodyWaits ends work that nobody waits for any more.
var errNobodyWaits = errors.New("nobody waits for it any more")

// flights lets everybody who wants the same thing wait for one piece of work. The work has a ctx of its own: a waiter that
// leaves hurts nobody; when the last one leaves, the work ends.
type flights[T any] struct {
	// base is the backend's life.
	base context.Context
	wg   sync.WaitGroup

	mu     sync.Mutex
	flying map[string]*flight[T]
}

// flight is one piece of work.
type flight[T any] struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	waiters int // guarded by flights.mu

	// result and err are set before done is closed.
	result T
	err    error

	mu     sync.Mutex
	latest executor.Progress
	news   chan struct{} // closed when latest changes
}

func newFlights[T any](base context.Context) *flights[T] {
	return &flights[T]{base: base, flying: map[string]*flight[T]{}}
}

// wait waits for the work of key, and starts it if nobody does. notify gets Progress, on this goroutine. The end of ctx
// ends the waiting and returns its cause.
func (f *flights[T]) wait(ctx context.Context, key string, notify func(executor.Progress), work func(context.Context, func(executor.Progress)) (T, error)) (T, error) {
	one := f.join(key, work)
	defer f.leave(key, one)
	for {
		one.mu.Lock()
		latest, news := one.latest, one.news
		one.mu.Unlock()
		if latest.Message != "" {
			notify(latest)
			pause := time.NewTimer(progressPause)
			select {
			case <-pause.C:
			case <-one.done:
			case <-ctx.Done():
			}
			pause.Stop()
		}
		select {
		case <-one.done:
			return one.result, one.err
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		case <-news:
		}
	}
}

func (f *flights[T]) join(key string, work func(context.Context, func(executor.Progress)) (T, error)) *flight[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	one, ok := f.flying[key]
	if !ok {
		ctx, cancel := context.WithCancelCause(f.base)
		one = &flight[T]{cancel: cancel, done: make(chan struct{}), news: make(chan struct{})}
		f.flying[key] = one
		f.wg.Go(func() {
			defer cancel(nil)
			one.result, one.err = work(ctx, one.progress)
			f.forget(key, one)
			close(one.done)
		})
	}
	one.waiters++
	return one
}

// leave takes a waiter away. The last one ends the work and waits until nothing of it is left.
func (f *flights[T]) leave(key string, one *flight[T]) {
	f.mu.Lock()
	one.waiters--
	last := one.waiters == 0
	if last && f.flying[key] == one {
		delete(f.flying, key) // whoever comes now starts anew instead of joining one that ends
	}
	f.mu.Unlock()
	if last {
		one.cancel(errNobodyWaits)
		<-one.done
	}
}

func (f *flights[T]) forget(key string, one *flight[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying[key] == one {
		delete(f.flying, key)
	}
}

func (one *flight[T]) progress(p executor.Progress) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.latest = p
	close(one.news)
	one.news = make(chan struct{})
}
