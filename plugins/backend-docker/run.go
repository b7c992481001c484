package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// plan is how a job will run.
type plan struct {
	start  runner.Start
	class  class
	limits capacity
	digest string
}

// handle finds a program again: Started.Handle.
type handle struct {
	Container string `json:"container"`
	Epoch     uint64 `json:"epoch"`
	Digest    string `json:"digest,omitempty"`
}

// Run implements executor.Backend.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := refuse(job, b.can); err != nil {
		return executor.Result{}, err
	}
	if job.Spec.Session != "" {
		return b.runInSession(ctx, job, sink)
	}
	if l := job.Spec.Language; l != executor.LanguageDefault && l != executor.LanguagePython {
		return executor.Result{}, executor.FieldErrorf(executor.Unimplemented, "language", "outside of a session the docker backend runs Python; use command for others")
	}
	ctx, r, err := b.enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer b.leave(job.ID, r)
	begun := time.Now()
	e := &emitter{sink: sink, stop: r.cancel}
	p, failure, err := b.plan(ctx, job, e)
	switch {
	case e.err != nil:
		return executor.Result{}, e.err
	case ctx.Err() != nil:
		return b.unstarted(ctx, time.Since(begun))
	case err != nil:
		return executor.Result{}, err
	case failure != nil:
		return executor.Result{Status: executor.StatusFailed, Failure: failure, CPU: -1, ImageDigest: p.digest, Phases: executor.Phases{Prepare: time.Since(begun)}}, nil
	}
	return b.execute(ctx, job, p, sink, begun)
}

// unstarted is how a job ends whose ctx ended before there was a program.
func (b *Backend) unstarted(ctx context.Context, prepared time.Duration) (executor.Result, error) {
	if b.letsGo(ctx) {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "let go before it started: %w", context.Cause(ctx))
	}
	return executor.Result{Status: executor.StatusKilled, CPU: -1, Phases: executor.Phases{Prepare: prepared}}, nil
}

// letsGo reports whether the end of ctx means that the program shall go on without us.
func (b *Backend) letsGo(ctx context.Context) bool {
	return !b.embedded && errors.Is(context.Cause(ctx), executor.ErrCallerGone)
}

// emitter hands Progress to a sink while a job is prepared. An error of the sink ends the job.
type emitter struct {
	sink executor.Sink
	stop context.CancelCauseFunc
	err  error
}

func (e *emitter) progress(p executor.Progress) {
	if e.err != nil {
		return
	}
	if e.err = e.sink.Emit(executor.Event{Body: p}); e.err != nil {
		e.stop(e.err)
	}
}

// plan turns a job into what the runner is told, and makes the image that it needs. Of an image that is known nothing in it
// asks the daemon.
func (b *Backend) plan(ctx context.Context, job executor.Job, e *emitter) (plan, *executor.Failure, error) {
	spec := job.Spec
	image, i, failure, err := b.image(ctx, spec, e)
	p := plan{digest: image.Digest}
	if failure != nil || err != nil {
		return p, failure, err
	}
	p.class = b.class(image.ID, spec.Network, job.Limits, false)
	p.limits = capacityOf(job.Limits)
	p.start = runner.Start{
		ExecutionID: job.ID, Command: spec.Command, Entrypoint: spec.Entrypoint, Code: spec.Code, Args: spec.Args, Env: spec.Env,
		Path: programPath(image.Path), Network: true, // whatever the container has
		Limits: job.Limits, Outputs: spec.Outputs, OutputsChanged: spec.OutputsChanged, SampleInterval: spec.SampleInterval,
		PythonVersion: i.Version, Requirements: image.Requirements, Deadline: deadline(job.Limits),
	}
	if len(spec.Command) == 0 {
		if i.Path == "" {
			return p, &executor.Failure{
				Code: executor.NotFound, Phase: executor.PhaseStart, Field: "docker_image",
				Message: "the image " + b.wanted(spec) + " has neither python3 nor python on its PATH",
			}, nil
		}
		p.start.Interpreter = []string{i.Path}
	}
	return p, nil, nil
}

