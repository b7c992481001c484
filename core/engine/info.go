package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	// infoFresh is how long an Info is used as it is. Until infoStale it is used while a new one is fetched in the background, so
	// that no Submit waits for a healthy backend.
	infoFresh = 5 * time.Second
	infoStale = time.Minute
	// infoFailed is how long a failure is remembered.
	infoFailed = 500 * time.Millisecond
	// infoTimeout bounds one call of Backend.Info.
	infoTimeout = 5 * time.Second
	// readyTimeout bounds Ready. It is shorter than the usual timeout of a health probe, so that the probe gets the reason.
	readyTimeout = 2 * time.Second
	// maxDown bounds how long a new Execution waits for a backend that was healthy and has stopped to answer, downLook is the time between
	// two looks, and maxWaiting bounds how many wait. A plugin that has ended is restarted within seconds.
	maxDown    = 10 * time.Second
	downLook   = 250 * time.Millisecond
	maxWaiting = 256
	// downRetryAfter is the hint while a backend is down: plugins are restarted within a second or two.
	downRetryAfter = 2 * time.Second
)

// info returns a recent Info of a backend. Codes: unavailable (it is nil, down or not healthy).
func (e *Engine) info(ctx context.Context, b *backend) (executor.Info, error) {
	if b == nil {
		return executor.Info{}, executor.Errorf(executor.Unavailable, "the backend is not configured any more")
	}
	info, err := e.lookup(ctx, b)
	return healthy(b.name, info, err)
}

// infoSoon is info for a new Execution of an owner. It waits for a backend that is being restarted, unless the idempotency key key is
// known already.
func (e *Engine) infoSoon(ctx context.Context, b *backend, owner, key string) (executor.Info, error) {
	info, err := e.info(ctx, b)
	if err == nil || e.knows(ctx, owner, key) || !b.wait() {
		return info, err
	}
	defer b.waited()
	look := time.NewTicker(downLook)
	defer look.Stop()
	for err != nil && b.restarts() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return info, err
		case <-e.stopping:
			return info, err
		}
		info, err = e.info(ctx, b)
	}
	return info, err
}

// knows reports whether an Execution of an owner has an idempotency key.
func (e *Engine) knows(ctx context.Context, owner, key string) bool {
	if key == "" {
		return false
	}
	_, err := e.store.ByKey(ctx, owner, key)
	return err == nil
}

// restarts reports whether b was healthy and has stopped to answer a short time ago.
func (b *backend) restarts() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen && !b.down.IsZero() && time.Since(b.down) < maxDown
}

// wait counts a request that waits for b to be restarted. It reports false if it must not wait.
func (b *backend) wait() bool {
	if b == nil || !b.restarts() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting >= maxWaiting {
		return false
	}
	b.waiting++
	return true
}

func (b *backend) waited() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting--
}

// infoNow returns a new Info of a backend. Codes: unavailable.
func (e *Engine) infoNow(ctx context.Context, b *backend) (executor.Info, error) {
	info, err := b.await(ctx, b.fetch(e))
	return healthy(b.name, info, err)
}

func healthy(name string, info executor.Info, err error) (executor.Info, error) {
	if err != nil {
		return info, err
	}
	if !info.Healthy {
		return info, errDown(name, cmp.Or(info.Message, "it is not healthy"))
	}
	return info, nil
}

func errDown(name, reason string) error {
	return &executor.Error{
		Code: executor.Unavailable, RetryAfter: downRetryAfter,
		Message: "backend " + name + ": " + reason,
	}
}

// lookup returns a recent Info of a backend, healthy or not.
func (e *Engine) lookup(ctx context.Context, b *backend) (executor.Info, error) {
	b.mu.Lock()
	info, err, at := b.info, b.err, b.at
	b.mu.Unlock()
	age := time.Since(at)
	known := !at.IsZero()
	switch {
	case known && err != nil && age < infoFailed, known && err == nil && age < infoFresh:
		return info, err
	case known && err == nil && info.Healthy && age < infoStale:
		b.fetch(e)
		return info, nil
	}
	return b.await(ctx, b.fetch(e))
}

// await returns the result of a fetch.
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

// fetch asks the backend for its Info, unless a fetch is under way. It returns a channel that is closed when the answer is there.
func (b *backend) fetch(e *Engine) <-chan struct{} {
	b.mu.Lock()
	done := b.fetching
	if done != nil {
		b.mu.Unlock()
		return done
	}
	done = make(chan struct{})
	b.fetching = done
	b.mu.Unlock() // before spawn, which takes the Engine's lock
	if !e.spawn(func() { b.ask(e, done) }) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fetching = nil
		b.err, b.at = executor.Errorf(executor.Unavailable, "the server is stopping"), time.Now()
		close(done)
	}
	return done
}

