package uvbackend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// progressPause is the least time between two Progress events of one waiter.
const progressPause = 200 * time.Millisecond

// errNobodyWaits ends a build that nobody waits for any more.
var errNobodyWaits = errors.New("nobody waits for it any more")

// flights lets everybody who wants the same environment wait for one build. A build has a ctx of its own: a waiter that
// leaves hurts nobody; when the last one leaves, the build ends.
type flights struct {
	builder *builder
	// base is the backend's life.
	base context.Context
	wg   sync.WaitGroup

	mu     sync.Mutex
	flying map[string]*flight
}

// flight is one build.
type flight struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	waiters int // guarded by flights.mu

	// failure and err are set before done is closed.
	failure *executor.Failure
	err     error

	mu     sync.Mutex
	latest executor.Progress
	news   chan struct{} // closed when latest changes
}

func newFlights(base context.Context, b *builder) *flights {
	return &flights{builder: b, base: base, flying: map[string]*flight{}}
}

// prepare returns the environment of w, built if need be, in use until it is released. notify gets Progress, on this
// goroutine; its error ends the waiting and is returned. The end of ctx returns its cause.
func (f *flights) prepare(ctx context.Context, w want, notify func(executor.Progress) error) (*environment, *executor.Failure, error) {
	key := f.builder.key(w)
	if env, ok := f.builder.cache.open(key); ok {
		f.builder.cache.hits.Add(1)
		return env, nil, nil
	}
	// A build that succeeded may be evicted by another process before it is opened; not twice.
	for range 2 {
		if failure, err := f.wait(ctx, key, w, notify); failure != nil || err != nil {
			return nil, failure, err
		}
		if env, ok := f.builder.cache.open(key); ok {
			return env, nil, nil
		}
	}
	return nil, nil, executor.Errorf(executor.Unavailable, "the environment is removed as soon as it is built: is backends.uv.cache_bytes too small?")
}

// wait joins the build of key, or starts it.
func (f *flights) wait(ctx context.Context, key string, w want, notify func(executor.Progress) error) (*executor.Failure, error) {
	one := f.join(key, w)
	defer f.leave(key, one)
	for {
		one.mu.Lock()
		latest, news := one.latest, one.news
		one.mu.Unlock()
		if latest.Message != "" {
			if err := notify(latest); err != nil {
				return nil, err
			}
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
			return one.failure, one.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-news:
		}
	}
}

func (f *flights) join(key string, w want) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	one, ok := f.flying[key]
	if !ok {
		ctx, cancel := context.WithCancelCause(f.base)
		one = &flight{cancel: cancel, done: make(chan struct{}), news: make(chan struct{})}
		f.flying[key] = one
		f.wg.Go(func() {
			defer cancel(nil)
			one.failure, one.err = f.builder.build(ctx, key, w, one.progress)
			f.mu.Lock()
			if f.flying[key] == one {
				delete(f.flying, key)
			}
			f.mu.Unlock()
			close(one.done)
			f.builder.cache.evict(f.base, key)
		})
	}
	one.waiters++
	return one
}

func (f *flights) leave(key string, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.waiters--
	if one.waiters == 0 {
		one.cancel(errNobodyWaits)
		if f.flying[key] == one {
			delete(f.flying, key) // whoever comes now starts anew instead of joining one that ends
		}
	}
}

func (one *flight) progress(p executor.Progress) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.latest = p
	close(one.news)
	one.news = make(chan struct{})
}
