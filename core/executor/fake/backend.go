package fake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Options for New. The zero value is a healthy backend with DefaultCapabilities.
type Options struct {
	// Name in Info. Default "fake".
	Name string
	// Version in Info. Default "0".
	Version string
	// Capabilities that the backend declares and has. Default DefaultCapabilities.
	Capabilities *executor.Capabilities
	// Images in Info: accepted without Capabilities.Images, besides "python:X.Y…".
	Images []string
	// Capacity in Info; it is not enforced.
	Capacity int
	// PrepareDelay is the duration of every preparation.
	PrepareDelay time.Duration
	// Hook is called in place of every Run. Default: none.
	Hook Hook
	// OpenHook is called before every OpenSession. OpenSession returns its error. Default: none.
	OpenHook func(ctx context.Context, s executor.Session) error
	// Generation in Info. The successor that Abandon returns has the next one. Default 0, which means no plugin process.
	Generation int
}

// RunFunc is Backend.Run without its receiver.
type RunFunc func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error)

// Hook replaces Run. It may call run, change the parameters and the result of run, or not call run at all.
type Hook func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error)

// Backend is the fake backend. All methods are safe for concurrent use.
type Backend struct {
	options Options
	caps    executor.Capabilities
	world   *world
	// gone is closed when Abandon is called, which simulates the death of this Backend's process.
	gone    chan struct{}
	abandon func()

	mu      sync.Mutex
	message string // why it is not healthy; empty: it is
	down    error
	// held are the Sessions that this Backend has opened or adopted.
	held map[string]bool
}

// world is the state that outlives a Backend, such as programs and Sessions.
type world struct {
	pids atomic.Int64

	mu      sync.Mutex
	running map[string]*run
	kept    map[string]*run // runs that have ended and were not removed yet; with Attach only
	runs    []string
	removed []string
	gates   map[string]chan struct{}

	sessions map[string]*session
}

var (
	_ executor.Backend        = (*Backend)(nil)
	_ executor.SessionBackend = (*Backend)(nil)
)

// New returns a Backend.
func New(o Options) *Backend {
	if o.Name == "" {
		o.Name = "fake"
	}
	if o.Version == "" {
		o.Version = "0"
	}
	return newIn(o, &world{
		running:  map[string]*run{},
		kept:     map[string]*run{},
		gates:    map[string]chan struct{}{},
		sessions: map[string]*session{},
	})
}

func newIn(o Options, w *world) *Backend {
	caps := DefaultCapabilities()
	if o.Capabilities != nil {
		caps = *o.Capabilities
	}
	gone := make(chan struct{})
	return &Backend{
		options: o, caps: caps, world: w, gone: gone, abandon: sync.OnceFunc(func() { close(gone) }), held: map[string]bool{},
	}
}

// Abandon simulates the death of the process that holds b: its Runs return unavailable. With Attach the programs go on, and the
// returned Backend can follow them and adopt the Sessions. Without Attach all programs are killed.
func (b *Backend) Abandon() *Backend {
	b.abandon()
	if !b.caps.Attach {
		for _, r := range b.world.all() {
			r.kill()
			<-r.ended
		}
		for _, s := range b.world.allSessions() {
			s.close()
		}
	}
	o := b.options
	if o.Generation > 0 {
		o.Generation++
	}
	return newIn(o, b.world)
}

// DefaultCapabilities returns the default Capabilities of the fake: all but Attach, HostDirectories, Scripts and Sessions.
func DefaultCapabilities() executor.Capabilities {
	return executor.Capabilities{
		Isolation:         executor.IsolationContainer,
		NetworkOff:        true,
		NetworkOn:         true,
		Memory:            true,
		Disk:              true,
		CPU:               true,
		PIDs:              true,
		CPUTime:           true,
		Commands:          true,
		Requirements:      true,
		Images:            true,
		PreCommands:       true,
		Artifacts:         true,
		MemorySamples:     true,
		SystemInterpreter: true,
		Languages:         []executor.Language{executor.LanguagePython},
		PythonVersions:    []string{"3.13", "3.12"},
	}
}

// Info implements executor.Backend.
func (b *Backend) Info(context.Context) (executor.Info, error) {
	if err := b.isDown(); err != nil {
		return executor.Info{}, err
	}
	b.mu.Lock()
	message := b.message
	b.mu.Unlock()
	sessions := len(b.Sessions())
	w := b.world
	w.mu.Lock()
	defer w.mu.Unlock()
	caps := b.caps
	caps.Languages = slices.Clone(caps.Languages)
	caps.PythonVersions = slices.Clone(caps.PythonVersions)
	return executor.Info{
		Name:         b.options.Name,
		Type:         "fake",
		Version:      b.options.Version,
		Generation:   b.options.Generation,
		Healthy:      message == "",
		Message:      message,
		Capacity:     b.options.Capacity,
		Capabilities: caps,
		Images:       slices.Clone(b.options.Images),
		Warnings:     warnings(caps),
		Metrics:      map[string]float64{"runs": float64(len(w.runs)), "running": float64(len(w.running)), "sessions": float64(sessions)},
	}, nil
}

