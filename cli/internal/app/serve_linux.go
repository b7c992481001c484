package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/auth"
	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/host"
	"github.com/python-executor/python-executor/core/peer"
	sqlitestore "github.com/python-executor/python-executor/core/store/sqlite"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
)

// Serve runs a server until ctx ends, and then drains it. The server accepts no new work. Running executions may take
// engine.drain_timeout_seconds, and calls that wait for them or follow them are still answered. Then all parts stop in the reverse
// order of their start. A second request to stop (package stop) ends the drain at once.
func Serve(ctx context.Context, o ServeOptions) (err error) {
	authenticator, err := auth.New(authTokens(o.Config.HTTP.Tokens))
	if err != nil {
		return err
	}
	if localScripts(o.Config) {
		authenticator.Allow(executor.ScopeScripts)
	}
	var stack closers
	defer func() {
		closing := stack.close(ctx)
		if closing != nil && stop.Cause(ctx) == nil { // after a signal no other code reports the error; without time to stop it is expected
			o.Log.Error("not everything was stopped or written", "error", closing)
		}
		err = errors.Join(err, closing)
	}()
	// The port comes first, because most failed starts fail here, and nothing has to be undone yet.
	listener, err := (&net.ListenConfig{}).Listen(ctx, network(o.Config.HTTP.Bind), o.Config.HTTP.Bind)
	if err != nil {
		return fmt.Errorf("http.bind: %w", err)
	}
	stack.add(func(context.Context) error { return ignoreClosed(listener.Close()) })
	c, err := startCore(ctx, o, &stack)
	if err != nil {
		return err
	}
	mcp, mcpURL, err := serveMCP(ctx, o, c.engine, c.runDir, &stack)
	if err != nil {
		return err
	}
	handler, err := httpfrontend.New(c.engine, httpfrontend.Options{
		Auth: authenticator, Version: o.Bundle.Version, Bind: o.Config.HTTP.Bind,
		MaxBodyBytes: o.Config.HTTP.MaxBodyBytes, MaxBufferedBytes: o.Config.HTTP.MaxBufferedBytes, SpoolDir: c.spoolDir,
		Metrics: promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{}), Ready: c.engine.Ready,
		Limits:       httpfrontend.LimitRange{Default: o.Config.Limits.Default.Executor(), Max: o.Config.Limits.Max.Executor()},
		MaxFileBytes: o.Config.Sessions.MaxFileBytes,
		MCP:          mcp,
		Log:          o.Log,
	})
	if err != nil {
		return err
	}
	o.Log.Info("listening", "url", "http://"+listener.Addr().String())
	if mcp != nil {
		o.Log.Info("serving MCP", "url", "http://"+listener.Addr().String()+mcp.Path)
	}
	if mcpURL != "" {
		o.Log.Info("listening for MCP", "url", mcpURL)
	}
	serving, stopServing := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopServing(nil)
	drained := context.AfterFunc(ctx, func() {
		if err := drain(ctx, o, c); err != nil {
			o.Log.Error("drain", "error", err)
		}
		stopServing(errDrained)
	})
	defer drained()
	guarded := peer.New(programUIDs(o.Config.Backends, o.Bundle), o.Log).Listener(listener)
	err = httpfrontend.Serve(serving, stop.Now(ctx), guarded, handler, o.Log)
	o.Log.Info("stopping")
	return err
}

// core has a server's engine and the parts of it that other code needs.
type core struct {
	engine           *engine.Engine
	host             *host.Host
	registry         *prometheus.Registry
	runDir, spoolDir string
}

// startCore starts the engine with its store, its blobs and the plugins of its backends. It adds the function that stops each
// part to stack, even if a later part fails.
func startCore(ctx context.Context, o ServeOptions, stack *closers) (c core, err error) {
	data, err := openDataDir(o.Config.DataDir)
	if err != nil {
		return c, fmt.Errorf("data_dir: %w", err)
	}
	stack.add(func(context.Context) error { return data.Close() })
	run, err := newRunDir()
	if err != nil {
		return c, err
	}
	stack.add(func(context.Context) error { return run.Close() })
	spool, err := newTemporary(data.path)
	if err != nil {
		return c, err
	}
	stack.add(func(context.Context) error { return spool.Close() })
	store, err := sqlitestore.Open(filepath.Join(data.path, "executions.db"), sqlitestore.Options{Log: o.Log})
	if err != nil {
		return c, err
	}
	stack.add(func(context.Context) error { return store.Close() })
	blobs, err := dirblobs.Open(filepath.Join(data.path, "blobs"))
	if err != nil {
		return c, err
	}
	c.runDir, c.spoolDir, c.registry = run.path, spool.path, prometheus.NewRegistry()
	c.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h, err := host.New(host.Options{
		Entries: o.Config.Backends, Instance: data.instance, DataDir: data.path, RunDir: run.path,
		Command: o.Bundle.command, Log: o.Log, Registerer: c.registry,
	})
	if err != nil {
		return c, err
	}
	c.host = h
	stack.add(h.Close)
	if err := h.Start(ctx); err != nil {
		return c, err
	}
	backends, err := withScripts(o.Config, h.Backends(), spool.path, o.Bundle.Version, stack, o.Log)
	if err != nil {
		return c, err
	}
	if c.engine, err = engine.New(engine.Options{
		Store: store, Blobs: blobs, Backends: backends, DefaultBackend: o.Config.Backend, Engine: o.Config.Engine,
		Limits: o.Config.Limits, Retention: o.Config.Retention, Sessions: o.Config.Sessions, SpoolBytes: o.Config.HTTP.MaxBodyBytes, Log: o.Log,
		Registerer: c.registry, HostDirectories: o.Config.MCP.Directories,
	}); err != nil {
		return c, err
	}
	if err := c.engine.Start(ctx); err != nil {
		return c, err
	}
	stack.add(func(context.Context) error { return closeEngine(ctx, o, c) })
	return c, nil
}

// network returns tcp4 for an IPv4 address. With tcp, Go would listen for 0.0.0.0 on all IPv6 addresses, too.
func network(bind string) string {
	if at, err := netip.ParseAddrPort(bind); err == nil && at.Addr().Is4() {
		return "tcp4"
	}
	return "tcp"
}

var errDrained = errors.New("the server is stopping")

// drain closes the engine and logs how long that may take.
func drain(ctx context.Context, o ServeOptions, c core) error {
	drained := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-stop.Listening(ctx):
			o.Log.Info("draining: SIGTERM or Ctrl-C again to end at once", "for", o.Config.Engine.DrainTimeout())
		case <-drained:
		}
	})
	err := closeEngine(ctx, o, c)
	close(drained)
	wg.Wait()
	return err
}

// closeEngine gives running executions the time of the drain, if there was a signal to stop, and none after a failure.
func closeEngine(ctx context.Context, o ServeOptions, c core) error {
	patience := time.Duration(0)
	if ctx.Err() != nil {
		patience = o.Config.Engine.DrainTimeout()
	}
	bounded, cancel := stop.Within(ctx, patience, errors.New("the drain is over"))
	defer cancel()
	err := stopEngine(bounded, c.engine, c.host)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