func (b *backend) ask(e *Engine, done chan struct{}) {
	ctx, cancel := context.WithTimeout(e.base, infoTimeout)
	defer cancel()
	info, err := calls.Ask(ctx, &e.abandoned, "Info of backend "+b.name, 0, func() (executor.Info, error) { return b.Info(ctx) })
	switch {
	case errors.Is(err, calls.ErrGivenUp):
		err = errDown(b.name, "it does not answer")
	case err != nil && executor.CodeOf(err) != executor.Unavailable:
		e.log.Error("backend info", "backend", b.name, "error", err)
		err = errDown(b.name, "it cannot describe itself")
	}
	info.Name = cmp.Or(info.Name, b.name)
	if c := info.Capabilities; err == nil && e.now().defaultLimits.CPUTime > 0 && !c.CPUTime {
		info.Warnings = append(slices.Clone(info.Warnings), "cpu_seconds is not enforced: the backend cannot bound the CPU time of programs")
	}
	b.mu.Lock()
	restarted := err == nil && b.generation != 0 && info.Generation != b.generation
	if err == nil {
		b.generation, b.attach, b.seen = info.Generation, info.Capabilities.Attach, true
	}
	b.info, b.err, b.at = info, err, time.Now()
	if err == nil {
		b.down = time.Time{}
	} else if b.down.IsZero() {
		b.down = b.at
	}
	b.mu.Unlock()
	if restarted {
		e.sessions.Look()
	}
	if err == nil {
		e.mu.Lock()
		e.queue.capacity[b.key] = info.Capacity
		e.dispatch()
		e.mu.Unlock()
	}
	b.mu.Lock()
	b.fetching = nil
	close(done) // the capacity counts: what is submitted now finds it
	b.mu.Unlock()
}

// followCapacity asks the backends that have no room for what waits, every infoFresh, until nothing waits for them. A backend may get room
// by itself, as when a worker joins it, and without new requests nothing else asks.
func (e *Engine) followCapacity() {
	for {
		e.sleep(infoFresh)
		e.mu.Lock()
		full := map[*backend]bool{}
		for _, p := range e.queue.crowded() {
			if b := p.execution.on; b != nil {
				full[b] = true
			}
		}
		e.following = len(full) > 0 && e.phase == serving
		follow := e.following
		e.mu.Unlock()
		if !follow {
			return
		}
		for b := range full {
			b.fetch(e) // ask takes over the capacity
		}
	}
}

// Backends implements executor.Service. It lists the default backend first, the others by name, and then those that drain. A backend
// that is down or drains has a Message.
func (e *Engine) Backends(ctx context.Context) ([]executor.Info, error) {
	if _, err := authorize(ctx, opBackends, ""); err != nil {
		return nil, err
	}
	return append(e.describe(ctx), e.describeRetired(ctx)...), nil
}

// describe returns a recent Info of every configured backend, in the order of Backends.
func (e *Engine) describe(ctx context.Context) []executor.Info {
	now := e.now()
	list := make([]*backend, len(now.names))
	for i, name := range now.names {
		list[i] = now.backends[name]
	}
	return e.ask(ctx, list)
}

// ask returns a recent Info of each backend of list, at the same index.
func (e *Engine) ask(ctx context.Context, list []*backend) []executor.Info {
	infos := make([]executor.Info, len(list))
	var wg sync.WaitGroup
	for i, b := range list {
		wg.Go(func() {
			info, err := e.lookup(ctx, b)
			if err != nil {
				info = executor.Info{Message: err.Error()}
			}
			info.Name = b.name
			infos[i] = info
		})
	}
	wg.Wait()
	return infos
}

// Scripts implements executor.Service. Without a backend for scripts there are none.
func (e *Engine) Scripts(ctx context.Context) ([]executor.Script, error) {
	if _, err := authorize(ctx, opScripts, ""); err != nil {
		return nil, err
	}
	b, leave := e.backend(e.scriptBackend())
	defer leave()
	if b == nil {
		return nil, nil
	}
	return b.Backend.(executor.ScriptBackend).Scripts(ctx) //nolint:forcetypeassert // scriptBackend has looked
}

// scriptBackend returns the name of the backend that runs host scripts; "" if there is none.
func (e *Engine) scriptBackend() string {
	now := e.now()
	for _, name := range now.names {
		if _, ok := now.backends[name].Backend.(executor.ScriptBackend); ok {
			return name
		}
	}
	return ""
}
