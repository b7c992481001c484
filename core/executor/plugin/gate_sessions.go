package plugin

import (
	"context"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// sessions returns the backend as a SessionBackend, entered.
func (g *guarded) sessions() (executor.SessionBackend, error) {
	if err := g.gate.enter(); err != nil {
		return nil, err
	}
	s, ok := g.backend.(executor.SessionBackend)
	if !ok {
		g.gate.leave()
		return nil, executor.Errorf(executor.Unimplemented, "this backend has no sessions")
	}
	return s, nil
}

// OpenSession implements executor.SessionBackend.
func (g *guarded) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	b, err := g.sessions()
	if err != nil {
		return executor.OpenedSession{}, err
	}
	defer g.gate.leave()
	return b.OpenSession(ctx, s)
}

// AdoptSession implements executor.SessionBackend.
func (g *guarded) AdoptSession(ctx context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	b, err := g.sessions()
	if err != nil {
		return executor.OpenedSession{}, err
	}
	defer g.gate.leave()
	return b.AdoptSession(ctx, s, handle)
}

// RestartSession implements executor.SessionBackend.
func (g *guarded) RestartSession(ctx context.Context, id string, wipe bool) error {
	b, err := g.sessions()
	if err != nil {
		return err
	}
	defer g.gate.leave()
	return b.RestartSession(ctx, id, wipe)
}

// CloseSession implements executor.SessionBackend.
func (g *guarded) CloseSession(ctx context.Context, id string) error {
	b, err := g.sessions()
	if err != nil {
		return err
	}
	defer g.gate.leave()
	return b.CloseSession(ctx, id)
}

// Variables implements executor.SessionBackend.
func (g *guarded) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	b, err := g.sessions()
	if err != nil {
		return nil, err
	}
	defer g.gate.leave()
	return b.Variables(ctx, id)
}

// AddRequirements implements executor.SessionBackend.
func (g *guarded) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	b, err := g.sessions()
	if err != nil {
		return nil, err
	}
	defer g.gate.leave()
	return b.AddRequirements(ctx, id, requirements)
}

// ListFiles implements executor.SessionBackend.
func (g *guarded) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	b, err := g.sessions()
	if err != nil {
		return nil, err
	}
	defer g.gate.leave()
	return b.ListFiles(ctx, id, path, recursive)
}

// ReadFile implements executor.SessionBackend.
func (g *guarded) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	b, err := g.sessions()
	if err != nil {
		return executor.File{}, nil, err
	}
	file, rc, err := b.ReadFile(ctx, id, path)
	if err != nil {
		g.gate.leave()
		return executor.File{}, nil, err
	}
	return file, &guardedReader{ReadCloser: rc, leave: sync.OnceFunc(g.gate.leave)}, nil
}

// guardedReader keeps the gate from draining until the file is read.
type guardedReader struct {
	io.ReadCloser
	leave func()
}

// Close implements io.Closer.
func (r *guardedReader) Close() error {
	defer r.leave()
	return r.ReadCloser.Close()
}

// WriteFile implements executor.SessionBackend.
func (g *guarded) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	b, err := g.sessions()
	if err != nil {
		return executor.File{}, err
	}
	defer g.gate.leave()
	return b.WriteFile(ctx, id, path, size, r)
}

// RemoveFile implements executor.SessionBackend.
func (g *guarded) RemoveFile(ctx context.Context, id, path string) error {
	b, err := g.sessions()
	if err != nil {
		return err
	}
	defer g.gate.leave()
	return b.RemoveFile(ctx, id, path)
}
