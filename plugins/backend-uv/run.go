package uvbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// plan is how a job will run.
type plan struct {
	start       runner.Start
	network     bool
	lines       []string     // the normalised requirements
	environment *environment // nil without requirements
}

// Run implements executor.Backend.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := refuse(job.Spec, b.can, b.how.Why["way_out"]); err != nil {
		return executor.Result{}, err
	}
	if job.Spec.Session != "" {
		return b.runInSession(ctx, job, sink)
	}
	i, missing, err := b.choose(ctx, job.Spec)
	if err != nil {
		return executor.Result{}, err
	}
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	var p plan
	prepared, ready, err := backend.Prepare(ctx, sink, func(ctx context.Context, notify func(executor.Progress)) (failure *executor.Failure, err error) {
		if missing != "" {
			if i, failure, err = b.download(ctx, job.Spec, missing, notify); failure != nil || err != nil {
				return failure, err
			}
		}
		p, failure, err = b.plan(ctx, job, i, notify)
		return failure, err
	})
	if p.environment != nil {
		defer p.environment.release()
	}
	if !ready {
		return prepared, err
	}
	result, err := b.execute(ctx, job, p, sink)
	result.Phases.Prepare += prepared.Phases.Prepare
	result.Failure = backend.AsUser(result.Failure)
	return result, err
}

// choose picks the interpreter. If it is missing, choose searches once more, because it may have been installed meanwhile. If it is missing
// and can be downloaded, choose returns its minor version in its place.
func (b *Backend) choose(ctx context.Context, spec executor.Spec) (i interpreter, missing string, err error) {
	i, err = choose(spec, b.config.ImageMap, *b.inventory.Load())
	if err != nil && b.researched(ctx) {
		i, err = choose(spec, b.config.ImageMap, *b.inventory.Load())
	}
	if err != nil {
		if missing = b.downloadable(spec); missing != "" {
			err = nil
		}
	}
	return i, missing, err
}

// plan turns a job into a Start for the runner. It prepares the environment of the job's requirements. Without requirements it
// starts no process.
func (b *Backend) plan(ctx context.Context, job executor.Job, i interpreter, notify func(executor.Progress)) (plan, *executor.Failure, error) {
	spec := job.Spec
	p := plan{network: spec.Network == executor.NetworkOn || (spec.Network == executor.NetworkDefault && !b.how.offByDefault())}
	alias, err := i.alias(b.aliasDir())
	if err != nil {
		return p, nil, executor.Errorf(executor.Internal, "name the interpreter: %w", err)
	}
	argv, path, packages := i.Path, programPath(alias), []string(nil)
	var failure *executor.Failure
	if p.lines, failure = b.normalise(spec.Requirements); failure != nil {
		return p, failure, nil
	}
	if len(p.lines) > 0 {
		env, failure, err := b.builder.environment(ctx, want{i, p.lines}, notify)
		if failure != nil || err != nil {
			return p, failure, err
		}
		p.environment = env
		argv, path, packages = env.python(), programPath(env.bin()), env.Requirements
	}
	p.start = protocol.NewStart(job)
	p.start.Tree = b.trees.again(job)
	p.start.PreCommands = spec.PreCommands
	p.start.Last = !b.ran.Swap(true) && b.embedded // a command mostly runs one program
	p.start.Path, p.start.Network, p.start.PythonVersion, p.start.Requirements = path, p.network, i.Version, packages
	if len(spec.PreCommands) > 0 {
		p.start.Fork = "" // a program that is prepared starts on its own
	} else if p.start.Fork = b.forks(job.Owner, p.environment); p.start.Fork != "" {
		p.start.Preimport, p.start.PreimportLearned = b.config.Preimport, b.config.PreimportLearned
	}
	if len(spec.Command) == 0 {
		p.start.Interpreter = []string{argv}
	}
	p.start.Reach = append(slices.Clone(i.reach), alias)
	if p.environment != nil {
		p.start.Reach, p.start.Caches = append(p.start.Reach, p.environment.dir), p.environment.caches()
	}
	p.start.DirectoryWritable = spec.HostDirectory != "" && b.config.writable(spec.HostDirectory)
	return p, nil, nil
}

// boundsForks reports whether groups bound and count the processes of a fork server.
func boundsForks(groups sandbox.Cgroups) bool {
	return groups.Enforces("memory") && groups.Enforces("pids")
}

// forks returns the name of those whose programs may be forks of one interpreter, or "" if each program gets a new one. env is nil
// without requirements. A fork server that imports packages must be bounded, and counted from outside.
func (b *Backend) forks(owner string, env *environment) string {
	switch {
	case owner == "" || b.config.Start == StartExec:
		return ""
	case env == nil:
		return owner
	case env.StartupCode != "" || !b.boundsForks:
		return ""
	}
	return owner + "/" + env.Key
}

// forkOf returns what programs of one fork server have in common, or "" for a program that no fork can run. Preimport and Path follow
// from the rest.
func forkOf(start runner.Start) string {
	if start.Fork == "" || len(start.Interpreter) != 1 {
		return ""
	}
	return fmt.Sprintf("%q %q %q %v", start.Fork, start.Interpreter[0], start.Entrypoint, start.Network)
}

// normalise returns the normalised lines of a requirements text, or the reason why this backend refuses the text.
func (b *Backend) normalise(text string) ([]string, *executor.Failure) {
	lines, err := requirements.Normalise(text, requirements.Options{AllowBuilds: b.config.AllowBuilds, Setting: "backends.uv.allow_builds", CheckURL: b.builder.fetches.CheckURL})
	if err != nil {
		return nil, requirements.Refused(err)
	}
	return lines, nil
}

// execute runs a planned job on a slot. The death of an idle runner may show only when the runner is used. If nothing has
// happened by then, the job gets another slot; a fresh slot is the last try.
func (b *Backend) execute(ctx context.Context, job executor.Job, p plan, sink executor.Sink) (executor.Result, error) {
	for {
		s, fresh, err := b.takeSlot(ctx, p.network, forkOf(p.start))
		if ctx.Err() != nil {
			if err == nil {
				b.slots.put(s)
			}
			return executor.Result{Status: executor.StatusKilled, CPU: -1}, nil
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
			_ = s.conn.Close() // no job uses this runner again
		}
		b.slots.put(s)
		if errors.Is(err, runner.ErrTaken) { // the program must not begin twice
			if err := watched.Emit(executor.Event{Body: executor.Started{}}); err != nil {
				return executor.Result{}, err
			}
		}
		untouched := !watched.touched && !workspace.Opened() && !stdin.Opened()
		if gone && untouched && !fresh && ctx.Err() == nil {
			continue
		}
		if f := result.Failure; f != nil && f.Phase == executor.PhaseStart && len(job.Spec.Command) == 0 && !isFile(p.start.Interpreter[0]) {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "interpreter %s no longer exists", p.start.Interpreter[0])
		}
		return result, err
	}
}

// watchedSink records whether the runner has emitted an Event. It adds the Python version and the requirements to Started.
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
