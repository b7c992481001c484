package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// plan describes how a job runs.
type plan struct {
	start  runner.Start
	class  class
	limits capacity
	digest string
}

// handle is the content of Started.Handle, by which a program is found again.
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
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	begun := time.Now()
	var p plan
	prepared, ready, err := backend.Prepare(ctx, sink, func(ctx context.Context, notify func(executor.Progress)) (failure *executor.Failure, err error) {
		p, failure, err = b.plan(ctx, job, notify)
		return failure, err
	})
	switch {
	case prepared.Status == executor.StatusKilled:
		return b.unstarted(ctx, time.Since(begun))
	case prepared.Failure != nil:
		prepared.ImageDigest = p.digest
	}
	if !ready {
		return prepared, err
	}
	return b.execute(ctx, job, p, sink, begun)
}

// unstarted returns the outcome of a job whose ctx ended before its program started.
func (b *Backend) unstarted(ctx context.Context, prepared time.Duration) (executor.Result, error) {
	if b.letsGo(ctx) {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "detached before the program started: %w", context.Cause(ctx))
	}
	return executor.Result{Status: executor.StatusKilled, CPU: -1, Phases: executor.Phases{Prepare: prepared}}, nil
}

// letsGo reports whether the end of ctx means that the program goes on without this backend.
func (b *Backend) letsGo(ctx context.Context) bool {
	return !b.embedded && errors.Is(context.Cause(ctx), executor.ErrCallerGone)
}

