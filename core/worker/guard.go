package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

// instanceKey is the metadata key of the installation that calls.
const instanceKey = "pyexec-instance"

// errHandedBack is why an Execution ends that a stopping worker cannot finish.
var errHandedBack = executor.Errorf(executor.Unavailable, "the worker stopped before the program had ended")

// guard is the Backend that other machines see: the worker's own, with a bound, a drain, and each installation on its own.
type guard struct {
	executor.Backend
	slots   int
	details map[string]string
	log     *slog.Logger

	mu       sync.Mutex
	draining bool
	runs     map[string]*run
	sessions map[string]*session
	// heard is when each installation has called last.
	heard map[string]time.Time
	// changed is closed, and replaced, when a run or a session ends.
	changed chan struct{}
}

// run is an Execution that runs.
type run struct {
	instance string
	cancel   context.CancelCauseFunc
	left     chan struct{} // closed when the run has left
}

func newGuard(o Options) *guard {
	return &guard{
		Backend: o.Backend, slots: o.Slots, details: o.Details, log: o.Log,
		runs: map[string]*run{}, sessions: map[string]*session{}, heard: map[string]time.Time{}, changed: make(chan struct{}),
	}
}

// hear notes that the caller of ctx is there, and returns its installation.
func (g *guard) hear(ctx context.Context) string {
	instance := strings.Join(metadata.ValueFromIncomingContext(ctx, instanceKey), "")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard[instance] = time.Now()
	return instance
}

// Info implements executor.Backend.
func (g *guard) Info(ctx context.Context) (executor.Info, error) {
	g.hear(ctx)
	info, err := g.Backend.Info(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	// These are about the worker's machine, which is not the caller's.
	info.Capabilities.LocalPath, info.Capabilities.HostDirectories, info.Capabilities.Scripts = false, false, false
	if info.Capacity == 0 || info.Capacity > g.slots {
		info.Capacity = g.slots
	}
	info.Details, info.Metrics = maps.Clone(info.Details), maps.Clone(info.Metrics)
	if info.Details == nil {
		info.Details = map[string]string{}
	}
	if info.Metrics == nil {
		info.Metrics = map[string]float64{}
	}
	maps.Copy(info.Details, g.details)
	g.mu.Lock()
	defer g.mu.Unlock()
	info.Metrics[MetricRunning], info.Metrics[MetricSessions] = float64(len(g.runs)), float64(len(g.sessions))
	if g.draining {
		info.Healthy, info.Message = false, "the worker is draining"
	}
	return info, nil
}

// The metrics that a worker adds to Info: the Executions that run and the Sessions that are open, of all installations.
const (
	MetricRunning  = "worker_running"
	MetricSessions = "worker_sessions"
)

// enter registers a job. leave unregisters it.
func (g *guard) enter(ctx context.Context, job executor.Job, follows bool) (inner context.Context, leave func(), err error) {
	instance := g.hear(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refusalLocked(instance, job, follows); err != nil {
		return nil, nil, err
	}
	inner, cancel := context.WithCancelCause(ctx)
	r := &run{instance, cancel, make(chan struct{})}
	g.runs[job.ID] = r
	return inner, func() {
		cancel(nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.runs, job.ID)
		close(r.left)
		g.heard[instance] = time.Now()
		g.changeLocked()
	}, nil
}

// refusalLocked returns why a job is not taken. A job that follows a program is taken while the worker drains, and beyond the slots,
// because the program is there already.
func (g *guard) refusalLocked(instance string, job executor.Job, follows bool) error {
	if id := job.Spec.Session; id != "" {
		if err := g.sessions[id].of(instance, id); err != nil {
			return err
		}
	}
	switch {
	case g.runs[job.ID] != nil:
		return executor.Errorf(executor.Conflict, "execution %s runs already", job.ID)
	case follows:
	case g.draining && job.Spec.Session == "": // the open Sessions go on
		return refused(executor.Unavailable, "it is draining")
	case len(g.runs) >= g.slots:
		return refused(executor.Exhausted, "its %d slots are taken", g.slots)
	}
	return nil
}

// letGo ends the connection to a program that another connection is about to follow. The caller of the former one is gone, although its
// connection may not have noticed yet.
func (g *guard) letGo(ctx context.Context, id string) error {
	instance := g.hear(ctx)
	g.mu.Lock()
	r := g.runs[id]
	g.mu.Unlock()
	if r == nil || r.instance != instance {
		return nil
	}
	r.cancel(executor.ErrCallerGone)
	select {
	case <-r.left:
		return nil
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "attach to %s: %w", id, context.Cause(ctx))
	}
}

func (g *guard) changeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// Run implements executor.Backend.
func (g *guard) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	ctx, leave, err := g.enter(ctx, job, false)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	if job.Spec.HostDirectory != "" || job.Spec.Script != "" {
		if err := g.elsewhere(ctx, job.Spec); err != nil {
			return executor.Result{}, err
		}
	}
	g.log.Info("execution begins", "execution", job.ID, "owner", job.Owner, "attempt", job.Attempt)
	result, err := g.Backend.Run(ctx, job, sink)
	g.answered(job.Spec.Session, err)
	result, err = outcome(ctx, result, err)
	g.log.Info("execution ended", "execution", job.ID, "owner", job.Owner, "status", result.Status, "error", err)
	return result, err
}

// elsewhere refuses a Spec that names something of the caller's machine.
func (g *guard) elsewhere(ctx context.Context, spec executor.Spec) error {
	info, err := g.Info(ctx)
	if err != nil {
		return err
	}
	return backend.CheckSpec(spec, info.Capabilities, nil).Err()
}

// Attach implements executor.Backend.
func (g *guard) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	if err := g.letGo(ctx, job.ID); err != nil {
		return executor.Result{}, err
	}
	ctx, leave, err := g.enter(ctx, job, true)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	result, err := g.Backend.Attach(ctx, job, r, sink)
	return outcome(ctx, result, err)
}

// outcome returns the outcome of a job. A job that was killed because the worker stops is not killed in the eyes of its owner.
func outcome(ctx context.Context, result executor.Result, err error) (executor.Result, error) {
	if errors.Is(context.Cause(ctx), errHandedBack) && (err != nil || result.Status == executor.StatusKilled) {
		return executor.Result{}, errHandedBack
	}
	return result, err
}

// Remove implements executor.Backend. What another installation runs is left alone.
func (g *guard) Remove(ctx context.Context, id string) error {
	instance := g.hear(ctx)
	g.mu.Lock()
	r := g.runs[id]
	g.mu.Unlock()
	if r != nil && r.instance != instance {
		return nil
	}
	return g.Backend.Remove(ctx, id)
}

func (g *guard) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining = true
}

// wait returns nil when nothing is left.
func (g *guard) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		left, changed := len(g.runs)+len(g.sessions), g.changed
		g.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return executor.Errorf(executor.Unavailable, "%d executions and sessions are left: %w", left, context.Cause(ctx))
		}
	}
}

// handBack ends all runs and closes all sessions.
func (g *guard) handBack(ctx context.Context) {
	g.mu.Lock()
	for id, r := range g.runs {
		g.log.Warn("execution handed back", "execution", id)
		r.cancel(errHandedBack)
	}
	g.mu.Unlock()
	g.closeSessions(ctx, func(*session) bool { return true })
}
