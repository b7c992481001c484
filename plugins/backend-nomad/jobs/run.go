package jobs

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/job"
)

// refreshTime is the time between two requests for the state of a job whose events do not come.
const refreshTime = 30 * time.Second

// handle is the content of Started.Handle, by which an allocation is found again.
type handle struct {
	Job   string `json:"job"`
	Alloc string `json:"alloc"`
}

// execution is a job that is being followed.
type execution struct {
	*Backend
	job     executor.Job
	tracked *tracked
	sink    executor.Sink
	// prepares says that the job has a preparation.
	prepares bool
	// feed is the standard input that is passed on while it is written; nil if there is none.
	feed *feed
	// resumed says that the log has Started already.
	resumed bool
	started *executor.Started
	reached [2]int64
	// stopping is closed when the caller has stopped the job. late is when its output is no longer passed on, and cut says of which
	// streams something was left out.
	stopping <-chan struct{}
	late     time.Time
	cut      [2]bool
	told     string // the last Progress
	begun    time.Time
	spooled  time.Duration
}

// Run implements executor.Backend. A job that exists already, because an earlier process died after it made the job, is followed from its
// beginning: nothing is run twice.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	image, err := b.image(ctx, job.Spec)
	if refused := b.refuse(job); refused != nil {
		return executor.Result{}, refused
	}
	if err != nil {
		return b.refusedImage(err)
	}
	ctx, leave, err := b.running.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	if ctx.Err() != nil {
		return b.unstarted(ctx, 0)
	}
	p, failure := b.preparation(job.Spec)
	if failure != nil {
		return executor.Result{Status: executor.StatusFailed, CPU: -1, Failure: failure}, nil
	}
	x := &execution{Backend: b, job: job, sink: sink, begun: time.Now()}
	o, feed, err := b.order(ctx, job, image, p)
	if feed != nil {
		x.feed = feed
		defer b.withdraw(job.ID)
	}
	if err == nil {
		x.prepares = o.prepare != nil
		t, release := b.watcher.track(jobID(job.ID))
		defer release()
		x.tracked = t
		err = x.register(ctx, o)
	}
	x.spooled = time.Since(x.begun)
	if err != nil {
		b.transfer.drop(job.ID)
		if ctx.Err() != nil {
			return b.unstarted(ctx, x.spooled)
		}
		return executor.Result{}, err
	}
	result, err := x.see(ctx, x.attend)
	result.Failure = backend.AsUser(result.Failure)
	return result, err
}

// refusedImage returns the outcome of a job whose image may not be used, which is the user's failure, or contradicts the version, which is
// a refusal.
func (b *Backend) refusedImage(err error) (executor.Result, error) {
	if executor.CodeOf(err) != executor.Denied {
		return executor.Result{}, err
	}
	failure := &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "docker_image", Message: err.Error()}
	return executor.Result{Status: executor.StatusFailed, CPU: -1, Failure: failure}, nil
}

// unstarted returns the outcome of a job whose ctx ended before its program started.
func (b *Backend) unstarted(ctx context.Context, prepared time.Duration) (executor.Result, error) {
	if b.letsGo(ctx) {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "detached before the program started: %w", context.Cause(ctx))
	}
	return executor.Result{Status: executor.StatusKilled, CPU: -1, Phases: executor.Phases{Prepare: prepared}}, nil
}

// letsGo reports whether the end of ctx means that the job goes on without this backend.
func (b *Backend) letsGo(ctx context.Context) bool {
	return !b.embedded && errors.Is(context.Cause(ctx), executor.ErrCallerGone)
}

