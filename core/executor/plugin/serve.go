package plugin

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// Configure is what a plugin is told at its start.
type Configure struct {
	// Name is the backend's name in the configuration.
	Name string
	// Instance identifies the core's installation; it stays the same across restarts over one data folder.
	Instance string
	// Embedded: the engine of a single CLI call: use little, and leave nothing behind.
	Embedded bool
	// DataDir is a folder that outlives the process, for the plugin's own use.
	DataDir string
	// Options is the backend's section of the configuration, as JSON.
	Options json.RawMessage
	// Log reaches the host's log. It is made on the plugin's side and does not cross.
	Log *slog.Logger
}

// Factory makes the Backend of a plugin. ctx bounds the making only. Bad options are an executor.Error with code invalid
// whose Fields name "backends.<name>.<key>"; unknown keys are bad. If the Backend is an io.Closer, it is closed (in
// bounded time) when the plugin drains and when its host is gone.
//
// What a program writes must not reach the plugin's own stdout or stderr: those belong to the protocol and to the log.
type Factory func(ctx context.Context, c Configure) (executor.Backend, error)

// ServeBackend is the whole of a plugin's main. It returns when the host has stopped the plugin, or exits the process
// with status 0 when the host is gone. Once configured it sets GOMAXPROCS to a quarter of what it was, at least 1, unless the
// environment has that variable: see useFewProcessors.
func ServeBackend(typ, version string, f Factory) {
	servePlugin(typ, version, f, func(s *server, _ *goplugin.GRPCBroker, g *grpc.Server) {
		wire.RegisterBackend(g, s.backend)
	})
}

// servePlugin serves supervision and what register adds.
func servePlugin(typ, version string, f Factory, register func(*server, *goplugin.GRPCBroker, *grpc.Server)) {
	// Signals are the host's to judge: a terminal's and a service manager's reach the whole group, and SIGPIPE would kill
	// us at the first log line after the host's death, before anything is cleaned up. Caught, not ignored: a program
	// that we start would inherit ignored ones.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)

	stderr := os.Stderr // go-plugin replaces the variable
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	slog.SetDefault(log)
	s := newServer(typ, version, f, log, func() { os.Exit(0) })
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake(),
		Plugins: goplugin.PluginSet{dispenseName: &grpcPlugin{register: func(broker *goplugin.GRPCBroker, g *grpc.Server) {
			wire.RegisterSupervised(g, s)
			register(s, broker, g)
		}}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, wire.ServerOptions()...)...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Name: "go-plugin", Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
	s.wait()
}

// useFewProcessors keeps one processor of the Go scheduler for each four. A plugin relays messages, and a scheduler with an
// idle processor wakes another thread for each, on another CPU and at the expense of the program: of two CPUs, using both
// makes a run of 14 ms 0.4 ms slower. GOMAXPROCS in the environment decides otherwise.
func useFewProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/4))
	}
}

// server is the plugin's side of supervision.
type server struct {
	typ, version string
	factory      Factory
	log          *slog.Logger
	exit         func()

	backend *guarded
	endLife context.CancelCauseFunc
	// draining is called when a drain begins; nil: nothing has to be told.
	draining func()
	// unsupervised exits the process unless it is stopped.
	unsupervised *time.Timer

	mu         sync.Mutex
	configured bool
	attach     bool
	closeOnce  sync.Once
	closeErr   error
	// stopped is closed when nothing is left to clean up.
	stopped chan struct{}
}

var _ wire.Supervised = (*server)(nil)

func newServer(typ, version string, f Factory, log *slog.Logger, exit func()) *server {
	life, end := context.WithCancelCause(context.Background())
	s := &server{
		typ: typ, version: version, factory: f, log: log, exit: exit,
		backend: &guarded{life: life}, endLife: end, stopped: make(chan struct{}),
	}
	s.backend.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is not configured yet"))
	s.unsupervised = time.AfterFunc(unsupervised, exit)
	return s
}

// Configure implements wire.Supervised.
func (s *server) Configure(ctx context.Context, c wire.Configuration) (executor.Info, error) {
	s.unsupervised.Stop()
	// A factory that does not heed ctx must not keep the process alive when its host has died.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeGrace, s.exit) })
	defer stop()
	backend, err := s.factory(ctx, Configure{
		Name: c.Name, Instance: c.Instance, Embedded: c.Embedded, DataDir: c.DataDir, Options: c.Options,
		Log: s.log.With("backend", c.Name),
	})
	if err != nil {
		return executor.Info{}, err
	}
	if backend == nil {
		return executor.Info{}, executor.Errorf(executor.Internal, "the factory of %s made no backend", s.typ)
	}
	s.mu.Lock()
	s.backend.backend = backend
	s.backend.describe = func(i executor.Info) executor.Info { return s.describe(c.Name, i) }
	s.configured = true
	s.mu.Unlock()
	s.backend.gate.shut(nil)
	info, err := s.backend.Info(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	s.mu.Lock()
	s.attach = info.Capabilities.Attach
	s.mu.Unlock()
	useFewProcessors() // to start, which is computing, all are of use
	return info, nil
}

// describe fills in what the process knows better than the backend.
func (s *server) describe(name string, i executor.Info) executor.Info {
	i.Name = name
	if i.Type == "" {
		i.Type = s.typ
	}
	if i.Version == "" {
		i.Version = s.version
	}
	details := maps.Clone(i.Details)
	if details == nil {
		details = map[string]string{}
	}
	details["pid"] = strconv.Itoa(os.Getpid())
	i.Details = details
	return i
}

// Drain implements wire.Supervised.
func (s *server) Drain(ctx context.Context) error {
	s.backend.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is stopping"))
	if s.draining != nil {
		s.draining()
	}
	if err := s.backend.gate.wait(ctx); err != nil {
		return err
	}
	return s.close(ctx)
}

// close closes the backend once.
func (s *server) close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		configured := s.configured
		s.mu.Unlock()
		if !configured {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		s.closeErr = closeBackend(ctx, s.backend.backend)
	})
	return s.closeErr
}

// Gone implements wire.Supervised. Whatever happened, the process ends soon.
func (s *server) Gone(cause error) {
	s.backend.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is stopping"))
	if cause == nil {
		// After a drain all is closed; after a refused configuration there may be a backend whose Info failed.
		s.finish()
		time.AfterFunc(unkilled, s.exit)
		return
	}
	s.endLife(cause)
	time.AfterFunc(stopGrace+2*closeGrace, s.exit)
	go func() {
		s.mu.Lock()
		attach := s.attach
		s.mu.Unlock()
		if !attach { // a backend with attach lets its sandboxes go: their runners know what to do
			ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
			defer cancel()
			if err := s.backend.gate.wait(ctx); err != nil {
				s.log.Error("runs did not stop after the host went away", "error", err)
			}
		}
		s.finish()
		s.exit()
	}()
}

func (s *server) finish() {
	if err := s.close(context.Background()); err != nil {
		s.log.Error("close the backend", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
}

// wait returns when nothing is left to clean up: go-plugin's Serve returns as soon as the connections are closed.
func (s *server) wait() {
	s.mu.Lock()
	configured := s.configured
	s.mu.Unlock()
	if configured {
		<-s.stopped // bounded: Gone was or will be called, and its timers exit the process
	}
}
