package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

// Options is what New needs. Store, Blobs and at least one Backend must be given; every other zero value means its
// documented default.
type Options struct {
	// Store and Blobs belong to the caller, who closes them after Close.
	Store executor.Store
	Blobs executor.Blobs
	// Backends by configured name.
	Backends map[string]executor.Backend
	// DefaultBackend is used where a Spec names none. Default: the only one there is.
	DefaultBackend string
	// Engine: a zero MaxConcurrent means config.Default().Engine as a whole.
	Engine config.Engine
	// Limits: zero fields are those of config.Default(). Max.OutputBytes -1 is executor.Unlimited.
	Limits config.LimitRange
	// Retention: zero fields are bounds that are off.
	Retention config.Retention
	// Sessions: a zero IdleTimeoutSeconds means config.Default().Sessions as a whole.
	Sessions config.Sessions
	// Embedded: no later life of the server reads the Store, so Close leaves no running Execution and no Session.
	Embedded bool
	// HostDirectories are folders of the host in which a Principal without ScopeTrusted may run, too (Spec.HostDirectory).
	// Links in their names are resolved when the Engine gets them, and never later.
	HostDirectories []string
	// Deadlines bound every state of an Execution.
	Deadlines Deadlines
	// SpoolBytes bounds each spooled stream. Default 8 GiB.
	SpoolBytes int64
	// Log defaults to silence, Registerer to no metrics.
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Deadlines bound the states that have no limit of their own in a Spec. Zero fields mean the defaults.
type Deadlines struct {
	// Upload bounds how long an input that is being spooled may hold a place in the queue. Prepare bounds an input that is
	// streamed, and the frontend bounds how long a sender may be silent. Default 30 min.
	Upload time.Duration
	// Queue bounds the wait for a slot, or for a backend that is down. A restart of the server begins it anew. Default 24 h.
	Queue time.Duration
	// Prepare bounds the time from the call of Backend.Run to Started. Default 30 min.
	Prepare time.Duration
	// Collect is added to the time of a run that collects outputs. Default 10 min.
	Collect time.Duration
	// Reattach bounds how long an Execution whose program has outlived its plugin waits for its backend to come back. Default
	// 2 min.
	Reattach time.Duration
	// Stop bounds, beyond KillGrace, how long a backend may take to end a run that was told to end. It is also the time that a
	// backend has to enforce Limits.Timeout before the Engine stops the run. Default 20 s.
	Stop time.Duration
}

func (d Deadlines) withDefaults() Deadlines {
	d.Upload = cmp.Or(d.Upload, 30*time.Minute)
	d.Queue = cmp.Or(d.Queue, 24*time.Hour)
	d.Prepare = cmp.Or(d.Prepare, 30*time.Minute)
	d.Collect = cmp.Or(d.Collect, 10*time.Minute)
	d.Reattach = cmp.Or(d.Reattach, 2*time.Minute)
	d.Stop = cmp.Or(d.Stop, 20*time.Second)
	return d
}

// Engine implements executor.Service. All methods are safe for concurrent use.
type Engine struct {
	store    executor.Store
	blobs    executor.Blobs
	settings atomic.Pointer[settings]
	// reconfiguring is held by Reconfigure. backendCount counts the backends that were ever configured.
	reconfiguring sync.Mutex
	backendCount  atomic.Int64
	deadlines     Deadlines
	log           *slog.Logger
	metrics       *metrics
	retention     *retention
	spools        spools
	ids           idSource
	embedded      bool
	sessions      *sessions.Registry
	// abandoned are the calls of backends, stores and callers that the Engine has given up. Close waits for them until its ctx ends.
	abandoned calls.Abandoned

	// base is the context of everything that outlives a caller. halt ends it; Close calls halt last.
	base context.Context
	halt context.CancelCauseFunc
	// tasks are the Engine's goroutines, except for those of abandoned calls.
	tasks sync.WaitGroup
	// stopping is closed when Close begins.
	stopping chan struct{}

	mu    sync.Mutex
	phase phase
	queue *queue
	live  map[string]*execution
	// following: followCapacity runs.
	following bool
	// retired are the former backends that are not drained yet.
	retired []*backend
	// average is how long a run holds its slot, for Retry-After.
	average time.Duration
}

// phase is the state of an Engine.
type phase int

const (
	created phase = iota
	serving
	// draining: nothing new is accepted or started; running Executions may end.
	draining
	closed
)

var (
	_ executor.Service  = (*Engine)(nil)
	_ executor.Admitter = (*Engine)(nil)
)

// New checks o. Start makes the Engine work. Codes: invalid.
func New(o Options) (*Engine, error) {
	if o.Store == nil || o.Blobs == nil {
		return nil, executor.Errorf(executor.Invalid, "an engine needs a store and blobs")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		store: o.Store, blobs: o.Blobs,
		deadlines: o.Deadlines.withDefaults(),
		log:       o.Log,
		live:      map[string]*execution{},
		embedded:  o.Embedded,
		stopping:  make(chan struct{}),
	}
	first, err := e.newSettings(o, nil)
	if err != nil {
		return nil, err
	}
	e.settings.Store(first)
	e.queue = newQueue(first.engine.MaxConcurrent, first.engine.MaxQueued, first.engine.MaxPerOwner)
	e.queue.share = first.engine.MaxRunningPerOwner
	e.retention = newRetention(e, o.Retention)
	e.base, e.halt = context.WithCancelCause(context.Background())
	e.sessions = e.newSessions(first.sessions)
	if e.metrics, err = newMetrics(e, o.Registerer); err != nil {
		return nil, err
	}
	return e, nil
}

// Start takes over the Executions and Sessions of an earlier life of the server from the Store, and begins to accept, to run and to
// clean up. ctx bounds only the start. Codes: conflict (started before), and the Store's.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	if e.phase != created {
		e.mu.Unlock()
		return executor.Errorf(executor.Conflict, "the engine was started before")
	}
	e.mu.Unlock()
	found, err := e.survey(ctx)
	if err != nil {
		return err
	}
	if err := e.sessions.Load(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	if e.phase != created {
		e.mu.Unlock()
		return executor.Errorf(executor.Conflict, "the engine was started before")
	}
	e.phase = serving
	e.mu.Unlock()
	e.retention.add(found.finished)
	// The capacity of each backend, before it gets anything.
	_ = e.describe(ctx)
	e.adoptSpools(found.unfinished)
	e.recover(found.unfinished)
	e.spawn(func() { e.removeLate(found.late) })
	e.spawn(e.retention.run)
	e.spawn(e.sessions.Keep)
	return nil
}

