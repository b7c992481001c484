package host

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

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
func (p *proxy) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	b, err := p.sessions()
	if err != nil {
		return executor.OpenedSession{}, err
	}
	return b.OpenSession(ctx, s)
}

// AdoptSession implements executor.SessionBackend.
func (p *proxy) AdoptSession(ctx context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	b, err := p.sessions()
	if err != nil {
		return executor.OpenedSession{}, err
	}
	return b.AdoptSession(ctx, s, handle)
}

// RestartSession implements executor.SessionBackend.
func (p *proxy) RestartSession(ctx context.Context, id string, wipe bool) error {
	b, err := p.sessions()
	if err != nil {
		return err
	}
	return b.RestartSession(ctx, id, wipe)
}

// CloseSession implements executor.SessionBackend.
func (p *proxy) CloseSession(ctx context.Context, id string) error {
	b, err := p.sessions()
	if err != nil {
		return err
	}
	return b.CloseSession(ctx, id)
}

// Variables implements executor.SessionBackend.
func (p *proxy) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	b, err := p.sessions()
	if err != nil {
		return nil, err
	}
	return b.Variables(ctx, id)
}

// AddRequirements implements executor.SessionBackend.
func (p *proxy) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	b, err := p.sessions()
	if err != nil {
		return nil, err
	}
	return b.AddRequirements(ctx, id, requirements)
}

// ListFiles implements executor.SessionBackend.
func (p *proxy) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	b, err := p.sessions()
	if err != nil {
		return nil, err
	}
	return b.ListFiles(ctx, id, path, recursive)
}

// ReadFile implements executor.SessionBackend.
func (p *proxy) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	b, err := p.sessions()
	if err != nil {
		return executor.File{}, nil, err
	}
	return b.ReadFile(ctx, id, path)
}

// WriteFile implements executor.SessionBackend.
func (p *proxy) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	b, err := p.sessions()
	if err != nil {
		return executor.File{}, err
	}
	return b.WriteFile(ctx, id, path, size, r)
}

// RemoveFile implements executor.SessionBackend.
func (p *proxy) RemoveFile(ctx context.Context, id, path string) error {
	b, err := p.sessions()
	if err != nil {
		return err
	}
	return b.RemoveFile(ctx, id, path)
}
