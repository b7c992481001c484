package scripts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// Name is the name and type of the backend. The engine gives it every Spec with a Script.
const Name = "scripts"

// Options are the parameters of New.
type Options struct {
	// Policy must be valid (config.Config.Validate).
	Policy config.Scripts
	// WorkDir is a folder of the server for temporary files.
	WorkDir string
	// Runner returns the runner's path and its argv, to which "--fd 3" is added. nil: the embedded runner, or the `runner`
	// command of this program if none is embedded.
	Runner func() (path string, args []string, err error)
	// Version is the version of the program.
	Version string
	// Log is the log of the backend; nil: none.
	Log *slog.Logger
}

// Backend runs allow-listed scripts. It implements executor.Backend, executor.ScriptBackend and io.Closer.
type Backend struct {
	policy  policy
	options Options
	log     *slog.Logger
	runner  *program
	audit   *audit

	jobs backend.Jobs
}

var (
	_ executor.Backend       = (*Backend)(nil)
	_ executor.ScriptBackend = (*Backend)(nil)
)

// New returns the backend. Codes: invalid (the log folder), internal.
func New(o Options) (*Backend, error) {
	b := &Backend{policy: policy{o.Policy}, options: o, log: o.Log}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	_, err := b.policy.arguments(o.Policy.DefaultArgs)
	if err != nil {
		return nil, executor.FieldErrorf(executor.Invalid, "scripts.default_args", "must be allowed by scripts.args: %v", err)
	}
	if b.audit, err = openAudit(o.Policy.LogDir); err != nil {
		return nil, executor.FieldErrorf(executor.Invalid, "scripts.log_dir", "%v", err)
	}
	if b.runner, err = findRunner(o.Runner); err != nil {
		return nil, errors.Join(executor.Errorf(executor.Internal, "runner: %w", err), b.audit.close())
	}
	return b, nil
}

var capabilities = executor.Capabilities{Isolation: executor.IsolationNone, NetworkOn: true, Scripts: true, CPUTime: true}

// Info implements executor.Backend.
func (b *Backend) Info(context.Context) (executor.Info, error) {
	return executor.Info{
		Name: Name, Type: Name, Version: b.options.Version, Healthy: true,
		Capabilities: capabilities,
		Warnings: []string{
			"allowed scripts run with the rights of the server: no limit of memory, disk, cpu_shares or processes and no isolation",
		},
		Details: map[string]string{
			"allowed": fmt.Sprint(len(b.policy.Allowed)), "root": b.policy.Root, "log_dir": b.policy.LogDir, "pid": fmt.Sprint(os.Getpid()),
		},
	}, nil
}

// Scripts implements executor.ScriptBackend.
func (b *Backend) Scripts(ctx context.Context) ([]executor.Script, error) {
	if r, ok := executor.RefusedScriptFrom(ctx); ok {
		b.write(auditLine{Tool: r.Tool, Path: r.Path, Args: r.Args, Result: string(r.Code), Requester: executor.PrincipalFrom(ctx).Owner})
		return nil, nil
	}
	b.recordList(executor.PrincipalFrom(ctx).Owner)
	list := make([]executor.Script, 0, len(b.policy.Allowed))
	for _, path := range b.policy.Allowed {
		list = append(list, executor.Script{Path: path, AllowedArgs: slices.Clone(b.policy.Args), DefaultArgs: slices.Clone(b.policy.DefaultArgs)})
	}
	return list, nil
}

// Run implements executor.Backend.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	plan, err := b.plan(job)
	if err != nil {
		b.record(ctx, job, job.Spec.Script, job.Spec.Args, executor.Result{}, err, 0)
		return executor.Result{}, err
	}
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	return b.run(ctx, job, plan, sink)
}

// Attach implements executor.Backend. It is unimplemented, because scripts do not outlive the core.
func (b *Backend) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "scripts end with the server")
}

// Remove implements executor.Backend.
func (b *Backend) Remove(ctx context.Context, id string) error { return b.jobs.Remove(ctx, id) }

// Close ends every script. It is idempotent. Run then returns unavailable.
func (b *Backend) Close() error {
	b.jobs.Close(executor.Errorf(executor.Unavailable, "the server is stopping"))
	return errors.Join(b.audit.close(), b.runner.close())
}