// Ready reports whether a Submit to the default backend is expected to work. Codes: unavailable.
func (e *Engine) Ready(ctx context.Context) error {
	if err := e.accepting(); err != nil {
		return err
	}
	if _, err := e.store.List(ctx, executor.Filter{Limit: 1}); err != nil {
		return executor.Errorf(executor.Unavailable, "store: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("the backend does not answer"))
	defer cancel()
	now := e.now()
	_, err := e.infoNow(ctx, now.backends[now.defaultBackend])
	return err
}

// Admit implements executor.Admitter.
func (e *Engine) Admit(ctx context.Context) error {
	p, err := authorize(ctx, opAdmit, "")
	if err != nil {
		return err
	}
	if err := e.accepting(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if why := e.queue.refusal(p.Owner, ""); why != "" {
		e.metrics.refused.Inc()
		return errFull(why, e.retryAfter())
	}
	return nil
}

func (e *Engine) accepting() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.acceptingLocked()
}

func (e *Engine) acceptingLocked() error {
	switch e.phase {
	case serving:
		return nil
	case created:
		return executor.Errorf(executor.Unavailable, "the engine has not started")
	case draining, closed:
	}
	return executor.Errorf(executor.Unavailable, "the server is stopping")
}

// spawn runs f as one of the Engine's tasks. It reports false, and does not run f, if the Engine is closed.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spawnLocked(f)
}

func (e *Engine) spawnLocked(f func()) bool {
	if e.phase == closed {
		return false
	}
	e.tasks.Go(f)
	return true
}

// retryAfter guesses when a place becomes free. The caller holds the lock.
func (e *Engine) retryAfter() time.Duration {
	guess := e.average * time.Duration(e.queue.queued+1) / time.Duration(max(1, e.queue.slots))
	return min(max(guess, time.Second), time.Minute).Round(time.Second)
}
