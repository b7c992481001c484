package host

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// abandonLimit bounds the cancelling of the Executions of a dead frontend. abandonGrace bounds it when the host's time to
	// stop has passed.
	abandonLimit = 30 * time.Second
	abandonGrace = 2 * time.Second
)

// caller is the Service of one process of a frontend. It knows the Executions that callers of that process wait for, and
// cancels them when the process is killed. Durable Executions go on.
type caller struct {
	executor.Service
	log *slog.Logger

	mu      sync.Mutex
	awaited map[string]executor.Principal
	gone    bool
}

func newCaller(svc executor.Service, log *slog.Logger) *caller {
	return &caller{Service: svc, log: log, awaited: map[string]executor.Principal{}}
}

var _ executor.Admitter = (*caller)(nil)

// Admit implements executor.Admitter.
func (c *caller) Admit(ctx context.Context) error {
	if a, ok := c.Service.(executor.Admitter); ok {
		return a.Admit(ctx)
	}
	return nil
}

// Submit implements executor.Executions.
func (c *caller) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	x, err := c.Service.Submit(ctx, spec, in)
	if err != nil || spec.Durable || x.Status.Terminal() {
		return x, err
	}
	p := executor.PrincipalFrom(ctx)
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.awaited[x.ID] = p
	}
	c.mu.Unlock()
	if gone {
		c.cancel(context.WithoutCancel(ctx), x.ID, p)
	}
	return x, nil
}

// Events implements executor.Executions.
func (c *caller) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		for e, err := range c.Service.Events(ctx, id, after) {
			if _, finished := e.Body.(executor.Finished); finished {
				c.ended(id)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Cancel implements executor.Executions.
func (c *caller) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	x, err := c.Service.Cancel(ctx, id)
	if err == nil {
		c.ended(id)
	}
	return x, err
}

func (c *caller) ended(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.awaited, id)
}

// abandon cancels the Executions that are still awaited, when the process is gone. It returns soon after the end of closing.
func (c *caller) abandon(closing context.Context) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(closing))
	defer cancel(nil)
	defer context.AfterFunc(closing, func() {
		last := time.NewTimer(abandonGrace)
		defer last.Stop()
		select {
		case <-last.C:
			cancel(context.Cause(closing))
		case <-ctx.Done():
		}
	})()
	c.mu.Lock()
	left := c.awaited
	c.awaited, c.gone = nil, true
	c.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	for id, p := range left {
		wg.Go(func() { c.cancel(ctx, id, p) })
	}
}

func (c *caller) cancel(ctx context.Context, id string, p executor.Principal) {
	ctx, done := context.WithTimeout(executor.WithPrincipal(ctx, p), abandonLimit)
	defer done()
	if _, err := c.Service.Cancel(ctx, id); err != nil {
		c.log.Warn("cancel the execution of a frontend that is gone", "execution", id, "error", err)
	}
}
