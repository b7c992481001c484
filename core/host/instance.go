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
	// sweepLimit bounds the start that cleans up after a plugin that was killed while the host closes.
	sweepLimit = 10 * time.Second
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
	// drainErr is set before supervise returns.
	drainErr error

	mu         sync.Mutex
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
	return &instance{
		host: h, name: name, typ: typ, entry: entry,
		log:     h.log.With("backend", name),
		restart: h.restarts.WithLabelValues(name),
		message: "not started yet",
	}, nil
}

// supervise keeps one plugin running until the host closes. It sends the error of the first launch to first, and returns if
// that launch failed. startCtx bounds the first launch.
func (i *instance) supervise(startCtx context.Context, first chan<- error) {
	pauses := pauses{steady: i.host.steady}
	ctx, cancel := context.WithCancelCause(startCtx)
	stop := context.AfterFunc(i.host.life, func() { cancel(context.Cause(i.host.life)) })
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
		if !rest(i.host.life, pause) {
			i.down("the host is closed")
			return
		}
		i.countRestart()
		if process, err = i.launch(i.host.life); err != nil {
			i.down(err.Error())
			i.log.Error("plugin does not start", "error", err)
		}
	}
}

// launch starts the next generation and publishes it.
func (i *instance) launch(ctx context.Context) (*plugin.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	i.mu.Lock()
	i.generation++
	generation := i.generation
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
			DataDir:  i.dataDir,
			Options:  i.entry.Options,
		},
		Log: i.log,
	})
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", i.name, err)
	}
	return process, nil
}

// sweep removes what is left of a plugin that did not stop in order. A plugin removes the leftovers of dead plugins when it
// starts, so sweep starts one.
func (i *instance) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
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

// attend waits for the end of process or for the host's Close, and then ends process. It reports whether the host closes.
func (i *instance) attend(process *plugin.Process) (closed bool) {
	select {
	case <-process.Done():
		i.down("the plugin ended; it is being restarted")
		i.log.Warn("plugin ended", "pid", process.PID(), "error", process.Err())
		process.Kill()
		return false
	case <-i.host.life.Done():
		err := process.Drain(i.host.drainContext())
		if errors.Is(err, &executor.Error{Code: executor.Unavailable}) {
			i.log.Warn("plugin ended while it was being drained", "error", err) // there is nothing left to drain
		} else if err != nil {
			i.drainErr = fmt.Errorf("drain backend %s: %w", i.name, err)
		}
		i.down("the host is closed")
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
