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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// Configure is what a plugin gets at its start.
type Configure struct {
	// Name is the backend's name in the configuration.
	Name string
	// Instance identifies the core's installation. It stays the same across restarts with one data folder.
	Instance string
	// Embedded says that the engine belongs to a single CLI call: use little, and leave nothing behind.
	Embedded bool
	// Personal says that the engine serves only the user who has started it: a CLI call, or MCP over stdio.
	Personal bool
	// DataDir is a folder for the plugin's own use. It outlives the process.
	DataDir string
	// Options is the backend's section of the configuration, as JSON.
	Options json.RawMessage
	// Log writes to the host's log. It is made in the plugin's process.
	Log *slog.Logger
}

// Factory makes the Backend of a plugin. ctx bounds the making only. Bad options are an executor.Error with code invalid
// whose Fields name "backends.<name>.<key>". Unknown keys are bad. A Backend that is an io.Closer is closed, in bounded
// time, when the plugin drains and when its host is gone.
//
// The output of a program must not reach the plugin's own stdout or stderr, which belong to the protocol and to the log.
type Factory func(ctx context.Context, c Configure) (executor.Backend, error)

// ServeBackend is the whole of a plugin's main. It returns when the host has stopped the plugin. It exits the process with
// status 0 when the host is gone. Once configured it sets GOMAXPROCS to a quarter, at least 1, unless the environment has
// that variable: see useFewProcessors.
func ServeBackend(typ, version string, f Factory) {
	servePlugin(typ, version, f, func(s *server, _ *goplugin.GRPCBroker, g *grpc.Server) {
		wire.RegisterBackend(g, &s.backend)
	})
}

// servePlugin serves supervision and what register adds.
func servePlugin(typ, version string, f Factory, register func(*server, *goplugin.GRPCBroker, *grpc.Server)) {
	// The host decides about signals: those of a terminal or a service manager reach the whole group. SIGPIPE would kill
	// the plugin at the first log line after the host's death, before it has cleaned up. The signals are caught and not
	// ignored, because a program that the plugin starts inherits ignored signals.
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
			return grpc.NewServer(append(opts, wire.ServerOptions(s.admit)...)...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Name: "go-plugin", Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
	s.wait()
}

// useFewProcessors reduces the processors of the Go scheduler to a quarter. A plugin relays messages. A scheduler with an
// idle processor wakes another thread for each message, on another CPU and at the expense of the program. On two CPUs a
// run of 14 ms is 0.4 ms slower with both (docs/decisions/0008). GOMAXPROCS in the environment overrides it.
func useFewProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/4))
	}
}

// served is the backend of the factory with a completed Info. It is empty until Configure, while the gate is shut.
type served struct {
	executor.Backend
	executor.SessionBackend // nil if the backend has no sessions
	describe                func(executor.Info) executor.Info
}

func newServed(b executor.Backend, describe func(executor.Info) executor.Info) served {
	sessions, _ := b.(executor.SessionBackend)
	return served{b, sessions, describe}
}

// Info implements executor.Backend.
func (s *served) Info(ctx context.Context) (executor.Info, error) {
	info, err := s.Backend.Info(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	return s.describe(info), nil
}

// server is the plugin's side of supervision.
type server struct {
	typ, version string
	factory      Factory
	log          *slog.Logger
	exit         func()

	gate gate
	// life ends every call when it ends.
	life    context.Context
	endLife context.CancelCauseFunc
	backend served
	// draining, if not nil, is called when a drain begins.
	draining func()
	// unsupervised exits the process unless Configure stops it.
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
		life: life, endLife: end, stopped: make(chan struct{}),
	}
	s.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is not configured yet"))
	s.unsupervised = time.AfterFunc(unsupervised, exit)
	return s
}

// Configure implements wire.Supervised.
func (s *server) Configure(ctx context.Context, c wire.Configuration) (executor.Info, error) {
	s.unsupervised.Stop()
	// A factory that ignores ctx must not keep the process alive when its host has died.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeGrace, s.exit) })
	defer stop()
	backend, err := s.factory(ctx, Configure{
		Name: c.Name, Instance: c.Instance, Embedded: c.Embedded, Personal: c.Personal, DataDir: c.DataDir, Options: c.Options,
		Log: s.log,
	})
	if err != nil {
		return executor.Info{}, err
	}
	if backend == nil {
		return executor.Info{}, executor.Errorf(executor.Internal, "the factory of %s made no backend", s.typ)
	}
	s.mu.Lock()
	s.backend = newServed(backend, func(i executor.Info) executor.Info { return s.describe(c.Name, i) })
	s.configured = true
	s.mu.Unlock()
	s.gate.shut(nil)
	info, err := s.backend.Info(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	s.mu.Lock()
	s.attach = info.Capabilities.Attach
	s.mu.Unlock()
	useFewProcessors() // not before: the start computes
	return info, nil
}

// admit implements wire.Admit: a call passes the gate and ends with life.
func (s *server) admit(ctx context.Context, method string) (context.Context, func(), error) {
	if err := s.gate.enter(); err != nil {
		return nil, nil, err
	}
	if s.backend.SessionBackend == nil && strings.HasPrefix(method, wire.SessionMethods) {
		s.gate.leave()
		return nil, nil, executor.Errorf(executor.Unimplemented, "this backend has no sessions")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.gate.leave()
	}, nil
}

// describe fills in what the process knows and the backend does not.
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
	s.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is stopping"))
	if s.draining != nil {
		s.draining()
	}
	if err := s.gate.wait(ctx); err != nil {
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
		s.closeErr = closeBackend(ctx, s.backend.Backend)
	})
	return s.closeErr
}

// Gone implements wire.Supervised. The process ends soon.
func (s *server) Gone(cause error) {
	s.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is stopping"))
	if cause == nil {
		// After a drain the backend is closed. After a refused configuration there may be a backend whose Info failed.
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
		if !attach { // a backend with attach leaves its sandboxes running, and their runners wait for the next host
			ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
			defer cancel()
			if err := s.gate.wait(ctx); err != nil {
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

// wait returns when nothing is left to clean up. go-plugin's Serve returns earlier, when the connections are closed.
func (s *server) wait() {
	s.mu.Lock()
	configured := s.configured
	s.mu.Unlock()
	if configured {
		<-s.stopped // bounded by the timers of Gone, which is called in any case
	}
}