// register makes the job, or finds the one that an earlier process made.
func (x *execution) register(ctx context.Context, o order) error {
	for {
		index, _, err := x.cluster.register(ctx, build(x.config, o))
		if err == nil {
			x.tracked.begin(index)
			return nil
		}
		if !errors.Is(err, errExists) {
			return refusal("register the job", err)
		}
		former, err := x.cluster.info(ctx, x.tracked.id)
		switch {
		case err != nil:
			return refusal("look for the job", err)
		case former == nil:
			continue // it is gone meanwhile
		case !x.owns(former):
			return executor.Errorf(executor.Internal, "job %s is of another installation", x.tracked.id)
		case former.Stop == nil || !*former.Stop:
			x.prepares = len(former.TaskGroups) > 0 && slices.ContainsFunc(former.TaskGroups[0].Tasks, func(t *api.Task) bool { return t.Name == taskPrepare })
			x.tracked.begin(*former.CreateIndex)
			return nil
		}
		if err := x.cluster.deregister(ctx, x.tracked.id, true); err != nil { // removed, and only kept to be seen
			return refusal("purge the job", err)
		}
	}
}

// owns reports whether this installation made a job.
func (b *Backend) owns(j *api.Job) bool { return j.Meta[metaInstance] == b.instance }

// see calls follow with a ctx that goes on when ctx ends. The end of ctx stops the job instead, except if the caller has gone: then
// follow is left, and the job goes on.
func (x *execution) see(ctx context.Context, follow func(ctx, caller context.Context) (executor.Result, error)) (executor.Result, error) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		if x.letsGo(ctx) {
			cancel(context.Cause(ctx))
			return
		}
		if err := x.cluster.deregister(inner, x.tracked.id, false); err != nil && inner.Err() == nil {
			cancel(refusal("stop the job", err))
		}
	})
	x.stopping = ctx.Done()
	result, err := follow(inner, ctx)
	if !stop() {
		cancel(nil)
		<-ended
	}
	if err != nil && x.letsGo(ctx) {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "detached: %w", context.Cause(ctx))
	}
	return result, err
}

// attend follows a job to its end. caller is the ctx of the caller, whose end stops the job.
func (x *execution) attend(ctx, caller context.Context) (executor.Result, error) {
	following, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	if x.feed != nil {
		x.feed.whenBroken(broken)
	}
	first := taskProgram
	if x.prepares {
		first = taskPrepare
	}
	a, err := x.placed(following, caller, first)
	if a == nil || err != nil {
		return x.end(ctx, caller, executor.Result{}, err)
	}
	if x.prepares {
		last, err := x.read(following, a.ID, taskPrepare, executor.Resume{})
		if err != nil || last.Prepared == nil {
			return x.conclude(ctx, caller, taskPrepare, last, err)
		}
		if a, err = x.placed(following, caller, taskProgram); err != nil {
			return x.end(ctx, caller, executor.Result{}, err)
		}
	}
	last, err := x.read(following, a.ID, taskProgram, executor.Resume{})
	return x.conclude(ctx, caller, taskProgram, last, err)
}

