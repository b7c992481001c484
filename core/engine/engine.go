package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
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
	// Embedded: no later life of the server reads the Store, so nothing is left for one: no running Execution, no Session.
	Embedded bool
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
	// Upload bounds how long a place in the queue is held for an input that is still being spooled, however slowly it
	// trickles. (A streamed input holds a slot, of which half are for such, and is bounded by Prepare; an idle sender is the
	// frontend's matter.)
	// Default 30 min.
	Upload time.Duration
	// Queue bounds waiting for a place, or for a backend that is down; a restart begins it anew. Default 24 h.
	Queue time.Duration
	// Prepare bounds the time from the call of Backend.Run to Started. Default 30 min.
	Prepare time.Duration
	// Collect is added to the time of a run that has outputs to collect. Default 10 min.
	Collect time.Duration
	// Reattach bounds how long an Execution whose program runs on waits for its backend, whose plugin has died, to come
	// back. Default 2 min.
	Reattach time.Duration
	// Stop bounds, beyond KillGrace, how long a backend may take to end a run that was told to end; it is also the
	// margin that a backend has to enforce Limits.Timeout before the Engine steps in. Default 20 s.
	Stop time.Duration
}

func (d Deadlines) withDefaults() Deadlines {
	for _, field := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&d.Upload, 30 * time.Minute},
		{&d.Queue, 24 * time.Hour},
		{&d.Prepare, 30 * time.Minute},
		{&d.Collect, 10 * time.Minute},
		{&d.Reattach, 2 * time.Minute},
		{&d.Stop, 20 * time.Second},
	} {
		if *field.value <= 0 {
			*field.value = field.standard
		}
	}
	return d
}

// Engine implements executor.Service. All methods are safe for concurrent use.
type Engine struct {
	store          executor.Store
	blobs          executor.Blobs
	backends       map[string]*backend
	names          []string
	defaultBackend string
	standard, most executor.Limits
	deadlines      Deadlines
	spoolBytes     int64
	log            *slog.Logger
	metrics        *metrics
	retention      *retention
	ids            idSource
	rules          sessionRules
	embedded       bool
	ended          *endedSessions
	// lookNow wakes the one who looks after the Sessions.
	lookNow chan struct{}

	// base is the context of everything that outlives a caller; halt ends it, last of all.
	base context.Context
	halt context.CancelCauseFunc
	// tasks are the Engine's goroutines, but for those that a caller's stream or a backend may hold up: these are
	// strays once they are given up, and Close waits for them only so long.
	tasks sync.WaitGroup
	// stopping is closed when Close begins.
	stopping chan struct{}

	mu    sync.Mutex
	phase phase
	queue *queue
	live  map[string]*execution
	// sessions are those whose sandbox is there, or being made.
	sessions map[string]*session
	// leftovers are ended ones whose sandbox may still be there, with their backend.
	leftovers map[string]string
	strays    map[<-chan struct{}]string
	specs     heldSpecs
	average   time.Duration // of a run, for Retry-After
}

// phase is where an Engine's life stands.
type phase int

const (
	created phase = iota
	serving
	// draining: nothing new is accepted or started; what runs may end.
	draining
	closed
)

var (
	_ executor.Service  = (*Engine)(nil)
	_ executor.Admitter = (*Engine)(nil)
)

// New checks o. Start makes the Engine work. Codes: invalid.
func New(o Options) (*Engine, error) {
	if o.Store == nil || o.Blobs == nil || len(o.Backends) == 0 {
		return nil, executor.Errorf(executor.Invalid, "an engine needs a store, blobs and at least one backend")
	}
	if o.Engine.MaxConcurrent == 0 {
		o.Engine = config.Default().Engine
	}
	if o.Sessions.IdleTimeoutSeconds == 0 {
		o.Sessions = config.Default().Sessions
	}
	if o.Engine.MaxConcurrent < 0 || o.Engine.MaxQueued < 0 || o.Engine.MaxPerOwner < 0 {
		return nil, executor.Errorf(executor.Invalid, "the engine's bounds must not be negative")
	}
	if o.SpoolBytes <= 0 {
		o.SpoolBytes = 8 << 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		store: o.Store, blobs: o.Blobs,
		backends:       map[string]*backend{},
		defaultBackend: o.DefaultBackend,
		deadlines:      o.Deadlines.withDefaults(),
		spoolBytes:     o.SpoolBytes,
		log:            o.Log,
		queue:          newQueue(o.Engine.MaxConcurrent, o.Engine.MaxQueued, o.Engine.MaxPerOwner),
		live:           map[string]*execution{},
		sessions:       map[string]*session{},
		leftovers:      map[string]string{},
		rules:          newSessionRules(o.Sessions),
		embedded:       o.Embedded,
		lookNow:        make(chan struct{}, 1),
		strays:         map[<-chan struct{}]string{},
		specs:          heldSpecs{of: map[string]int64{}},
		stopping:       make(chan struct{}),
	}
	e.standard, e.most = limitRange(o.Limits)
	e.ended = &endedSessions{kept: e.rules.kept}
	for name, b := range o.Backends {
		if b == nil {
			return nil, executor.Errorf(executor.Invalid, "backend %q is nil", name)
		}
		e.backends[name] = &backend{Backend: b, name: name}
		e.names = append(e.names, name)
	}
	slices.Sort(e.names)
	if e.defaultBackend == "" && len(e.names) == 1 {
		e.defaultBackend = e.names[0]
	}
	if i := slices.Index(e.names, e.defaultBackend); i > 0 {
		e.names = slices.Concat([]string{e.defaultBackend}, e.names[:i], e.names[i+1:])
	}
	if _, ok := e.backends[e.defaultBackend]; !ok {
		return nil, executor.FieldErrorf(executor.Invalid, "backend", "the default backend %q is not configured", e.defaultBackend)
	}
	e.retention = newRetention(e, o.Retention)
	e.base, e.halt = context.WithCancelCause(context.Background())
	var err error
	if e.metrics, err = newMetrics(e, o.Registerer); err != nil {
		return nil, err
	}
	return e, nil
}

// Start recovers what the Store has from an earlier life, and begins to run, to accept and to clean up. ctx bounds only
// the start. Codes: conflict (started before), and the Store's.
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
	if err := e.loadSessions(ctx); err != nil {
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
	// How much each backend can take, before anything is given to it.
	_ = e.describe(ctx)
	e.recover(found.unfinished)
	e.spawn(func() { e.removeLate(found.late) })
	e.spawn(e.retention.run)
	e.spawn(e.keepSessions)
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
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("it does not answer"))
	defer cancel()
	_, err := e.infoNow(ctx, e.defaultBackend)
	return err
}

// Admit implements executor.Admitter: it says before any input is read whether there is a place now.
func (e *Engine) Admit(ctx context.Context) error {
	p := executor.PrincipalFrom(ctx)
	if err := needs(p, executor.ScopeExec); err != nil {
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

// spawn runs f as one of the Engine's tasks, unless the Engine is closed; then it reports false.
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
