package plugin

import (
	"context"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// gate counts the calls that are under way and refuses new ones when it is shut. The zero gate is open. Both sides of the
// process boundary have one.
type gate struct {
	mu     sync.Mutex
	refuse error
	inside int
	// idle is closed when the last call has left. It is nil while no wait is under way.
	idle chan struct{}
}

// enter admits a call or returns why the gate is shut. Each admitted call leaves.
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

// shut refuses every call from now on with err. A nil err opens the gate.
func (g *gate) shut(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = err
}

// wait returns when no call is under way, or with the error of ctx.
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

// closeBackend closes b if b is an io.Closer. It waits at most until ctx ends.
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
