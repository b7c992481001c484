// Package plugintest puts a Backend behind a real process boundary, or half of one, for tests.
//
// Wire puts it behind gRPC inside the test's process; Process runs it in a plugin process that is the test's own binary,
// started again. For the latter the package's TestMain calls Main first:
//
//	func TestMain(m *testing.M) {
//		plugintest.Main(map[string]plugin.Factory{"fake": fake.Factory})
//		leaktest.Main(m)
//	}
//
// Wheel makes a Python package for tests of preparations.
package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// Main runs the plugin and exits if this process was started as one; else it returns at once. factories holds the
// plugin types that Process may name.
func Main(factories map[string]plugin.Factory) {
	if !plugin.Requested() || len(os.Args) != 3 || os.Args[1] != "plugin" {
		return
	}
	factory, ok := factories[os.Args[2]]
	if !ok {
		fmt.Fprintf(os.Stderr, "plugintest: no plugin type %q in this test\n", os.Args[2])
		os.Exit(1)
	}
	plugin.ServeBackend(os.Args[2], "test", factory)
	os.Exit(0)
}

// Command is how Main is reached in a new process: the program and its whole argv. It fits host.Options.Command.
func Command(typ string) (path string, args []string, err error) {
	return "/proc/self/exe", []string{os.Args[0], "plugin", typ}, nil
}

// Wire returns b as seen through gRPC; the connection is closed with t.
func Wire(t testing.TB, b executor.Backend) executor.Backend {
	t.Helper()
	dir := shortDir(t)
	conn := Connect(t, func(s grpc.ServiceRegistrar) { wire.RegisterBackend(s, b) })
	var backend wire.Backend
	backend = wire.NewBackend(conn, sync.OnceValue(func() string {
		if info, err := backend.Info(t.Context()); err != nil || !info.Capabilities.LocalPath {
			return ""
		}
		return dir
	}), func() bool { return true })
	return backend
}

// WireService returns s as seen through gRPC; the connection is closed with t.
func WireService(t testing.TB, svc executor.Service) executor.Service {
	t.Helper()
	return wire.NewService(Connect(t, func(s grpc.ServiceRegistrar) { wire.RegisterService(s, svc) }))
}

// Connect serves what register registers on a connection in memory, and returns the connection. Both end with t. It works in a
// bubble of testing/synctest, too.
func Connect(t testing.TB, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	const buffer = 256 << 10 // about as much as a unix socket holds
	listener := bufconn.Listen(buffer)
	server := grpc.NewServer(append(wire.ServerOptions(nil), grpc.WaitForHandlers(true))...)
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options := append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:memory", options...)
	if err != nil {
		server.Stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close the connection: %v", err)
		}
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	return conn
}

// shortDir is a folder whose path leaves room for a socket's name; t.TempDir() has the test's name in it.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Plugin is a running plugin process.
type Plugin struct {
	Backend executor.Backend
	PID     int
	// Process is what stands behind Backend.
	Process *plugin.Process
}

// Process starts this test binary as a plugin of type typ with options, and stops it with t: drained first, unless it
// is dead by then. nil options means "{}".
func Process(t testing.TB, typ string, options json.RawMessage) *Plugin {
	t.Helper()
	if options == nil {
		options = json.RawMessage("{}")
	}
	p, err := Start(t, plugin.Configure{Name: typ, Instance: "test", DataDir: t.TempDir(), Options: options})
	if err != nil {
		t.Fatalf("start plugin %s: %v", typ, err)
	}
	return p
}

// Start is Process with the whole configuration, whose Name is also the plugin's type, and with the error.
func Start(t testing.TB, c plugin.Configure) (*Plugin, error) {
	t.Helper()
	path, args, err := Command(c.Name)
	if err != nil {
		return nil, err
	}
	process, err := plugin.Launch(awaittest.Context(t), plugin.LaunchOptions{
		Path: path, Args: args, RunDir: shortDir(t), Configure: c, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		// A data race ends the plugin, so that the test fails.
		Env: []string{"GORACE=halt_on_error=1 atexit_sleep_ms=50"},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { stop(t, process) })
	return &Plugin{Backend: process.Backend(), PID: process.PID(), Process: process}, nil
}

func stop(t testing.TB, p *plugin.Process) {
	t.Helper()
	defer p.Kill()
	select {
	case <-p.Done():
		return
	default:
	}
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.WithoutCancel(t.Context())) }()
	if err := awaittest.Recv(t, "the drain of a plugin", drained); err != nil {
		t.Errorf("drain plugin %d: %v", p.PID(), err)
	}
}

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *Plugin) Kill() {
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		panic(fmt.Sprintf("kill plugin %d: %v", p.PID, err)) // it was not running any more: the test is wrong
	}
	p.Process.Kill()
}
