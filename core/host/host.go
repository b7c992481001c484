package host

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// drainLimit bounds the draining of a plugin in Close, whatever its ctx allows.
const drainLimit = 60 * time.Second

// Options are what a Host needs.
type Options struct {
	// Entries are the configured backends by name; every one is started.
	Entries map[string]config.Backend
	// Instance identifies the installation (plugin.Configure.Instance).
	Instance string
	// Embedded: the engine of a single CLI call.
	Embedded bool
	// DataDir holds one folder per backend, "backends/<name>", made here and handed to its plugin; empty: none.
	DataDir string
	// RunDir holds the sockets, each process's in a folder of its own, 0700, made if missing. A path too long for a
	// socket is replaced by a folder of ours in the system's temporary one; empty means that, too.
	RunDir string
	// Command says how a bundled type is started: the program and its whole argv. An unknown type is an error, invalid.
	Command func(typ string) (path string, args []string, err error)
	// Log takes the host's and the plugins' logs; nil drops them.
	Log *slog.Logger
	// Registerer takes the metrics; nil: none.
	Registerer prometheus.Registerer
}

// PluginStatus tells where one plugin stands.
type PluginStatus struct {
	Name string
	Type string
	// PID of the present process; 0 while there is none.
	PID int
	// Generation counts the launches, from 1; Restarts those after a crash.
	Generation int
	Restarts   int
	// Healthy: a process is there and ready. Message says why not.
	Healthy bool
	Message string
}

// Host runs the plugins of the configured backends. Its methods are safe for concurrent use.
type Host struct {
	options   Options
	log       *slog.Logger
	restarts  *prometheus.CounterVec
	instances map[string]*instance
	steady    time.Duration

	// life ends when Close begins; closing then bounds the draining.
	life    context.Context
	endLife context.CancelCauseFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	started bool
	closing context.Context
	dir     *runDir

	closeOnce sync.Once
	closeErr  error
}

// New checks o and returns a Host that runs nothing yet. Codes: invalid.
func New(o Options) (*Host, error) {
	h := &Host{options: o, log: o.Log, instances: map[string]*instance{}, steady: steadyTime}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.restarts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "python_executor_plugin_restarts_total",
		Help: "How often a backend's plugin process was started again after it had ended by itself.",
	}, []string{"backend"})
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(o.Entries)) {
		i, err := newInstance(h, name, o.Entries[name])
		if err != nil {
			problems = append(problems, err)
			continue
		}
		h.instances[name] = i
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(h.restarts); err != nil {
			return nil, executor.Errorf(executor.Internal, "register metrics: %w", err)
		}
	}
	h.life, h.endLife = context.WithCancelCause(context.Background())
	return h, nil
}

// Start launches every plugin and returns when all are ready. ctx bounds that only. A configuration that a plugin
// refuses, a missing file, or a plugin that does not come up is an error, and then nothing is left running. Codes: those
// of plugin.Launch; conflict (started before, or closed).
func (h *Host) Start(ctx context.Context) error {
	first := make(chan error, len(h.instances))
	if err := h.superviseAll(ctx, first); err != nil {
		return err
	}
	var problems []error
	for range h.instances {
		problems = append(problems, <-first)
	}
	if err := errors.Join(problems...); err != nil {
		return errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return nil
}

// superviseAll starts the supervisors, unless Close was faster.
func (h *Host) superviseAll(ctx context.Context, first chan<- error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started || h.closing != nil {
		return executor.Errorf(executor.Conflict, "the host was started or closed before")
	}
	for _, i := range h.instances {
		if err := h.makeDataDir(i); err != nil {
			return err
		}
	}
	dir, err := openRunDir(h.options.RunDir, h.log)
	if err != nil {
		return err
	}
	h.started, h.dir = true, dir
	for _, i := range h.instances {
		h.wg.Go(func() { i.supervise(ctx, first) })
	}
	return nil
}

func (h *Host) makeDataDir(i *instance) error {
	if h.options.DataDir == "" {
		return nil
	}
	i.dataDir = filepath.Join(h.options.DataDir, "backends", i.name)
	if err := os.MkdirAll(i.dataDir, 0o700); err != nil {
		return executor.Errorf(executor.Unavailable, "data folder of backend %s: %w", i.name, err)
	}
	return nil
}

// Backends returns a Backend for each entry, by name. Each stays valid across restarts and after Close: it answers
// unavailable while its plugin is down. Each also implements executor.SessionBackend.
func (h *Host) Backends() map[string]executor.Backend {
	all := make(map[string]executor.Backend, len(h.instances))
	for name, i := range h.instances {
		all[name] = &proxy{i}
	}
	return all
}

// Status returns where every plugin stands, by name.
func (h *Host) Status() []PluginStatus {
	all := make([]PluginStatus, 0, len(h.instances))
	for _, name := range slices.Sorted(maps.Keys(h.instances)) {
		all = append(all, h.instances[name].status())
	}
	return all
}

// Close drains every plugin, all at the same time, then kills them and removes the run folder. What still runs when ctx
// ends is stopped. Idempotent, and safe before Start.
func (h *Host) Close(ctx context.Context) error {
	h.closeOnce.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, drainLimit)
		defer cancel()
		h.mu.Lock()
		h.closing = ctx
		dir := h.dir
		h.mu.Unlock()
		h.endLife(executor.Errorf(executor.Unavailable, "the host is closed"))
		h.wg.Wait()
		var problems []error
		for _, i := range h.instances {
			problems = append(problems, i.drainErr)
		}
		if dir != nil {
			problems = append(problems, dir.close())
		}
		if h.options.Registerer != nil {
			h.options.Registerer.Unregister(h.restarts)
		}
		h.closeErr = errors.Join(problems...)
	})
	return h.closeErr
}

// drainContext bounds the draining of a plugin; it is asked for when life has ended.
func (h *Host) drainContext() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}
