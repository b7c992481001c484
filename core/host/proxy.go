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
	return b.Info(ctx)
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

// sessions returns the present backend's sessions; every plugin.Process has that side and answers unimplemented itself.
func (p *proxy) sessions() (executor.SessionBackend, error) {
	b, err := p.instance.current()
	if err != nil {
		return nil, err
	}
	s, ok := b.(executor.SessionBackend)
	if !ok {
		return nil, executor.Errorf(executor.Unimplemented, "this backend has no sessions")
	}
	return s, nil
}

// OpenSession implements executor.SessionBackend.
func (p *proxy) OpenSession(ctx context.Context, s executor.Session) ([]byte, error) {
	b, err := p.sessions()
	if err != nil {
		return nil, err
	}
	return b.OpenSession(ctx, s)
}

// AdoptSession implements executor.SessionBackend.
func (p *proxy) AdoptSession(ctx context.Context, s executor.Session, handle []byte) error {
	b, err := p.sessions()
	if err != nil {
		return err
	}
	return b.AdoptSession(ctx, s, handle)
}

// RestartSession implements executor.SessionBackend.
func (p *proxy) RestartSession(ctx context.Context, id string) error {
	b, err := p.sessions()
	if err != nil {
		return err
	}
	return b.RestartSession(ctx, id)
}

// CloseSession implements executor.SessionBackend.
func (p *proxy) CloseSession(ctx context.Context, id string) error {
	b, err := p.sessions()
	if err != nil {
		return err
	}
	return b.CloseSession(ctx, id)
}
