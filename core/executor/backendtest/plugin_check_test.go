package backendtest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// pluginSaboteurs has a plugin program of this test binary for each rule of plugins, which breaks that rule.
func pluginSaboteurs() map[string]string {
	return map[string]string{
		"PL-01": "mute", "PL-02": "bare", "PL-03": "sleepy", "PL-04": "lax", "PL-05": "bare", "PL-06": "bare", "PL-07": "jealous",
	}
}

// pluginMain is the main of the plugin programs of this test.
func pluginMain() {
	if len(os.Args) == 3 && os.Args[1] == "plugin" && !plugin.Requested() {
		if os.Args[2] == "mute" {
			os.Exit(0)
		}
		fmt.Fprintln(os.Stderr, "this is a plugin of a test")
		os.Exit(1)
	}
	if len(os.Args) == 3 && plugin.Requested() {
		switch os.Args[2] {
		case "bare":
			serve(fake.New(fake.Options{Name: "bare", Version: "test"}))
		case "sleepy":
			b := &sleepy{Backend: fake.New(fake.Options{Name: "sleepy", Version: "test"})}
			serve(b, grpc.ChainStreamInterceptor(b.intercept))
		}
	}
	plugintest.Main(map[string]plugin.Factory{
		"fake": fake.Factory,
		"mute": fake.Factory,
		"lax": func(context.Context, plugin.Configure) (executor.Backend, error) {
			return fake.New(fake.Options{}), nil
		},
		"jealous": func(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
			name := filepath.Join(c.DataDir, "pid")
			if raw, err := os.ReadFile(name); err == nil {
				pid, err := strconv.Atoi(string(raw))
				if err != nil {
					return nil, err
				}
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
			if err := os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
				return nil, err
			}
			return fake.Factory(ctx, c)
		},
	})
}

// sleepy sends nothing on the supervising stream while a program runs.
type sleepy struct {
	executor.Backend
	// programs is held for reading by each program, and for writing by each message of the supervising stream.
	programs sync.RWMutex
}

// Run implements executor.Backend.
func (s *sleepy) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	s.programs.RLock()
	defer s.programs.RUnlock()
	return s.Backend.Run(ctx, job, sink)
}

func (s *sleepy) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasSuffix(info.FullMethod, "/Supervise") {
		stream = sleepyStream{stream, &s.programs}
	}
	return handler(srv, stream)
}

type sleepyStream struct {
	grpc.ServerStream
	programs *sync.RWMutex
}

// SendMsg implements grpc.ServerStream.
func (s sleepyStream) SendMsg(m any) error {
	s.programs.Lock()
	defer s.programs.Unlock()
	return s.ServerStream.SendMsg(m)
}

// serve serves a backend without health and without an end.
func serve(b executor.Backend, options ...grpc.ServerOption) {
	address := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "plugin")
	l, err := net.Listen("unix", address)
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer(append(wire.ServerOptions(nil), options...)...)
	wire.RegisterSupervised(s, endless{b})
	wire.RegisterBackend(s, b)
	fmt.Printf("1|2|unix|%s|grpc\n", address)
	panic(s.Serve(l))
}

// endless is the supervised side of a plugin that does not end.
type endless struct{ backend executor.Backend }

// Configure implements wire.Supervised.
func (e endless) Configure(ctx context.Context, _ wire.Configuration) (executor.Info, error) {
	return e.backend.Info(ctx)
}

// Drain implements wire.Supervised.
func (e endless) Drain(context.Context) error { return nil }

// Gone implements wire.Supervised.
func (e endless) Gone(error) {}

// checkProgram checks rules of a plugin program of this test, and returns the errors by rule.
func checkProgram(t *testing.T, name string, rules ...string) map[string][]string {
	t.Helper()
	run, err := os.MkdirTemp("", "pc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	options := fakeOptions()
	options.Only = rules
	if name != "fake" {
		options = backendtest.InVain(options)
	}
	results, err := backendtest.CheckPlugin(t.Context(), plugin.LaunchOptions{
		Path: "/proc/self/exe", Args: []string{os.Args[0], "plugin", name}, RunDir: run,
		Configure: plugin.Configure{Name: "check", Instance: "test", DataDir: t.TempDir()},
	}, options)
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string][]string{}
	for _, r := range results {
		if len(r.Errors) > 0 {
			broken[r.ID] = r.Errors
		}
		if r.Skipped != "" {
			t.Errorf("%s was skipped: %s", r.ID, r.Skipped)
		}
	}
	if len(results) != len(rules) {
		t.Errorf("%d results of %d rules", len(results), len(rules))
	}
	return broken
}

func TestAnHonestPluginKeepsTheRulesOfPlugins(t *testing.T) {
	t.Parallel()
	rules := []string{"BE-01", "BE-82", "BE-83", "BE-84"}
	for id := range pluginSaboteurs() {
		rules = append(rules, id)
	}
	if broken := checkProgram(t, "fake", rules...); len(broken) > 0 {
		t.Errorf("%v", broken)
	}
}

func TestABrokenPluginIsFound(t *testing.T) {
	t.Parallel()
	for id, name := range pluginSaboteurs() {
		t.Run(id+" "+name, func(t *testing.T) {
			t.Parallel()
			if broken := checkProgram(t, name, id); len(broken[id]) == 0 {
				t.Errorf("%s passes", name)
			}
		})
	}
	for _, r := range backendtest.Rules() {
		if strings.HasPrefix(r[0], "PL-") && pluginSaboteurs()[r[0]] == "" {
			t.Errorf("no plugin breaks %s", r[0])
		}
	}
}
