package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/host"
	memorystore "github.com/python-executor/python-executor/core/store/memory"
	sqlitestore "github.com/python-executor/python-executor/core/store/sqlite"
)

// windowBytes is how far a program may be ahead of the terminal that drains its output.
const windowBytes = 4 << 20

// shortLived is the GOGC of a command that runs one program. The start needs more than the 4 MiB after which Go collects garbage.
const shortLived = 800

// Local is an engine inside this process.
type Local struct {
	executor.Service
	stack closers
}

// Embedded starts host and engine for one command. Without a limit on output, its log is a window, so the caller must follow each
// Execution. ctx bounds the start only.
func Embedded(ctx context.Context, o EmbeddedOptions) (_ *Local, err error) {
	if !o.Lasting && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(shortLived)
	}
	l := &Local{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.stack.close(ctx))
		}
	}()
	// Spooled input may be large: it goes where temporary files belong, not beside the sockets.
	if o.Lasting {
		sweep(os.TempDir())
	}
	spool, err := makeTemporary(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("no folder for temporary files (TMPDIR): %w", err)
	}
	l.stack.add(func(context.Context) error {
		if !o.Lasting { // the program of the command need not wait for it
			sweep(os.TempDir())
		}
		return spool.Close()
	})
	blobs, err := dirblobs.Open(filepath.Join(spool.path, "blobs"))
	if err != nil {
		return nil, err
	}
	b, err := o.backends(ctx, spool.path, &l.stack)
	if err != nil {
		return nil, err
	}
	store, err := o.store(spool.path)
	if err != nil {
		return nil, err
	}
	l.stack.add(func(context.Context) error { return store.Close() })
	admission, retention := config.Engine{MaxConcurrent: max(1, min(o.Parallel, o.Config.Engine.MaxConcurrent)), MaxQueued: max(1, o.Parallel)}, config.Retention{}
	if o.Lasting {
		admission, retention = o.Config.Engine, o.Config.Retention
	}
	backends := b.Backends()
	if o.Lasting {
		if backends, err = withScripts(o.Config, backends, spool.path, o.Bundle.Version, &l.stack, o.Log); err != nil {
			return nil, err
		}
	}
	e, err := engine.New(engine.Options{
		Store: store, Blobs: blobs, Backends: backends, DefaultBackend: o.Config.Backend,
		Engine: admission, Limits: o.Config.Limits, Retention: retention, Sessions: o.Config.Sessions, Log: o.Log,
		Embedded: true, HostDirectories: o.Config.MCP.Directories,
	})
	if err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	l.stack.add(func(ctx context.Context) error {
		// The caller has seen the end of its Executions, or does not need it, so Close waits for none.
		now, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("the command has ended"))
		return ignoreCancelled(stopEngine(now, e, b))
	})
	l.Service = e
	return l, nil
}

// started has the backends of an engine.
type started interface {
	Backends() map[string]executor.Backend
	Close(context.Context) error
}

// backends starts the backend: in this process where that is possible, else in a process of its own.
func (o EmbeddedOptions) backends(ctx context.Context, dataDir string, stack *closers) (started, error) {
	if name, factory := o.local(); factory != nil {
		b, err := startLocal(ctx, factory, plugin.Configure{
			Name: name, Instance: newInstance(), Embedded: !o.Lasting, Personal: true, DataDir: dataDir, Options: o.Config.Backends[name].Options, Log: o.Log.With("backend", name),
		})
		if err != nil {
			return nil, err
		}
		stack.add(b.Close)
		return b, nil
	}
	run, err := newRunDir()
	if err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return run.Close() })
	h, err := host.New(host.Options{
		Entries: o.Config.Backends, Instance: newInstance(), Embedded: !o.Lasting, Personal: true, DataDir: dataDir, RunDir: run.path,
		Command: o.Bundle.command, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	stack.add(h.Close)
	return h, h.Start(ctx)
}

// store returns a store in memory for one execution, whose reader drains it. The logs of many executions, which are read again
// later, would fill the memory. They are kept in a temporary folder.
func (o EmbeddedOptions) store(dir string) (executor.Store, error) {
	if o.Lasting {
		return sqlitestore.Open(filepath.Join(dir, "executions.db"), sqlitestore.Options{Log: o.Log})
	}
	var window int64
	if o.Config.Limits.Max.OutputBytes == executor.Unlimited {
		window = windowBytes
	}
	return memorystore.New(memorystore.Options{LogWindowBytes: window}), nil
}

// Close stops everything in reverse order and removes every temporary folder, even if ctx has ended.
func (l *Local) Close(ctx context.Context) error { return l.stack.close(ctx) }

func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// command returns the command of a bundled type: this binary, under the name of its own call, which tests depend on.
func (b Bundle) command(typ string) (string, []string, error) {
	name, _, ok := b.ByType(typ)
	if !ok {
		return "", nil, executor.Errorf(executor.Invalid, "unknown backend type %q: give path and sha256 of a plugin", typ)
	}
	return "/proc/self/exe", []string{os.Args[0], "plugin", name}, nil
}