// plan returns how a job runs, and prepares the image that it needs. For a known image it makes no request to the daemon.
func (b *Backend) plan(ctx context.Context, job executor.Job, notify func(executor.Progress)) (plan, *executor.Failure, error) {
	spec := job.Spec
	image, i, failure, err := b.image(ctx, spec, notify)
	p := plan{digest: image.Digest}
	if failure != nil || err != nil {
		return p, failure, err
	}
	p.class = b.class(image.ID, spec.Network, job.Limits, false)
	p.limits = capacityOf(job.Limits)
	p.start = protocol.NewStart(job)
	p.start.Path, p.start.Network = image.Path, true // the container decides about the network
	p.start.PythonVersion, p.start.Requirements, p.start.Deadline = i.Version, image.Requirements, deadline(job.Limits)
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

// class returns the class of containers that can run a job.
func (b *Backend) class(image string, network executor.Network, l executor.Limits, session bool) class {
	c := class{Image: image, Runtime: b.config.Runtime, Network: network == executor.NetworkOn, DiskBytes: l.DiskBytes, Session: session}
	if b.place.Under.fixes() {
		c.Limits = capacityOf(l)
	}
	return c
}

// wanted returns the name of the image that spec asks for.
func (b *Backend) wanted(spec executor.Spec) string {
	if spec.Image != "" {
		return spec.Image
	}
	return b.config.DefaultImage
}

// image finds or makes the image of a job, and finds its interpreter.
func (b *Backend) image(ctx context.Context, spec executor.Spec, notify func(executor.Progress)) (imageInfo, runner.Interpreter, *executor.Failure, error) {
	name, err := imagename.Choose(spec.Image, spec.PythonVersion, b.config.DefaultImage)
	if err != nil {
		return imageInfo{}, runner.Interpreter{}, nil, err
	}
	info, i, err := b.look(ctx, name, notify)
	if err != nil {
		failure, err := inputFailure(err, "docker_image")
		return info, i, failure, err
	}
	if spec.PythonVersion != "" && i.Minor() != spec.PythonVersion {
		return info, i, nil, executor.FieldErrorf(executor.Invalid, "python_version", "must match the image %s, whose Python is %s (got %q)", name, i.VersionOrNone(), spec.PythonVersion)
	}
	if strings.TrimSpace(spec.Requirements) == "" && len(spec.PreCommands) == 0 {
		return info, i, nil, nil
	}
	made, failure, err := b.images.prepare(ctx, info, spec, notify)
	if failure != nil || err != nil {
		return info, i, failure, err
	}
	made.Digest = info.Digest // the digest of the requested image, because a prepared one is in no registry
	i, err = b.interpreters.find(ctx, made)
	return made, i, nil, err
}

func (b *Backend) look(ctx context.Context, name string, notify func(executor.Progress)) (imageInfo, runner.Interpreter, error) {
	info, err := b.images.ensure(ctx, name, notify)
	if err != nil {
		return info, runner.Interpreter{}, err
	}
	i, err := b.interpreters.find(ctx, info)
	if err == nil && name == b.config.DefaultImage {
		b.warmed(nil)
	}
	return info, i, err
}

// inputFailure turns an error about the user's input into a Failure of the preparation. It returns other errors unchanged.
func inputFailure(err error, field string) (*executor.Failure, error) {
	code, named := executor.CodeOf(err), false
	if e, ok := errors.AsType[*executor.Error](err); ok && len(e.Fields) > 0 {
		field, named = e.Fields[0].Field, true
	}
	switch {
	case code == executor.Invalid || code == executor.Denied || code == executor.NotFound:
		code = executor.Invalid
	case code == executor.Unavailable && named: // the registry is unavailable, not the daemon: waiting for the backend to recover would not help
	default:
		return nil, err
	}
	return &executor.Failure{Code: code, Phase: executor.PhasePrepare, Message: err.Error(), Field: field}, nil
}

// execute runs a planned job in a container of its own. A container may have died while it waited, which may show only now. If
// nothing of the job has happened by then, execute takes another container.
func (b *Backend) execute(ctx context.Context, job executor.Job, p plan, sink executor.Sink, begun time.Time) (executor.Result, error) {
	workspace, stdin := runner.NewSourceReader(job.Workspace), runner.NewSourceReader(job.Stdin)
	defer workspace.Close() //nolint:errcheck // read only
	defer stdin.Close()     //nolint:errcheck // read only
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
			b.factory.discard(old) // the container of an earlier attempt
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
		result, err = b.diedOf(ctx, s, out.started, job.Limits.MemoryBytes, result, err)
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

// diedOf returns the outcome of a program whose runner is gone: out of memory if its container ran out of memory.
func (b *Backend) diedOf(ctx context.Context, s *sandbox, started bool, memory int64, result executor.Result, err error) (executor.Result, error) {
	if executor.CodeOf(err) != executor.Unavailable || !started || ctx.Err() != nil || !s.ended() || !b.factory.full(context.WithoutCancel(ctx), s.id) {
		return result, err
	}
	return executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", CPU: -1, Failure: protocol.OutOfMemory(memory)}, nil
}

// reached holds how many bytes of each stream were sent to the sink.
type reached struct{ stdout, stderr int64 }

func (r *reached) note(o executor.Output) {
	end := o.Offset + int64(len(o.Data))
	if o.Stream == executor.Stderr {
		r.stderr = max(r.stderr, end)
	} else {
		r.stdout = max(r.stdout, end)
	}
}

// count raises the byte counts of a Result to what was sent. A runner that is gone reports none.
func (r *reached) count(result *executor.Result) {
	result.StdoutBytes, result.StderrBytes = max(result.StdoutBytes, r.stdout), max(result.StderrBytes, r.stderr)
}

// see calls run with a ctx that ends with ctx, with one exception. If the end of ctx means that the caller has gone, see
// detaches from the container instead, and run fails as unavailable.
func (b *Backend) see(ctx context.Context, s *sandbox, run func(context.Context) (executor.Result, error)) (executor.Result, error) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	end := func() {
		if b.letsGo(ctx) {
			_ = s.conn.Detach() // ends run
		} else {
			cancel(context.Cause(ctx))
		}
	}
	if ctx.Err() != nil {
		end() // AfterFunc would not guarantee that this happens before run
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

// spend discards a used sandbox in the background.
func (b *Backend) spend(s *sandbox) {
	b.factory.discard(s)
	b.pool.done(s.class)
}

// jobSink adds to Started what the runner does not know.
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
		s.PID, s.Handle = 0, raw // a process number inside the container means nothing outside
		e.Body = s
	}
	return w.Sink.Emit(e)
}
