package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// LocalFactory makes a backend in this process.
type LocalFactory = plugin.Factory

// local returns the name and the factory of the only backend, if this process can run the backend itself. factory is nil if a
// process of its own is needed.
func (o EmbeddedOptions) local() (name string, factory LocalFactory) {
	if len(o.Config.Backends) != 1 {
		return "", nil
	}
	for name, entry := range o.Config.Backends {
		if entry.Path == "" {
			_, p, _ := o.Bundle.ByType(entry.TypeOr(name))
			return name, p.Local
		}
	}
	return "", nil
}

// localBackend is a backend in this process. A command saves the start of a plugin, and each call the way to a plugin and back.
type localBackend struct {
	name    string
	backend executor.Backend
}

func startLocal(ctx context.Context, factory LocalFactory, c plugin.Configure) (*localBackend, error) {
	b, err := factory(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", c.Name, err)
	}
	return &localBackend{c.Name, b}, nil
}

// Backends returns the backend by its name.
func (l *localBackend) Backends() map[string]executor.Backend {
	return map[string]executor.Backend{l.name: l.backend}
}

// localGrace is how long Close goes on after the end of its ctx. A backend kills a runner that hangs within that time.
const localGrace = 10 * time.Second

// Close ends the programs of the backend and removes what it has made. Nobody else would do it, so Close goes on for localGrace when
// ctx has ended.
func (l *localBackend) Close(ctx context.Context) error {
	c, ok := l.backend.(io.Closer)
	if !ok {
		return nil
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
	}
	last := time.NewTimer(localGrace)
	defer last.Stop()
	select {
	case err := <-closed:
		return err
	case <-last.C:
		return fmt.Errorf("close backend %s: %w", l.name, context.Cause(ctx))
	}
}
