package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/auth"
	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/host"
	"github.com/python-executor/python-executor/core/peer"
	"github.com/python-executor/python-executor/core/scripts"
	sqlitestore "github.com/python-executor/python-executor/core/store/sqlite"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
)

// Serve runs a server until ctx ends, and then drains it. The server accepts no new work. Running executions may take
// engine.drain_timeout_seconds, and calls that wait for them or follow them are still answered. Then all parts stop in the reverse
// order of their start. A second request to stop (package stop) ends the drain at once.
//
// Meanwhile a changed configuration takes effect (type live).
func Serve(ctx context.Context, o ServeOptions) (err error) {
	authenticator, err := newAuthenticator(o.Config)
	if err != nil {
		return err
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
	profiles, err := listenPprof(ctx, o.Config.HTTP.PprofBind)
	if err != nil {
		return err
	}
	if profiles != nil {
		stack.add(func(context.Context) error { return ignoreClosed(profiles.Close()) })
	}
	c, err := startCore(ctx, o, &stack)
	if err != nil {
		return err
	}
	l := newLive(o, c)
	if profiles != nil {
		stack.add(servePprof(ctx, l.guard.Listener(peer.Patient(profiles, o.Log)), o.Log))
	}
	if err := l.mcp.start(ctx, o.Config); err != nil {
		return err
	}
	stack.add(l.mcp.close)
	handler, err := l.handler(o.Config, authenticator)
	if err != nil {
		return err
	}
	l.current.Store(&handler)
	o.Log.Info("listening", "url", "http://"+listener.Addr().String())
	l.mcp.announce("http://" + listener.Addr().String())
	serving, stopServing := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopServing(nil)
	watched := l.watch(ctx)
	defer watched()
	drained := context.AfterFunc(ctx, func() {
		watched()
		if err := drain(ctx, o, c); err != nil {
			o.Log.Error("drain", "error", err)
		}
		stopServing(errDrained)
	})
	defer drained()
	err = httpfrontend.Serve(serving, stop.Now(ctx), l.guard.Listener(peer.Patient(listener, o.Log)), l, o.Log)
	o.Log.Info("stopping")
	return err
}

// newAuthenticator returns the Authenticator of the tokens of c.
func newAuthenticator(c config.Config) (*auth.Authenticator, error) {
	a, err := auth.New(authTokens(c.HTTP.Tokens))
	if err == nil && localScripts(c) {
		a.Allow(executor.ScopeScripts)
	}
	return a, err
}

// core has a server's engine and the parts of it that other code needs.
type core struct {
	engine           *engine.Engine
	host             *host.Host
	registry         *prometheus.Registry
	runDir, spoolDir string
	// config is the configuration that is in effect, and backends are those of it, by name.
	config   atomic.Pointer[config.Config]
	backends map[string]executor.Backend
	// retiring are the goroutines that stop former backends. They end when the engine has closed.
	retiring sync.WaitGroup
}

// engineOptions returns the options of the engine that the configuration determines.
func engineOptions(c config.Config, backends map[string]executor.Backend) engine.Options {
	return engine.Options{
		Backends: backends, DefaultBackend: c.Backend, Engine: c.Engine, Limits: c.Limits, Retention: c.Retention, Sessions: c.Sessions,
		SpoolBytes: c.HTTP.MaxBodyBytes, HostDirectories: c.MCP.Directories,
	}
}

// startCore starts the engine with its store, its blobs and the plugins of its backends. It adds the function that stops each
// part to stack, even if a later part fails.
func startCore(ctx context.Context, o ServeOptions, stack *closers) (*core, error) {
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
	spool, err := newTemporary(data.path)
	if err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return spool.Close() })
	store, err := sqlitestore.Open(filepath.Join(data.path, "executions.db"), sqlitestore.Options{Log: o.Log})
	if err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return store.Close() })
	blobs, err := dirblobs.Open(filepath.Join(data.path, "blobs"))
	if err != nil {
		return nil, err
	}
	c := &core{runDir: run.path, spoolDir: spool.path, registry: prometheus.NewRegistry()}
	c.config.Store(&o.Config)
	c.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c.host, err = host.New(host.Options{
		Entries: o.Config.Backends, Instance: data.instance, DataDir: data.path, RunDir: run.path,
		Command: o.Bundle.command, Log: o.Log, Registerer: c.registry,
	}); err != nil {
		return nil, err
	}
	stack.add(c.host.Close)
	if err := c.host.Start(ctx); err != nil {
		return nil, err
	}
	c.backends = c.host.Backends()
	if hasScripts(o.Config) {
		if c.backends[scripts.Name], err = newScripts(o.Config, spool.path, o.Bundle.Version, o.Log); err != nil {
			return nil, err
		}
	}
	stack.add(func(context.Context) error { return closeScripts(c.backends[scripts.Name]) })
	stack.add(func(context.Context) error { c.retiring.Wait(); return nil })
	options := engineOptions(o.Config, c.backends)
	options.Store, options.Blobs, options.Log, options.Registerer = store, blobs, o.Log, c.registry
	if c.engine, err = engine.New(options); err != nil {
		return nil, err
	}
	if err := c.engine.Start(ctx); err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return closeEngine(ctx, c) })
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
func drain(ctx context.Context, o ServeOptions, c *core) error {
	drained := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-stop.Listening(ctx):
			o.Log.Info("draining: SIGTERM or Ctrl-C again to end at once", "for", c.config.Load().Engine.DrainTimeout())
		case <-drained:
		}
	})
	err := closeEngine(ctx, c)
	close(drained)
	wg.Wait()
	return err
}

// closeEngine gives running executions the time of the drain, if there was a signal to stop, and none after a failure.
func closeEngine(ctx context.Context, c *core) error {
	patience := time.Duration(0)
	if ctx.Err() != nil {
		patience = c.config.Load().Engine.DrainTimeout()
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