// warnings returns a warning for every default that is not enforced with these capabilities.
func warnings(caps executor.Capabilities) []string {
	var list []string
	for _, w := range []struct {
		enforced bool
		text     string
	}{
		{caps.NetworkOff, "the network is not kept from programs"},
		{caps.Memory, "config.memory_mb is not enforced"},
		{caps.Disk, "config.disk_mb is not enforced"},
		{caps.Disk || caps.Isolation != executor.IsolationNone, "programs share the host's /tmp"},
		{caps.CPU, "config.cpu_shares is not enforced"},
		{caps.PIDs, "config.pids is not enforced"},
		{caps.Isolation != executor.IsolationNone, "host files are visible to programs"},
	} {
		if !w.enforced {
			list = append(list, w.text)
		}
	}
	return list
}

// Run implements executor.Backend.
func (b *Backend) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if b.options.Hook != nil {
		return b.options.Hook(ctx, job, sink, b.run)
	}
	return b.run(ctx, job, sink)
}

func (b *Backend) run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := b.isDown(); err != nil {
		return executor.Result{}, err
	}
	if err := refuse(b.caps, b.options.Images, job); err != nil {
		return executor.Result{}, err
	}
	r := newRun(b, job)
	if job.Spec.Session != "" {
		s, err := b.session(job.Spec.Session)
		if err == nil {
			err = s.enter(r)
		}
		if err != nil {
			return executor.Result{}, err
		}
	}
	if err := b.world.enter(r); err != nil {
		if r.session != nil {
			r.session.leave(r)
		}
		return executor.Result{}, err
	}
	if ctx.Err() != nil {
		r.stop(executor.StatusKilled) // now, before anything can start
	}
	go r.live()
	return b.follow(ctx, r, sink)
}

// Attach implements executor.Backend.
func (b *Backend) Attach(ctx context.Context, job executor.Job, from executor.Resume, sink executor.Sink) (executor.Result, error) {
	if err := b.isDown(); err != nil {
		return executor.Result{}, err
	}
	if !b.caps.Attach {
		return executor.Result{}, executor.Errorf(executor.Unimplemented, "programs do not outlive this backend")
	}
	r := b.world.find(job.ID)
	if r == nil || string(from.Handle) != r.handle() {
		return executor.Result{}, executor.Errorf(executor.NotFound, "execution %s", job.ID)
	}
	r.feed.resume(map[executor.Stream]int64{executor.Stdout: from.Stdout, executor.Stderr: from.Stderr})
	return b.follow(ctx, r, sink)
}

// follow passes the Events of r to sink until r has ended. No other goroutine uses sink.
func (b *Backend) follow(ctx context.Context, r *run, sink executor.Sink) (executor.Result, error) {
	left := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		if b.caps.Attach && errors.Is(context.Cause(ctx), executor.ErrCallerGone) {
			close(left) // the program goes on, and somebody may come for it
			return
		}
		r.stop(executor.StatusKilled)
	})()
	var broken error
	for {
		body, err := r.feed.next(b.gone, left)
		if errors.Is(err, errGone) {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "the backend has gone")
		}
		if err != nil {
			break // the feed's end
		}
		if broken == nil {
			broken = sink.Emit(executor.Event{Body: body})
			if b.caps.Attach && errors.Is(broken, executor.ErrCallerGone) {
				return executor.Result{}, executor.Errorf(executor.Unavailable, "the caller has gone")
			}
			if broken != nil {
				r.stop(executor.StatusKilled)
			}
		}
		r.feed.took()
	}
	<-r.ended
	if p, ok := errors.AsType[panicked](r.failed); ok {
		b.world.leave(r, false)
		panic(string(p))
	}
	if broken == nil {
		broken = r.failed
	}
	result := r.result
	if broken == nil {
		broken = r.collect(sink, &result)
	}
	b.world.leave(r, b.caps.Attach)
	if broken != nil {
		return executor.Result{}, broken
	}
	return result, nil
}

// Remove implements executor.Backend.
func (b *Backend) Remove(_ context.Context, id string) error {
	if err := b.isDown(); err != nil {
		return err
	}
	w := b.world
	w.mu.Lock()
	w.removed = append(w.removed, id)
	r := w.running[id]
	delete(w.kept, id)
	w.mu.Unlock()
	if r != nil {
		r.kill()
		<-r.ended
		w.mu.Lock()
		delete(w.kept, id)
		w.mu.Unlock()
	}
	return nil
}

// SetHealth makes Info report the backend as unhealthy with that message. An empty message makes it healthy again.
func (b *Backend) SetHealth(message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.message = message
}

// SetDown makes Info, Run, Attach and Remove return err until it is set to nil. Running programs go on.
func (b *Backend) SetDown(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = err
}

func (b *Backend) isDown() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.gone:
		return executor.Errorf(executor.Unavailable, "the backend has gone")
	default:
		return b.down
	}
}

// Runs returns the ids of all jobs that Run has accepted, in order.
func (b *Backend) Runs() []string {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	return slices.Clone(b.world.runs)
}

// Running returns the sorted ids of the running jobs. Any job after all Runs have returned is a leftover.
func (b *Backend) Running() []string {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	return slices.Sorted(maps.Keys(b.world.running))
}

// Removed returns the ids that Remove was called with, in order.
func (b *Backend) Removed() []string {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	return slices.Clone(b.world.removed)
}

// Release opens the named gate: programs no longer wait for it, now and later.
func (b *Backend) Release(name string) {
	gate := b.world.gate(name)
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}
