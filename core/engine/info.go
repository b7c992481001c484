package engine

import (
	"context"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// infoFresh is how long an Info is taken as it is; between that and infoStale it still serves while a new one is
	// fetched beside, so that no Submit waits for a backend that is well.
	infoFresh = 5 * time.Second
	infoStale = time.Minute
	// infoFailed is how long a failure is remembered.
	infoFailed = 500 * time.Millisecond
	// infoTimeout bounds one call of Backend.Info.
	infoTimeout = 5 * time.Second
	// readyTimeout bounds Ready, whose askers are impatient: a probe that gets no answer knows less than one that gets a no.
	readyTimeout = 2 * time.Second
	// downRetryAfter is the hint while a backend is down: plugins are restarted within a second or two.
	downRetryAfter = 2 * time.Second
)

// backend is a configured backend and what is known of it.
type backend struct {
	executor.Backend
	name string

	mu       sync.Mutex
	info     executor.Info
	err      error
	at       time.Time
	fetching chan struct{}
	// generation is that of its plugin process when it answered last.
	generation int
	// attach is what it promised then.
	attach bool
}

// info returns what the backend said of itself lately. Codes: unavailable (it is down or not healthy).
func (e *Engine) info(ctx context.Context, name string) (executor.Info, error) {
	info, err := e.lookup(ctx, e.backends[name])
	return healthy(name, info, err)
}

// infoNow is info of this moment, for those who ask how things are and not for something else.
func (e *Engine) infoNow(ctx context.Context, name string) (executor.Info, error) {
	b := e.backends[name]
	b.mu.Lock()
	fetching := b.fetch(e)
	b.mu.Unlock()
	info, err := b.await(ctx, fetching)
	return healthy(name, info, err)
}

func healthy(name string, info executor.Info, err error) (executor.Info, error) {
	if err != nil {
		return info, err
	}
	if !info.Healthy {
		reason := info.Message
		if reason == "" {
			reason = "it is not healthy"
		}
		return info, errDown(name, reason)
	}
	return info, nil
}

func errDown(name, reason string) error {
	return &executor.Error{
		Code: executor.Unavailable, RetryAfter: downRetryAfter,
		Message: "backend " + name + ": " + reason,
	}
}

// lookup is info without a judgement on health.
func (e *Engine) lookup(ctx context.Context, b *backend) (executor.Info, error) {
	b.mu.Lock()
	age := time.Since(b.at)
	known := !b.at.IsZero()
	switch {
	case known && b.err != nil && age < infoFailed, known && b.err == nil && age < infoFresh:
		defer b.mu.Unlock()
		return b.info, b.err
	case known && b.err == nil && b.info.Healthy && age < infoStale:
		defer b.mu.Unlock()
		b.fetch(e)
		return b.info, nil
	}
	fetching := b.fetch(e)
	b.mu.Unlock()
	return b.await(ctx, fetching)
}

// await returns what a fetch found.
func (b *backend) await(ctx context.Context, fetching <-chan struct{}) (executor.Info, error) {
	select {
	case <-fetching:
	case <-ctx.Done():
		return executor.Info{}, executor.Errorf(executor.Unavailable, "backend %s: %w", b.name, context.Cause(ctx))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info, b.err
}

// fetch asks the backend, once at a time. The caller holds the lock.
func (b *backend) fetch(e *Engine) <-chan struct{} {
	if b.fetching != nil {
		return b.fetching
	}
	done := make(chan struct{})
	b.fetching = done
	if !e.spawn(func() { b.ask(e, done) }) {
		b.fetching = nil
		b.err, b.at = executor.Errorf(executor.Unavailable, "the server is stopping"), time.Now()
		close(done)
	}
	return done
}

func (b *backend) ask(e *Engine, done chan struct{}) {
	ctx, cancel := context.WithTimeout(e.base, infoTimeout)
	defer cancel()
	answers, returned := call(func() (executor.Info, error) { return b.Info(ctx) })
	var got answer[executor.Info]
	select {
	case got = <-answers:
	case <-ctx.Done():
		e.stray(returned, "Info of backend "+b.name)
		got.err = errDown(b.name, "it does not answer")
	}
	if got.err != nil && executor.CodeOf(got.err) != executor.Unavailable {
		e.log.Error("backend info", "backend", b.name, "error", got.err)
		got.err = errDown(b.name, "it cannot describe itself")
	}
	if got.value.Name == "" {
		got.value.Name = b.name
	}
	b.mu.Lock()
	restarted := got.err == nil && b.generation != 0 && got.value.Generation != b.generation
	if got.err == nil {
		b.generation, b.attach = got.value.Generation, got.value.Capabilities.Attach
	}
	b.info, b.err, b.at = got.value, got.err, time.Now()
	b.fetching = nil
	close(done)
	b.mu.Unlock()
	if restarted {
		e.lookSoon()
	}
	if got.err == nil {
		e.mu.Lock()
		e.queue.capacity[b.name] = got.value.Capacity
		e.dispatch()
		e.mu.Unlock()
	}
}

// forget makes the next look at the backend a fresh one: it has just failed.
func (b *backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
}

// Backends implements executor.Service: every configured backend, the default first, the others by name; one that is down
// is there, with the reason.
func (e *Engine) Backends(ctx context.Context) ([]executor.Info, error) {
	if err := needs(executor.PrincipalFrom(ctx), executor.ScopeRead); err != nil {
		return nil, err
	}
	return e.describe(ctx), nil
}

// describe returns what is known of every backend, in the order of Backends.
func (e *Engine) describe(ctx context.Context) []executor.Info {
	infos := make([]executor.Info, len(e.names))
	var wg sync.WaitGroup
	for i, name := range e.names {
		wg.Go(func() {
			info, err := e.lookup(ctx, e.backends[name])
			if err != nil {
				info = executor.Info{Message: err.Error()}
			}
			info.Name = name
			infos[i] = info
		})
	}
	wg.Wait()
	return infos
}

// keeps reports whether the backend holds what it ran until it is removed, also across the death of its plugin.
func (b *backend) keeps() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attach
}
