package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/host"
	"github.com/python-executor/python-executor/core/peer"
	"github.com/python-executor/python-executor/core/worker"
)

// Worker serves the default backend to servers on other machines until ctx ends, and then drains it: nothing new is taken, and what is
// there may take worker.drain_timeout_seconds. A second request to stop (package stop) ends the drain at once.
func Worker(ctx context.Context, o WorkerOptions) (err error) {
	c := o.Config
	if err := checkWorker(c); err != nil {
		return err
	}
	var stack closers
	defer func() {
		closing := stack.close(ctx)
		if closing != nil && stop.Cause(ctx) == nil {
			o.Log.Error("not everything was stopped", "error", closing)
		}
		err = errors.Join(err, closing)
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, network(c.Worker.Bind), c.Worker.Bind)
	if err != nil {
		return fmt.Errorf("worker.bind: %w", err)
	}
	stack.add(func(context.Context) error { return ignoreClosed(listener.Close()) })
	h, err := startWorkerHost(ctx, o, &stack)
	if err != nil {
		return err
	}
	s, err := worker.New(worker.Options{
		Backend: h.Backends()[c.Backend], TLS: workerTLS(c), Slots: c.Worker.MaxConcurrent, Silence: c.Worker.Silence(),
		Details: workerDetails(), Log: o.Log,
	})
	if err != nil {
		return err
	}
	stack.add(func(context.Context) error { s.Close(); return nil })
	guard := peer.New(programUIDs(c.Backends, o.Bundle), o.Log)
	served := make(chan error, 1)
	go func() { served <- s.Serve(guard.Listener(peer.Patient(listener, o.Log))) }()
	o.Log.Info("worker is listening", "address", listener.Addr().String(), "backend", c.Backend, "slots", c.Worker.MaxConcurrent)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drainWorker(ctx, o, s)
	s.Close()
	return <-served
}

// startWorkerHost starts the plugin of the default backend.
func startWorkerHost(ctx context.Context, o WorkerOptions, stack *closers) (*host.Host, error) {
	data, err := openDataDir(o.Config.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	stack.add(func(context.Context) error { return data.Close() })
	run, err := newRunDir()
	if err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return run.Close() })
	h, err := host.New(host.Options{
		Entries:  map[string]config.Backend{o.Config.Backend: o.Config.Backends[o.Config.Backend]},
		Instance: data.instance, DataDir: data.path, RunDir: run.path, Command: o.Bundle.command, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	stack.add(h.Close)
	return h, h.Start(ctx)
}

// drainWorker lets what is there end, and ends the rest.
func drainWorker(ctx context.Context, o WorkerOptions, s *worker.Server) {
	patience := o.Config.Worker.DrainTimeout()
	o.Log.Info("draining: SIGTERM or Ctrl-C again to end at once", "for", patience)
	bounded, cancel := stop.Within(ctx, patience, errors.New("the drain is over"))
	defer cancel()
	err := s.Drain(bounded)
	if err == nil {
		return
	}
	o.Log.Warn("the drain ends early or late: the rest is handed back", "error", err)
	last, done := stop.Within(ctx, stopTime, errStop)
	defer done()
	if err := s.HandBack(last); err != nil {
		o.Log.Error("hand back", "error", err)
	}
}

// workerDetails are facts for people. Nomad names the allocation of a task in its environment.
func workerDetails() map[string]string {
	name, _ := os.Hostname() // without a name there is none to tell
	details := map[string]string{"worker": name}
	if id := os.Getenv("NOMAD_ALLOC_ID"); id != "" {
		details["allocation"] = id
		details["worker"] = cmp.Or(os.Getenv("NOMAD_ALLOC_NAME"), name)
	}
	return details
}