// class is which waiting containers are as good as a new one.
func (b *Backend) class(image string, network executor.Network, l executor.Limits, session bool) class {
	c := class{Image: image, Runtime: b.config.Runtime, Network: network == executor.NetworkOn, DiskBytes: l.DiskBytes, Session: session}
	if b.place.Under.fixes() {
		c.Limits = capacityOf(l)
	}
	return c
}

// wanted is the name of the image that spec asks for.
func (b *Backend) wanted(spec executor.Spec) string {
	if spec.Image != "" {
		return spec.Image
	}
	return b.config.DefaultImage
}

// image finds or makes the image of a job, and its interpreter.
func (b *Backend) image(ctx context.Context, spec executor.Spec, e *emitter) (imageInfo, interpreter, *executor.Failure, error) {
	name, err := chooseImage(spec.Image, spec.PythonVersion, b.config.DefaultImage)
	if err != nil {
		return imageInfo{}, interpreter{}, nil, err
	}
	info, i, err := b.look(ctx, name, e)
	if err != nil {
		failure, err := inputFailure(err, "docker_image")
		return info, i, failure, err
	}
	if spec.PythonVersion != "" && i.minor() != spec.PythonVersion {
		code := executor.Unimplemented
		if spec.Image != "" {
			code = executor.Invalid // the two contradict each other
		}
		return info, i, nil, executor.FieldErrorf(code, "python_version", "the image %s has Python %s, not %s", name, i.orNone(), spec.PythonVersion)
	}
	if strings.TrimSpace(spec.Requirements) == "" && len(spec.PreCommands) == 0 {
		return info, i, nil, nil
	}
	made, failure, err := b.images.prepare(ctx, info, prepareSpec{
		PreCommands: spec.PreCommands, Requirements: spec.Requirements, PythonVersion: spec.PythonVersion,
	}, e.progress)
	if failure != nil || err != nil {
		return info, i, failure, err
	}
	made.Digest = info.Digest // what was asked for; the prepared one is nobody's but ours
	i, err = b.interpreters.find(ctx, made)
	return made, i, nil, err
}

func (b *Backend) look(ctx context.Context, name string, e *emitter) (imageInfo, interpreter, error) {
	info, err := b.images.ensure(ctx, name, e.progress)
	if err != nil {
		return info, interpreter{}, err
	}
	i, err := b.interpreters.find(ctx, info)
	if err == nil && name == b.config.DefaultImage {
		b.warmed(nil)
	}
	return info, i, err
}

// inputFailure makes of an error about the user's input a Failure of the preparation; others stay errors.
func inputFailure(err error, field string) (*executor.Failure, error) {
	code, named := executor.CodeOf(err), false
	if e, ok := errors.AsType[*executor.Error](err); ok && len(e.Fields) > 0 {
		field, named = e.Fields[0].Field, true
	}
	switch {
	case code == executor.Invalid || code == executor.Denied || code == executor.NotFound:
		code = executor.Invalid
	case code == executor.Unavailable && named: // a registry is, not the daemon: whoever waits for us to come back waits in vain
	default:
		return nil, err
	}
	return &executor.Failure{Code: code, Phase: executor.PhasePrepare, Message: err.Error(), Field: field}, nil
}

