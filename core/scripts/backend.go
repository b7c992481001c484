package scripts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// Name is the backend's name and type. Specs with a Script go to it without naming it.
const Name = "scripts"

// Options are what a Backend needs besides its Policy.
type Options struct {
	Policy Policy
	// WorkDir is a folder of ours for temporary files.
	WorkDir string
	// Runner is how a runner is started: the program and its whole argv, to which "--fd 3" is added. nil: the embedded one,
	// else this program's own `runner` command.
	Runner func() (path string, args []string, err error)
	// Version of the program.
	Version string
	Log     *slog.Logger
}

// Backend runs allow-listed scripts. It implements executor.Backend, executor.ScriptBackend and io.Closer.
type Backend struct {
	policy  Policy
	options Options
	log     *slog.Logger
	runner  *program
	audit   *audit

	mu      sync.Mutex
	closed  bool
	running map[string]*running
	wg      sync.WaitGroup
}

// running is one script at work.
type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

var (
	_ executor.Backend       = (*Backend)(nil)
	_ executor.ScriptBackend = (*Backend)(nil)
)

// New returns the backend. Codes: invalid (the log folder), internal.
func New(o Options) (*Backend, error) {
	p := &o.Policy
	if p.Timeout <= 0 {
		p.Timeout = defaultTimeout
	}
	if p.MaxOutputBytes <= 0 {
		p.MaxOutputBytes = defaultOutput
	}
	if p.MaxLineBytes <= 0 {
		p.MaxLineBytes = defaultLine
	}
	b := &Backend{policy: o.Policy, options: o, log: o.Log, running: map[string]*running{}}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if b.audit, err = openAudit(p.LogDir); err != nil {
		return nil, executor.FieldErrorf(executor.Invalid, "scripts.log_dir", "%v", err)
	}
	if b.runner, err = findRunner(o.Runner); err != nil {
		return nil, errors.Join(executor.Errorf(executor.Internal, "runner: %w", err), b.audit.close())
	}
	return b, nil
}

// Info implements executor.Backend.
func (b *Backend) Info(context.Context) (executor.Info, error) {
	return executor.Info{
		Name: Name, Type: Name, Version: b.options.Version, Healthy: true,
		Capabilities: executor.Capabilities{Isolation: executor.IsolationNone, NetworkOn: true, Scripts: true},
		Warnings: []string{
			"allowed scripts run with the rights of the server: no memory, disk, CPU or process limit and no isolation",
		},
		Details: map[string]string{
			"allowed": fmt.Sprint(len(b.policy.Scripts)), "root": b.policy.Root, "log_dir": b.policy.LogDir, "pid": fmt.Sprint(os.Getpid()),
		},
	}, nil
}

// Scripts implements executor.ScriptBackend.
func (b *Backend) Scripts(context.Context) ([]executor.Script, error) {
	list := make([]executor.Script, 0, len(b.policy.Scripts))
	for _, path := range b.policy.Scripts {
		list = append(list, executor.Script{Path: path, AllowedArgs: slices.Clone(b.policy.Args)})
	}
	return list, nil
}

// Run implements executor.Backend.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	plan, err := b.plan(job)
	if err != nil {
		b.record(job, job.Spec.Script, job.Spec.Args, executor.Result{}, err, 0)
		return executor.Result{}, err
	}
	ctx, r, err := b.enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer b.leave(job.ID, r)
	return b.run(ctx, job, plan, sink)
}

// Attach implements executor.Backend: scripts do not outlive the core.
func (b *Backend) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "scripts end with the server")
}

// Remove implements executor.Backend.
func (b *Backend) Remove(ctx context.Context, id string) error {
	b.mu.Lock()
	r := b.running[id]
	b.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel(executor.Errorf(executor.Unavailable, "removed"))
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "remove %s: %w", id, context.Cause(ctx))
	}
}

// Close ends every script. Idempotent; Run answers unavailable then.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, r := range b.running {
		r.cancel(executor.Errorf(executor.Unavailable, "the server is stopping"))
	}
	b.mu.Unlock()
	b.wg.Wait()
	return errors.Join(b.audit.close(), b.runner.close())
}

func (b *Backend) enter(ctx context.Context, id string) (context.Context, *running, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, executor.Errorf(executor.Unavailable, "the server is stopping")
	}
	if b.running[id] != nil {
		return nil, nil, executor.Errorf(executor.Conflict, "execution %s runs already", id)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{cancel: cancel, done: make(chan struct{})}
	b.running[id] = r
	b.wg.Add(1)
	return ctx, r, nil
}

func (b *Backend) leave(id string, r *running) {
	b.mu.Lock()
	delete(b.running, id)
	b.mu.Unlock()
	r.cancel(nil)
	close(r.done)
	b.wg.Done()
}
