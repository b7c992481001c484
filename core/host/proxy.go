package host

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

// proxy is the Backend of an entry, whichever process serves it at the moment of a call.
type proxy struct {
	instance *instance
}

var (
	_ executor.Backend        = (*proxy)(nil)
	_ executor.SessionBackend = (*proxy)(nil)
)

// Info implements executor.Backend.
func (p *proxy) Info(ctx context.Context) (executor.Info, error) {
	b, err := p.instance.current()
	if err != nil {
		return executor.Info{}, err
	}
	info, err := b.Info(ctx)
	info.Generation = p.instance.status().Generation
	return info, err
}

// Run implements executor.Backend.
func (p *proxy) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	b, err := p.instance.current()
	if err != nil {
		return executor.Result{}, err
	}
	return b.Run(ctx, job, sink)
}

// Attach implements executor.Backend.
func (p *proxy) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	b, err := p.instance.current()
	if err != nil {
		return executor.Result{}, err
	}
	return b.Attach(ctx, job, r, sink)
}

// Remove implements executor.Backend.
func (p *proxy) Remove(ctx context.Context, id string) error {
	b, err := p.instance.current()
	if err != nil {
		return err
	}
	return b.Remove(ctx, id)
}