// execute runs a planned job in a container of its own. One that died while nobody used it may show only when it is used:
// if nothing has happened yet, the job gets another.
func (b *Backend) execute(ctx context.Context, job executor.Job, p plan, sink executor.Sink, begun time.Time) (executor.Result, error) {
	workspace, stdin := runner.NewSourceReader(job.Workspace), runner.NewSourceReader(job.Stdin)
	defer workspace.Close() //nolint:errcheck // it was read; there is nothing to lose
	defer stdin.Close()     //nolint:errcheck // likewise
	for {
		s, warm, err := b.pool.claim(ctx, p.class, p.limits)
		if ctx.Err() != nil {
			if s != nil {
				b.spend(s)
			}
			return b.unstarted(ctx, time.Since(begun))
		}
		if executor.CodeOf(err) == executor.NotFound {
			b.images.forget(p.class.Image)
			return executor.Result{}, executor.Errorf(executor.Unavailable, "the image is gone: %w", err)
		}
		if err != nil {
			return executor.Result{}, err
		}
		prepared := time.Since(begun)
		if old := b.results.take(job.ID); old != nil {
			b.factory.discard(old) // of an attempt before this one
		}
		b.claimed(job.ID, s.id, deadline(job.Limits))
		out := &jobSink{Sink: sink, handle: handle{s.id, s.conn.Epoch(), p.digest}}
		result, err := b.see(ctx, s, func(ctx context.Context) (executor.Result, error) {
			return s.conn.Run(ctx, p.start, runner.RunInput{Workspace: workspace.Reader(), Stdin: stdin.Reader()}, out)
		})
		if b.letsGo(ctx) && executor.CodeOf(err) == executor.Unavailable {
			b.pool.done(s.class)
			return executor.Result{}, err
		}
		result, err = b.diedOf(ctx, s, out.started, result, err)
		out.reached.count(&result)
		b.pool.done(s.class)
		b.retire(job.ID, s, out.started, err)
		if warm && executor.CodeOf(err) == executor.Unavailable && !out.touched && !workspace.Opened() && !stdin.Opened() && ctx.Err() == nil {
			continue
		}
		result.Phases.Prepare += prepared
		result.ImageDigest = p.digest
		return result, err
	}
}

// diedOf is the outcome of a program whose runner went away: out of memory if its whole container was.
func (b *Backend) diedOf(ctx context.Context, s *sandbox, started bool, result executor.Result, err error) (executor.Result, error) {
	if executor.CodeOf(err) != executor.Unavailable || !started || ctx.Err() != nil || !s.ended() || !b.factory.full(context.WithoutCancel(ctx), s.id) {
		return result, err
	}
	return executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", CPU: -1}, nil
}

// reached is how far the streams are in the log.
type reached struct{ stdout, stderr int64 }

func (r *reached) note(o executor.Output) {
	end := o.Offset + int64(len(o.Data))
	if o.Stream == executor.Stderr {
		r.stderr = max(r.stderr, end)
	} else {
		r.stdout = max(r.stdout, end)
	}
}

// count puts into a Result what of its output is known to have been written: nobody else says it of one whose runner is gone.
func (r *reached) count(result *executor.Result) {
	result.StdoutBytes, result.StderrBytes = max(result.StdoutBytes, r.stdout), max(result.StderrBytes, r.stderr)
}

// see calls run with a ctx that ends with ctx, unless that only means that the caller went away: then the container is let
// go, and run fails as unavailable.
func (b *Backend) see(ctx context.Context, s *sandbox, run func(context.Context) (executor.Result, error)) (executor.Result, error) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	end := func() {
		if b.letsGo(ctx) {
			_ = s.conn.Detach() // run returns because of it
		} else {
			cancel(context.Cause(ctx))
		}
	}
	if ctx.Err() != nil {
		end() // before run begins, which AfterFunc would not promise
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end()
	})
	result, err := run(inner)
	if !stop() {
		<-ended
	}
	return result, err
}

// spend clears a sandbox away that was used, behind the answer.
func (b *Backend) spend(s *sandbox) {
	b.factory.discard(s)
	b.pool.done(s.class)
}

// jobSink puts into Started what the runner does not know.
type jobSink struct {
	executor.Sink
	handle  handle
	touched bool
	started bool
	reached reached
}

// Emit implements executor.Sink.
func (w *jobSink) Emit(e executor.Event) error {
	w.touched = true
	if o, ok := e.Body.(executor.Output); ok {
		w.reached.note(o)
	}
	if s, ok := e.Body.(executor.Started); ok {
		raw, err := json.Marshal(w.handle)
		if err != nil {
			return err
		}
		w.started = true
		s.PID, s.Handle = 0, raw // its number is one of the container's
		e.Body = s
	}
	return w.Sink.Emit(e)
}

// programPath is the PATH of programs in an image that says so.
func programPath(ofImage string) string {
	if ofImage != "" {
		return ofImage
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}
