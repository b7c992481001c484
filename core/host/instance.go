package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

const (
	// startLimit bounds one launch with its configuration. A backend may have to fetch a tool.
	startLimit = 5 * time.Minute
	// usualSweepLimit bounds the start that cleans up after a plugin that was killed while the host closes.
	usualSweepLimit = 10 * time.Second
)

// instance is the supervisor of one entry.
type instance struct {
	host    *Host
	name    string
	typ     string
	entry   config.Backend
	dataDir string
	log     *slog.Logger
	restart prometheus.Counter
	backend *backend

	// life ends when the instance is told to end. ended is closed when supervise has returned; drainErr is set before.
	life     context.Context
	endLife  context.CancelCauseFunc
	ended    chan struct{}
	drainErr error

	mu sync.Mutex
	// closing bounds the drain. It is set when life ends.
	closing    context.Context
	process    *plugin.Process
	generation int
	restarts   int
	// message is why there is no process.
	message string
}

func newInstance(h *Host, name string, entry config.Backend) (*instance, error) {
	typ := entry.Type
	if typ == "" {
		typ = name
	}
	field := "backends." + name
	switch {
	case name == "":
		return nil, executor.FieldErrorf(executor.Invalid, "backends", "a backend must have a name")
	case (entry.Path == "") != (entry.SHA256 == ""):
		return nil, executor.FieldErrorf(executor.Invalid, field+".sha256", "must be set if and only if path is set")
	case entry.Path == "" && h.options.Command == nil:
		return nil, executor.FieldErrorf(executor.Invalid, field+".type", "must have a path: there are no bundled plugins here")
	}
	i := &instance{
		host: h, name: name, typ: typ, entry: entry,
		log:     h.log.With("backend", name),
		restart: h.restarts.WithLabelValues(name),
		ended:   make(chan struct{}),
		message: "not started yet",
	}
	i.life, i.endLife = context.WithCancelCause(context.Background())
	i.backend = newBackend(i)
	return i, nil
}

// end tells the instance to end, for reason. ctx bounds the drain. The first call counts.
func (i *instance) end(ctx context.Context, reason error) {
	i.mu.Lock()
	if i.closing == nil {
		i.closing = ctx
	}
	i.mu.Unlock()
	i.endLife(reason)
}

// supervise keeps one plugin running until the instance is told to end. It sends the error of the first launch to first, and returns if
// that launch failed. startCtx bounds the first launch.
func (i *instance) supervise(startCtx context.Context, first chan<- error) {
	defer close(i.ended)
	pauses := pauses{steady: i.host.steady}
	ctx, cancel := context.WithCancelCause(startCtx)
	stop := context.AfterFunc(i.life, func() { cancel(context.Cause(i.life)) })
	process, err := i.launch(ctx)
	stop()
	cancel(nil)
	first <- err
	if err != nil {
		i.down(err.Error())
		return
	}
	for {
		var uptime time.Duration
		if process != nil {
			began := time.Now()
			if closed := i.attend(process); closed {
				return
			}
			uptime = time.Since(began)
		}
		pause := pauses.next(uptime)
		i.log.Warn("plugin is started again", "pause", pause)
		if !rest(i.life, pause) {
			i.down(context.Cause(i.life).Error())
			return
		}
		i.countRestart()
		if process, err = i.launch(i.life); err != nil {
			i.down(err.Error())
			i.log.Error("plugin does not start", "error", err)
		}
	}
}

// launch starts the next generation and publishes it.
func (i *instance) launch(ctx context.Context) (*plugin.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	generation := i.host.nextGeneration(i.name)
	i.mu.Lock()
	i.generation = generation
	i.mu.Unlock()
	process, err := i.start(ctx)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.process = process
	i.message = ""
	i.mu.Unlock()
	i.log.Debug("plugin ready", "pid", process.PID(), "generation", generation)
	return process, nil
}

// start starts a process without publishing it.
func (i *instance) start(ctx context.Context) (*plugin.Process, error) {
	path, args := i.entry.Path, []string(nil)
	if path == "" {
		var err error
		if path, args, err = i.host.options.Command(i.typ); err != nil {
			return nil, fmt.Errorf("backend %s: %w", i.name, err)
		}
	}
	process, err := plugin.Launch(ctx, plugin.LaunchOptions{
		Path: path, Args: args, SHA256: i.entry.SHA256,
		RunDir: i.host.dir.path,
		Configure: plugin.Configure{
			Name:     i.name,
			Instance: i.host.options.Instance,
			Embedded: i.host.options.Embedded,
			Personal: i.host.options.Personal,
			DataDir:  i.dataDir,
			Options:  i.entry.Options,
		},
		Log:      i.log,
		CutGrace: i.host.cutGrace,
	})
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", i.name, err)
	}
	return process, nil
}

// sweep removes what is left of a plugin that did not stop in order. A plugin removes the leftovers of dead plugins when it
// starts, so sweep starts one.
func (i *instance) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), i.host.sweepLimit)
	defer cancel()
	process, err := i.start(ctx)
	if err == nil {
		err = process.Drain(ctx)
		process.Kill()
	}
	if err != nil {
		i.log.Warn("clean up after a plugin that was killed", "error", err)
	}
}

// attend waits for the end of process or of the instance, and then ends process. It reports whether the instance ends.
func (i *instance) attend(process *plugin.Process) (closed bool) {
	select {
	case <-process.Done():
		i.down("the plugin ended; it is being restarted")
		i.log.Warn("plugin ended", "pid", process.PID(), "error", process.Err())
		process.Kill()
		return false
	case <-i.life.Done():
		i.mu.Lock()
		ctx := i.closing
		i.mu.Unlock()
		err := process.Drain(ctx)
		if errors.Is(err, &executor.Error{Code: executor.Unavailable}) {
			i.log.Warn("plugin ended while it was being drained", "error", err) // there is nothing left to drain
		} else if err != nil {
			i.drainErr = fmt.Errorf("drain backend %s: %w", i.name, err)
		}
		i.down(context.Cause(i.life).Error())
		process.Kill()
		if !process.Orderly() {
			i.sweep()
		}
		return true
	}
}

func (i *instance) countRestart() {
	i.mu.Lock()
	i.restarts++
	i.mu.Unlock()
	i.restart.Inc()
}

func (i *instance) down(message string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.process = nil
	i.message = message
}

// current returns the present process. Codes: unavailable.
func (i *instance) current() (*plugin.Process, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.process == nil {
		return nil, &executor.Error{
			Code: executor.Unavailable, Message: fmt.Sprintf("backend %s is down: %s", i.name, i.message), RetryAfter: time.Second,
		}
	}
	return i.process, nil
}

func (i *instance) status() PluginStatus {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := PluginStatus{Name: i.name, Type: i.typ, Generation: i.generation, Restarts: i.restarts, Message: i.message}
	if i.process != nil {
		s.PID, s.Healthy = i.process.PID(), true
	}
	return s
}

// backend is the Backend of an entry. Each call goes to the process that serves the entry when the call begins.
type backend struct {
	executor.Backend
	executor.SessionBackend
	instance *instance
}

func newBackend(i *instance) *backend {
	b := plugin.NewBackend(i.current)
	return &backend{b, b, i}
}

// Info implements executor.Backend. It adds the generation, which only the host knows.
func (b *backend) Info(ctx context.Context) (executor.Info, error) {
	info, err := b.Backend.Info(ctx)
	if err == nil {
		info.Generation = b.instance.status().Generation
	}
	return info, err
}
