package backendtest_test

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// sessionFacade is a Backend whose session methods can be replaced one by one.
type sessionFacade struct {
	*fake.Backend
	open      func(ctx context.Context, s executor.Session) (executor.OpenedSession, error)
	adopt     func() error
	restart   func(ctx context.Context, id string, wipe bool) error
	close     func(ctx context.Context, id string) error
	variables func(ctx context.Context, id string) ([]executor.Variable, error)
	require   func(ctx context.Context, id, text string) ([]string, error)
	list      func(ctx context.Context, id, path string, recursive bool) ([]executor.File, error)
	read      func(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error)
	write     func(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error)
}

func (f *sessionFacade) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	if f.open != nil {
		return f.open(ctx, s)
	}
	return f.Backend.OpenSession(ctx, s)
}

func (f *sessionFacade) AdoptSession(ctx context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	if f.adopt != nil {
		return executor.OpenedSession{}, f.adopt()
	}
	return f.Backend.AdoptSession(ctx, s, handle)
}

func (f *sessionFacade) RestartSession(ctx context.Context, id string, wipe bool) error {
	if f.restart != nil {
		return f.restart(ctx, id, wipe)
	}
	return f.Backend.RestartSession(ctx, id, wipe)
}

func (f *sessionFacade) CloseSession(ctx context.Context, id string) error {
	if f.close != nil {
		return f.close(ctx, id)
	}
	return f.Backend.CloseSession(ctx, id)
}

func (f *sessionFacade) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	if f.variables != nil {
		return f.variables(ctx, id)
	}
	return f.Backend.Variables(ctx, id)
}

func (f *sessionFacade) AddRequirements(ctx context.Context, id, text string) ([]string, error) {
	if f.require != nil {
		return f.require(ctx, id, text)
	}
	return f.Backend.AddRequirements(ctx, id, text)
}

func (f *sessionFacade) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	if f.list != nil {
		return f.list(ctx, id, path, recursive)
	}
	return f.Backend.ListFiles(ctx, id, path, recursive)
}

func (f *sessionFacade) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	if f.read != nil {
		return f.read(ctx, id, path)
	}
	return f.Backend.ReadFile(ctx, id, path)
}

func (f *sessionFacade) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	if f.write != nil {
		return f.write(ctx, id, file, r)
	}
	return f.Backend.WriteFile(ctx, id, file, r)
}

// faced is a wrap that replaces session methods.
func faced(change func(f *sessionFacade)) func(*fake.Backend) executor.Backend {
	return func(b *fake.Backend) executor.Backend {
		f := &sessionFacade{Backend: b}
		change(f)
		return f
	}
}
