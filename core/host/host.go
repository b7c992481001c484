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

// drainLimit bounds the drain of a plugin in Close. The ctx of Close bounds it, too.
const drainLimit = 60 * time.Second

// Options configure a Host.
type Options struct {
	// Entries are the configured backends by name. Start starts all of them.
	Entries map[string]config.Backend
	// Instance identifies the installation (plugin.Configure.Instance).
	Instance string
	// Embedded says that the host belongs to a single CLI call.
	Embedded bool
	// DataDir holds one folder per backend, "backends/<name>", which the host makes and hands to the plugin; empty means none.
	DataDir string
	// RunDir holds the sockets, in a folder with mode 0700 for each process. The host makes RunDir if it is missing. If it is
	// empty or too long for the path of a socket, the host uses a folder of its own in the system's temporary folder.
	RunDir string
	// Command returns the program and the whole argv of a bundled type. An unknown type is an error with code invalid.
	Command func(typ string) (path string, args []string, err error)
	// Log takes the logs of the host and of the plugins; nil discards them.
	Log *slog.Logger
	// Registerer takes the metrics; nil means none.
	Registerer prometheus.Registerer
}

// PluginStatus is the state of one plugin.
type PluginStatus struct {
	Name string
	Type string
	// PID is the number of the present process; 0 while there is none.
	PID int
	// Generation counts the launches, from 1. Restarts counts the launches after a crash.
	Generation int
	Restarts   int
	// Healthy reports whether a process is ready. Message says why not.
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

	// life ends when Close begins. closing then bounds the drains.
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

// New checks o and returns a Host that has started no plugin. Codes: invalid.
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

// Start launches every plugin and returns when all are ready. ctx bounds the start only. If a plugin refuses its
// configuration, is missing or does not start, Start returns an error and leaves no plugin running. Codes: those of
// plugin.Launch; conflict (started before, or closed).
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

// superviseAll starts the supervisors, unless Close was called before.
func (h *Host) superviseAll(ctx context.Context, first chan<- error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started || h.closing != nil {
		return executor.Errorf(executor.Conflict, "the host must be started once, before Close")
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

// Backends returns a Backend for each entry, by name. A Backend stays valid across restarts and after Close. It returns
// unavailable while its plugin is down. It also implements executor.SessionBackend.
func (h *Host) Backends() map[string]executor.Backend {
	all := make(map[string]executor.Backend, len(h.instances))
	for name, i := range h.instances {
		all[name] = newBackend(i)
	}
	return all
}

// Status returns the state of every plugin, sorted by name.
func (h *Host) Status() []PluginStatus {
	all := make([]PluginStatus, 0, len(h.instances))
	for _, name := range slices.Sorted(maps.Keys(h.instances)) {
		all = append(all, h.instances[name].status())
	}
	return all
}

// Close drains all plugins at the same time, then kills them and removes the run folder. When ctx ends it stops the calls
// that are still under way. Idempotent, and safe before Start.
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

// drainContext returns the ctx that bounds the drain of a plugin. Call it when life has ended.
func (h *Host) drainContext() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}