// placed waits until a task of the job was started, or the allocation is over. The allocation is nil if caller ended before there was one.
func (x *execution) placed(ctx, caller context.Context, task string) (*allocation, error) {
	queue := time.NewTimer(x.config.queueTimeout())
	defer queue.Stop()
	again := time.NewTicker(refreshTime)
	defer again.Stop()
	for look := false; ; {
		a, e, stale := x.tracked.now()
		if stale || look {
			if err := x.refresh(ctx); err != nil {
				return nil, err
			}
			a, e, _ = x.tracked.now()
			look = false
		}
		if a != nil {
			queue.Stop()
			if a.began(task) || a.over() {
				return a, nil
			}
			if err := x.tell(a, task); err != nil {
				return nil, err
			}
		} else if e != nil {
			if e.TriggeredBy == "job-deregister" && e.Status == api.EvalStatusComplete {
				if caller.Err() != nil {
					return nil, nil //nolint:nilnil // stopped before it had a place
				}
				return nil, executor.Errorf(executor.Unavailable, "the job was stopped from outside before it had a place")
			}
			if e.Status == api.EvalStatusFailed || e.Status == api.EvalStatusCancelled && caller.Err() == nil {
				return nil, executor.Errorf(executor.Unavailable, "Nomad cannot place the job: %s", e.StatusDescription)
			}
			if words := x.tracked.unplaced(); words != "" {
				if err := x.progress("waits for a place in the cluster: " + words); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-x.tracked.changed:
		case <-again.C:
			look = true
		case <-queue.C:
			words := cmp.Or(x.tracked.unplaced(), "Nomad has not said why")
			return nil, executor.Errorf(executor.Unavailable, "no place in the cluster within %s: %s", x.config.queueTimeout(), words)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// refresh asks for the state of the job.
func (x *execution) refresh(ctx context.Context) error {
	found, evals, err := x.cluster.allocationsOf(ctx, x.tracked.id)
	if err != nil && !notFound(err) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return refusal("look at the job", err)
	}
	for _, a := range found {
		x.tracked.take(ofStub(a))
	}
	for _, e := range evals {
		x.tracked.takeEval(e)
	}
	return nil
}

// unplaced returns why an evaluation did not place the job, in Nomad's words; empty if it did.
func unplaced(e *api.Evaluation) string {
	var words []string
	for _, group := range slices.Sorted(maps.Keys(e.FailedTGAllocs)) {
		m := e.FailedTGAllocs[group]
		if m.NodesEvaluated == 0 && m.NodesFiltered == 0 {
			words = append(words, "no node is eligible")
		}
		counted := func(what string, by map[string]int) {
			for _, k := range slices.Sorted(maps.Keys(by)) {
				words = append(words, fmt.Sprintf("%s %q on %d nodes", what, k, by[k]))
			}
		}
		counted("class", m.ClassFiltered)
		counted("constraint", m.ConstraintFiltered)
		counted("exhausted", m.DimensionExhausted)
		words = append(words, m.QuotaExhausted...)
	}
	return strings.Join(words, ", ")
}

// tell reports what the driver does before a task starts.
func (x *execution) tell(a *allocation, task string) error {
	s := a.Tasks[task]
	if s == nil {
		return nil
	}
	for _, e := range slices.Backward(s.Events) {
		if e.Type == api.TaskDriverMessage || e.Type == api.TaskDownloadingArtifacts {
			return x.progress(strings.ToLower(e.DisplayMessage))
		}
	}
	return nil
}

// progress reports a message unless it was the last one.
func (x *execution) progress(message string) error {
	if message == "" || message == x.told || x.started != nil || x.resumed {
		return nil
	}
	x.told = message
	if err := x.sink.Emit(executor.Event{Body: executor.Progress{Phase: executor.PhasePrepare, Message: message}}); err != nil {
		return sinkError{err}
	}
	return nil
}

// sinkError is an error of the sink.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// read passes the records of a task on to the sink, and returns the last one; an empty one if the task ended without.
func (x *execution) read(ctx context.Context, alloc, task string, have executor.Resume) (job.Record, error) {
	path := task + "/" + outputPath + "/"
	in := &tail{ctx: ctx, cluster: x.cluster, alloc: alloc, path: path + job.EventsFile, life: x.tracked.life, patience: x.config.lostAfter() + patience}
	defer in.close()
	records := job.NewReader(in, have)
	for {
		r, err := records.Next()
		switch {
		case errors.Is(err, io.EOF):
			return job.Record{}, nil
		case err != nil:
			return job.Record{}, err
		case r.Last():
			return r, nil
		case r.Begin != nil && r.Begin.ExecutionID != x.job.ID:
			return job.Record{}, executor.Errorf(executor.Internal, "allocation %s is of execution %s", alloc, r.Begin.ExecutionID)
		case r.Event != nil:
			if err = x.emit(*r.Event, alloc); err == nil && (x.cut[0] || x.cut[1]) {
				return x.passLate(ctx, alloc, path)
			}
		case r.Artifact != nil:
			err = x.artifact(ctx, alloc, path+job.ArtifactsFile, *r.Artifact)
		}
		if err != nil {
			return job.Record{}, err
		}
	}
}

// emit passes an event on.
func (x *execution) emit(e executor.Event, alloc string) error {
	switch body := e.Body.(type) {
	case executor.Started:
		body.PID = 0 // a number of the container means nothing elsewhere
		raw, err := json.Marshal(handle{x.tracked.id, alloc})
		if err != nil {
			return err
		}
		body.Handle = raw
		x.started = &body
		x.transfer.drop(x.job.ID)
		if x.resumed {
			return nil
		}
		e.Body = body
	case executor.Output:
		n := 0
		if body.Stream == executor.Stderr {
			n = 1
		}
		if x.cut[n] = x.cut[n] || x.tooLate(); x.cut[n] {
			return nil
		}
		x.reached[n] = max(x.reached[n], body.Offset+int64(len(body.Data)))
	case executor.Progress:
		if x.resumed && x.started == nil {
			return nil // of the preparation, which is in the log
		}
	default:
		if x.resumed {
			return nil // it may be in the log, and nothing in it tells
		}
	}
	e.Seq, e.Time = 0, time.Time{}
	if err := x.sink.Emit(e); err != nil {
		return sinkError{err}
	}
	return nil
}

// artifact passes a collected file on.
func (x *execution) artifact(ctx context.Context, alloc, path string, a job.Artifact) error {
	in := &part{ctx: ctx, cluster: x.cluster, alloc: alloc, path: path, offset: a.Offset, left: a.Header.Size}
	defer in.Close()
	var broken error
	h := &tar.Header{Name: a.Header.Path, Size: a.Header.Size, Mode: a.Header.Mode, ModTime: a.Header.ModTime, Typeflag: tar.TypeReg}
	err := x.sink.Artifact(h, readerFunc(func(p []byte) (n int, err error) {
		n, err = in.Read(p)
		if err != nil && !errors.Is(err, io.EOF) {
			broken = err
		}
		return n, err
	}))
	if broken != nil {
		return broken
	}
	if err != nil {
		return sinkError{err}
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// conclude returns the outcome of a job whose task has ended with a last record, or without one.
func (x *execution) conclude(ctx, caller context.Context, task string, last job.Record, err error) (executor.Result, error) {
	var result executor.Result
	switch {
	case err != nil:
	case last.Error != nil:
		err = last.Error.Err()
	case last.Result != nil:
		x.ended.Store(x.job.ID, nil)
		result = *last.Result
		if result.Status == executor.StatusKilled && caller.Err() == nil {
			err = executor.Errorf(executor.Unavailable, "the job was stopped from outside")
			if a, _, _ := x.tracked.now(); a != nil && a.DesiredWords != "" {
				err = executor.Errorf(executor.Unavailable, "the job was stopped from outside: %s", a.DesiredWords)
			}
		}
	default:
		var a *allocation
		if a, _, _ = x.tracked.now(); a == nil || !a.over() {
			if err = x.refresh(ctx); err == nil {
				a, _, _ = x.tracked.now()
			}
		}
		if err == nil && a != nil {
			result, err = classify(a, task, x.started != nil || x.resumed, caller.Err() != nil, x.job.Limits.MemoryBytes)
		}
	}
	return x.end(ctx, caller, result, err)
}

// end returns the outcome. After an error nothing of the job goes on, unless the caller has gone.
func (x *execution) end(ctx, caller context.Context, result executor.Result, err error) (executor.Result, error) {
	if x.letsGo(caller) && err != nil {
		return executor.Result{}, err
	}
	x.transfer.drop(x.job.ID)
	if caller.Err() != nil && x.started == nil && !x.resumed && result.Status == "" && !errors.As(err, new(sinkError)) {
		if waited := x.stopped(ctx); waited != nil {
			return executor.Result{}, waited
		}
		return x.unstarted(caller, time.Since(x.begun))
	}
	if err != nil {
		err = errors.Join(err, x.stopped(ctx))
		if e, ok := errors.AsType[sinkError](err); ok {
			err = e.error
		}
		return executor.Result{}, err
	}
	if x.cut[0] {
		result.StdoutBytes = 0 // as many as were passed on
	}
	if x.cut[1] {
		result.StderrBytes = 0
	}
	result.StdoutBytes, result.StderrBytes = max(result.StdoutBytes, x.reached[0]), max(result.StderrBytes, x.reached[1])
	if a, _, _ := x.tracked.now(); a != nil {
		result.Phases.Prepare += x.spooled + a.waited()
	}
	return result, nil
}
