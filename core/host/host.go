package host

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	// Entries are the configured backends by name. Start starts all of them. Add starts more.
	Entries map[string]config.Backend
	// Instance identifies the installation (plugin.Configure.Instance).
	Instance string
	// Embedded says that the host belongs to a single CLI call.
	Embedded bool
	// Personal says that the engine serves only the user who has started it (plugin.Configure.Personal).
	Personal bool
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
	options  Options
	log      *slog.Logger
	restarts *prometheus.CounterVec
	// steady, sweepLimit and cutGrace are other ones in tests. cutGrace is plugin.LaunchOptions.CutGrace.
	steady, sweepLimit, cutGrace time.Duration

	wg sync.WaitGroup

	mu      sync.Mutex
	started bool
	// closing bounds the drains. It is set when Close begins.
	closing context.Context
	dir     *runDir
	// instances are in the order of their start. Several may have one name. generations has the last generation of each name.
	instances   []*instance
	generations map[string]int

	closeOnce sync.Once
	closeErr  error
}

// New checks o and returns a Host that has started no plugin. Codes: invalid.
func New(o Options) (*Host, error) {
	h := &Host{options: o, log: o.Log, generations: map[string]int{}, steady: steadyTime, sweepLimit: usualSweepLimit}
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
		h.instances = append(h.instances, i)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(h.restarts); err != nil {
			return nil, executor.Errorf(executor.Internal, "register metrics: %w", err)
		}
	}
	return h, nil
}

// Start launches every plugin and returns when all are ready. ctx bounds the start only. If a plugin refuses its
// configuration, is missing or does not start, Start returns an error and leaves no plugin running. Codes: those of
// plugin.Launch; conflict (started before, or closed).
func (h *Host) Start(ctx context.Context) error {
	first := make(chan error, len(h.options.Entries))
	if err := h.superviseAll(ctx, first); err != nil {
		return err
	}
	var problems []error
	for range h.options.Entries {
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

// nextGeneration counts the launches of a name, so that no two processes of one name have the same generation.
func (h *Host) nextGeneration(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.generations[name]++
	return h.generations[name]
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

// Backends returns a Backend for each entry, by name; of several the last one. A Backend stays valid across restarts and after Close. It returns
// unavailable while its plugin is down. It also implements executor.SessionBackend.
func (h *Host) Backends() map[string]executor.Backend {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]executor.Backend, len(h.instances))
	for _, i := range h.instances {
		all[i.name] = i.backend
	}
	return all
}

// Add launches the plugin of one more entry, beside those that are there, and returns its Backend when it is ready. An entry of the same
// name goes on until Remove. ctx bounds the start only. After an error nothing of the plugin is left. Codes: those of plugin.Launch;
// conflict (not started yet, or closed).
func (h *Host) Add(ctx context.Context, name string, entry config.Backend) (executor.Backend, error) {
	i, err := newInstance(h, name, entry)
	if err != nil {
		return nil, err
	}
	if err := h.makeDataDir(i); err != nil {
		return nil, err
	}
	first := make(chan error, 1)
	h.mu.Lock()
	if !h.started || h.closing != nil {
		h.mu.Unlock()
		return nil, executor.Errorf(executor.Conflict, "the host must be started and not closed")
	}
	h.instances = append(h.instances, i)
	h.wg.Go(func() { i.supervise(ctx, first) })
	h.mu.Unlock()
	if err := <-first; err != nil {
		return nil, errors.Join(err, h.Remove(context.WithoutCancel(ctx), i.backend))
	}
	return i.backend, nil
}

// Remove drains the plugin of b, which ctx bounds, and ends it. b is of Backends or Add. It returns the error of the drain.
func (h *Host) Remove(ctx context.Context, b executor.Backend) error {
	h.mu.Lock()
	at := slices.IndexFunc(h.instances, func(i *instance) bool { return i.backend == b })
	if at < 0 {
		h.mu.Unlock()
		return nil
	}
	i := h.instances[at]
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	i.end(ctx, executor.Errorf(executor.Unavailable, "the backend was removed"))
	<-i.ended
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instances = slices.DeleteFunc(h.instances, func(other *instance) bool { return other == i })
	return i.drainErr
}

// Status returns the state of every plugin, sorted by name.
func (h *Host) Status() []PluginStatus {
	h.mu.Lock()
	instances := slices.Clone(h.instances)
	h.mu.Unlock()
	all := make([]PluginStatus, 0, len(instances))
	for _, i := range instances {
		all = append(all, i.status())
	}
	slices.SortStableFunc(all, func(a, b PluginStatus) int { return strings.Compare(a.Name, b.Name) })
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
		dir, instances := h.dir, slices.Clone(h.instances)
		h.mu.Unlock()
		for _, i := range instances {
			i.end(ctx, errClosed)
		}
		h.wg.Wait()
		var problems []error
		for _, i := range instances {
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

var errClosed = executor.Errorf(executor.Unavailable, "the host is closed")
