package uvbackend

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// plan is how a job will run.
type plan struct {
	start       runner.Start
	network     bool
	environment *environment // nil without requirements
}

// Run implements executor.Backend.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := refuse(job.Spec, b.can); err != nil {
		return executor.Result{}, err
	}
	if job.Spec.Session != "" {
		return b.runInSession(ctx, job, sink)
	}
	i, err := b.choose(ctx, job.Spec)
	if err != nil {
		return executor.Result{}, err
	}
	ctx, r, err := b.enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer b.leave(job.ID, r)
	begun := time.Now()
	p, failure, err := b.plan(ctx, job, i, sink)
	prepared := time.Since(begun)
	if p.environment != nil {
		defer p.environment.release()
	}
	switch {
	case ctx.Err() != nil && !isSinkError(err):
		return killed(prepared), nil
	case err != nil:
		return executor.Result{}, unwrapSink(err)
	case failure != nil:
		return executor.Result{Status: executor.StatusFailed, Failure: failure, CPU: -1, Phases: executor.Phases{Prepare: prepared}}, nil
	}
	result, err := b.execute(ctx, job, p, sink)
	result.Phases.Prepare += prepared
	return result, err
}

func killed(prepared time.Duration) executor.Result {
	return executor.Result{Status: executor.StatusKilled, CPU: -1, Phases: executor.Phases{Prepare: prepared}}
}

// choose picks the interpreter; one that is missing is looked for once more, because it may have been installed meanwhile.
func (b *Backend) choose(ctx context.Context, spec executor.Spec) (interpreter, error) {
	i, err := choose(spec, b.config.ImageMap, *b.inventory.Load())
	if code := executor.CodeOf(err); (code == executor.Unimplemented || code == executor.Unavailable) && b.researched(ctx) {
		i, err = choose(spec, b.config.ImageMap, *b.inventory.Load())
	}
	return i, err
}

// sinkError marks an error that came from the caller's Sink.
type sinkError struct{ error }

func isSinkError(err error) bool {
	_, ok := errors.AsType[sinkError](err)
	return ok
}

func unwrapSink(err error) error {
	if s, ok := errors.AsType[sinkError](err); ok {
		return s.error
	}
	return err
}

// plan turns a job into what the runner is told. With requirements it prepares their environment; without, nothing in it
// starts a process or opens a file.
func (b *Backend) plan(ctx context.Context, job executor.Job, i interpreter, sink executor.Sink) (plan, *executor.Failure, error) {
	spec := job.Spec
	p := plan{network: spec.Network == executor.NetworkOn || (spec.Network == executor.NetworkDefault && !b.how.offByDefault())}
	alias, err := i.alias(b.aliasDir())
	if err != nil {
		return p, nil, executor.Errorf(executor.Internal, "name the interpreter: %w", err)
	}
	argv, path, packages := i.Path, programPath(alias), []string(nil)
	if strings.TrimSpace(spec.Requirements) != "" {
		lines, err := normalise(spec.Requirements, b.config.AllowBuilds)
		if err != nil {
			return p, refused(err), nil
		}
		if len(lines) > 0 {
			emit := func(e executor.Progress) error {
				if err := sink.Emit(executor.Event{Body: e}); err != nil {
					return sinkError{err}
				}
				return nil
			}
			env, failure, err := b.flights.prepare(ctx, want{i, lines}, emit)
			if failure != nil || err != nil {
				return p, failure, err
			}
			p.environment = env
			argv, path, packages = env.python(), programPath(env.bin()), env.Requirements
		}
	}
	p.start = runner.Start{
		ExecutionID: job.ID, Command: spec.Command, Entrypoint: spec.Entrypoint, Code: spec.Code, Args: spec.Args, Env: spec.Env,
		Path: path, Directory: spec.HostDirectory, Network: p.network, Limits: job.Limits, Outputs: spec.Outputs,
		OutputsChanged: spec.OutputsChanged, SampleInterval: spec.SampleInterval, PythonVersion: i.Version, Requirements: packages,
	}
	if len(spec.Command) == 0 {
		p.start.Interpreter = []string{argv}
	}
	p.start.Reach = installation(i.Path)
	if real, err := filepath.EvalSymlinks(spec.HostDirectory); err == nil {
		p.start.Reach = append(p.start.Reach, real)
	}
	return p, nil, nil
}

// installation lists what an interpreter needs to run: the folder above its own, and its file behind the links.
func installation(path string) []string {
	list := []string{filepath.Dir(filepath.Dir(path)), path}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		list = append(list, installation(real)...)
	}
	return list
}

// execute runs a planned job on a slot. A runner that died while nobody used it may show only when it is used: if nothing
// has happened yet, the job gets another slot, at the latest a fresh one.
func (b *Backend) execute(ctx context.Context, job executor.Job, p plan, sink executor.Sink) (executor.Result, error) {
	for {
		s, fresh, err := b.takeSlot(ctx, p.network)
		if ctx.Err() != nil {
			if err == nil {
				b.slots.put(s)
			}
			return killed(0), nil
		}
		if err != nil {
			return executor.Result{}, err
		}
		s.weigh(job.Limits.CPUShares)
		workspace, stdin := runner.NewSourceReader(job.Workspace), runner.NewSourceReader(job.Stdin)
		watched := &watchedSink{Sink: sink, start: &p.start}
		result, err := s.conn.Run(ctx, p.start, runner.RunInput{Workspace: workspace.Reader(), Stdin: stdin.Reader()}, watched)
		gone := executor.CodeOf(err) == executor.Unavailable
		if gone {
			_ = s.conn.Close() // whatever it was, nobody uses this runner again
		}
		b.slots.put(s)
		untouched := !watched.touched && !workspace.Opened() && !stdin.Opened()
		if gone && untouched && !fresh && ctx.Err() == nil {
			continue
		}
		if f := result.Failure; f != nil && f.Phase == executor.PhaseStart && len(job.Spec.Command) == 0 && !isFile(p.start.Interpreter[0]) {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "the interpreter %s is gone", p.start.Interpreter[0])
		}
		return result, err
	}
}

// watchedSink remembers whether anything was emitted, and puts into Started what the runner need not know.
type watchedSink struct {
	executor.Sink
	start   *runner.Start
	touched bool
}

// Emit implements executor.Sink.
func (w *watchedSink) Emit(e executor.Event) error { return w.Sink.Emit(w.watch(e)) }

func (w *watchedSink) watch(e executor.Event) executor.Event {
	w.touched = true
	if s, ok := e.Body.(executor.Started); ok {
		s.PythonVersion, s.Requirements = w.start.PythonVersion, w.start.Requirements
		e.Body = s
	}
	return e
}

// Trail implements executor.TrailingSink.
func (w *watchedSink) Trail(e executor.Event) error {
	if trailing, ok := w.Sink.(executor.TrailingSink); ok {
		return trailing.Trail(w.watch(e))
	}
	return w.Emit(e)
}
