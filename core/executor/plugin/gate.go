package plugin

import (
	"context"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// gate counts the calls that are inside, and keeps new ones out when it is shut. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	refuse error
	inside int
	// idle is closed when the last call has left; nil while nobody waits.
	idle chan struct{}
}

// enter admits a call, or says why not. Each admitted call leaves.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		return g.refuse
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// shut refuses every call from now on with err; nil opens.
func (g *gate) shut(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = err
}

// wait returns when nobody is inside.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guarded is a Backend behind a gate. Both sides of the process boundary have one.
type guarded struct {
	gate    gate
	backend executor.Backend
	// life ends every Run when it ends, with its cause; nil: never.
	life context.Context
	// describe completes Info; nil: nothing to add.
	describe func(executor.Info) executor.Info
}

var (
	_ executor.Backend        = (*guarded)(nil)
	_ executor.SessionBackend = (*guarded)(nil)
)

// Info implements executor.Backend.
func (g *guarded) Info(ctx context.Context) (executor.Info, error) {
	if err := g.gate.enter(); err != nil {
		return executor.Info{}, err
	}
	defer g.gate.leave()
	info, err := g.backend.Info(ctx)
	if err == nil && g.describe != nil {
		info = g.describe(info)
	}
	return info, err
}

// Run implements executor.Backend.
func (g *guarded) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := g.gate.enter(); err != nil {
		return executor.Result{}, err
	}
	defer g.gate.leave()
	ctx, release := g.bind(ctx)
	defer release()
	return g.backend.Run(ctx, job, sink)
}

// Attach implements executor.Backend.
func (g *guarded) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	if err := g.gate.enter(); err != nil {
		return executor.Result{}, err
	}
	defer g.gate.leave()
	ctx, release := g.bind(ctx)
	defer release()
	return g.backend.Attach(ctx, job, r, sink)
}

// bind returns ctx as it ends with life, too.
func (g *guarded) bind(ctx context.Context) (context.Context, func()) {
	if g.life == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.life, func() { cancel(context.Cause(g.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Remove implements executor.Backend.
func (g *guarded) Remove(ctx context.Context, id string) error {
	if err := g.gate.enter(); err != nil {
		return err
	}
	defer g.gate.leave()
	return g.backend.Remove(ctx, id)
}

// closeBackend closes b if it can be closed, and waits at most until ctx ends.
func closeBackend(ctx context.Context, b executor.Backend) error {
	c, ok := b.(io.Closer)
	if !ok {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return executor.Errorf(executor.Internal, "closing the backend: %w", ctx.Err())
	}
}
