package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/host"
)

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// restartsOf reads the counter.
func restartsOf(t *testing.T, r *prometheus.Registry, backend string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "python_executor_plugin_restarts_total" && m.GetLabel()[0].GetValue() == backend {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Error("the counter is not there")
	return -1
}

func TestEveryEntryRunsInAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}", "b": "{}"}), DataDir: data, Instance: "i-1", Embedded: true})
	pids := map[int]string{os.Getpid(): "us"}
	for name, b := range h.Backends() {
		info, err := b.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(info.Details["pid"])
		if other, taken := pids[pid]; taken || info.Name != name {
			t.Errorf("%s is %s in process %d, which is %s's", name, info.Name, pid, other)
		}
		pids[pid] = name
		if got, want := info.Details["configure"], "i-1 true "+filepath.Join(data, "backends", name); got != want {
			t.Errorf("%s was configured with %q, want %q", name, got, want)
		}
		if dir, err := os.Stat(filepath.Join(data, "backends", name)); err != nil || !dir.IsDir() {
			t.Errorf("data folder of %s: %v", name, err)
		}
	}
	for _, s := range h.Status() {
		if pids[s.PID] != s.Name || s.Type != "waiter" || s.Generation != 1 || s.Restarts != 0 || !s.Healthy || s.Message != "" {
			t.Errorf("status %+v", s)
		}
	}
}

func TestEveryMethodOfABackendGoesThrough(t *testing.T) {
	t.Parallel()
	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"})})
	b := h.Backends()["a"]
	sessions, ok := b.(executor.SessionBackend)
	if !ok {
		t.Fatal("no sessions")
	}
	methods := map[string]func(ctx context.Context, id string) error{
		"remove": b.Remove,
		"attach": func(ctx context.Context, id string) error {
			_, err := b.Attach(ctx, executor.Job{ID: id}, executor.Resume{}, newSink())
			if id == "exe_1" && executor.CodeOf(err) == executor.NotFound {
				return nil // this backend knows nothing to attach to
			}
			return err
		},
		"open session": func(ctx context.Context, id string) error {
			opened, err := sessions.OpenSession(ctx, executor.Session{ID: id})
			if err == nil && string(opened.Handle) != id {
				t.Errorf("handle %q", opened.Handle)
			}
			return err
		},
		"adopt session": func(ctx context.Context, id string) error {
			_, err := sessions.AdoptSession(ctx, executor.Session{ID: id}, nil)
			return err
		},
		"restart session": func(ctx context.Context, id string) error { return sessions.RestartSession(ctx, id, true) },
		"close session":   sessions.CloseSession,
		"variables": func(ctx context.Context, id string) error {
			_, err := sessions.Variables(ctx, id)
			return err
		},
		"add requirements": func(ctx context.Context, id string) error {
			_, err := sessions.AddRequirements(ctx, id, "attrs")
			return err
		},
		"list files": func(ctx context.Context, id string) error {
			_, err := sessions.ListFiles(ctx, id, "", true)
			return err
		},
		"read file": func(ctx context.Context, id string) error {
			_, r, err := sessions.ReadFile(ctx, id, "a")
			if err != nil {
				return err
			}
			content, err := io.ReadAll(r)
			if string(content) != "of "+id {
				t.Errorf("read %q", content)
			}
			return errors.Join(err, r.Close())
		},
		"write file": func(ctx context.Context, id string) error {
			_, err := sessions.WriteFile(ctx, id, executor.File{Path: "a", SizeBytes: -1}, strings.NewReader("text"))
			return err
		},
		"remove file": func(ctx context.Context, id string) error { return sessions.RemoveFile(ctx, id, "a") },
	}
	for name, call := range methods {
		if err := call(t.Context(), "exe_1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := call(t.Context(), "other"); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("%s of what is not there: %v", name, err)
		}
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, call := range methods {
		if err := call(t.Context(), "exe_1"); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestAKilledPluginIsStartedAgain(t *testing.T) {
	t.Parallel()
	registry, log := prometheus.NewRegistry(), newNews()
	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}", "b": "{}"}), Registerer: registry, Log: slog.New(log)})
	a, b := h.Backends()["a"], h.Backends()["b"]
	pid, ended := runUntil(t, t.Context(), a)
	other, otherEnded := runUntil(t, t.Context(), b)
	kill(t, pid)
	if err := <-ended; executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the run of the killed plugin: %v", err)
	}
	log.await(2)
	next := served(t, a)
	if next == pid {
		t.Error("it is the same process")
	}
	s := h.Status()
	if s[0].Generation != 2 || s[0].Restarts != 1 || s[0].PID != next || !s[0].Healthy {
		t.Errorf("status %+v", s[0])
	}
	if info, err := a.Info(t.Context()); err != nil || info.Generation != 2 {
		t.Errorf("info %+v, %v", info, err)
	}
	if s[1].Generation != 1 || s[1].PID != other {
		t.Errorf("the other was touched: %+v", s[1])
	}
	if restartsOf(t, registry, "a") != 1 || restartsOf(t, registry, "b") != 0 {
		t.Error("the counters are wrong")
	}
	kill(t, other)
	<-otherEnded
}

func TestAPluginThatKeepsCrashingIsTriedAgainUntilItDoesNot(t *testing.T) {
	t.Parallel()
	crash := filepath.Join(t.TempDir(), "crash")
	log := newNews()
	h := started(t, host.Options{Entries: entries(map[string]string{"a": fmt.Sprintf(`{"crash":%q}`, crash)}), Log: slog.New(log)})
	a := h.Backends()["a"]
	pid, ended := runUntil(t, t.Context(), a)
	if err := os.WriteFile(crash, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, pid)
	<-ended
	<-log.failed
	<-log.failed
	_, err := a.Info(t.Context())
	if e, ok := errors.AsType[*executor.Error](err); !ok || e.RetryAfter <= 0 || !strings.Contains(e.Message, "backend a is down") {
		t.Errorf("while it is down: %#v", err)
	}
	if err := os.Remove(crash); err != nil {
		t.Fatal(err)
	}
	log.await(4)
	served(t, a)
	if s := h.Status()[0]; s.Generation < 4 || !s.Healthy {
		t.Errorf("status %+v", s)
	}
}

func TestAHostThatCannotStartLeavesNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		entry config.Backend
		code  executor.Code
		text  string
	}{
		"a configuration that is refused": {config.Backend{Type: "waiter", Options: []byte(`{"refuse":true}`)}, executor.Invalid, "backends.bad.refuse: is set"},
		"options that are no JSON":        {config.Backend{Type: "waiter", Options: []byte(`[`)}, executor.Internal, ""},
		"a file that is missing":          {config.Backend{Path: "/nowhere", SHA256: strings.Repeat("0", 64)}, executor.NotFound, "/nowhere"},
		"a type that nobody knows":        {config.Backend{Type: "other", Options: []byte(`{}`)}, executor.Unavailable, `no plugin type "other"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := entries(map[string]string{"good": "{}"})
			all["bad"] = c.entry
			dir := runDir(t)
			registry := prometheus.NewRegistry()
			h, err := host.New(host.Options{Entries: all, Command: plugintest.Command, RunDir: dir, Registerer: registry})
			if err != nil {
				t.Fatal(err)
			}
			err = h.Start(t.Context())
			if executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %s: %v", executor.CodeOf(err), err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			for _, s := range h.Status() {
				if s.PID != 0 || s.Healthy {
					t.Errorf("status %+v", s)
				}
			}
			if err := h.Start(t.Context()); executor.CodeOf(err) != executor.Conflict {
				t.Errorf("a second start: %v", err)
			}
			if _, err := host.New(host.Options{Entries: entries(map[string]string{"good": "{}"}), Command: plugintest.Command, Registerer: registry}); err != nil {
				t.Errorf("its metrics are left behind: %v", err)
			}
		})
	}
}

func TestAStartEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	h, err := host.New(host.Options{
		Entries: entries(map[string]string{"slow": fmt.Sprintf(`{"slow":true,"made":%q}`, made), "quick": "{}"}), Command: plugintest.Command, RunDir: runDir(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan error, 1)
	go func() { started <- h.Start(ctx) }()
	awaittest.UntilNil(t, "the start of the slow backend", func() error { _, err := os.Stat(made); return err })
	cancel(nil)
	if err := awaittest.Recv(t, "the end of Start", started); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEntriesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]host.Options{
		"a path without a digest": {Entries: map[string]config.Backend{"x": {Path: "/bin/true"}}, Command: plugintest.Command},
		"a digest without a path": {Entries: map[string]config.Backend{"x": {SHA256: "00"}}, Command: plugintest.Command},
		"no way to start it":      {Entries: map[string]config.Backend{"x": {}}},
		"no name":                 {Entries: map[string]config.Backend{"": {}}, Command: plugintest.Command},
	} {
		if _, err := host.New(o); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseDrainsAndIsSafeAtAnyTime(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	never, err := host.New(host.Options{Entries: entries(map[string]string{"a": "{}"}), Command: plugintest.Command, RunDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(never.Close(t.Context()), never.Close(t.Context())); err != nil {
		t.Errorf("before Start: %v", err)
	}
	if err := never.Start(t.Context()); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("a start after Close: %v", err)
	}

	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"}), RunDir: dir})
	a := h.Backends()["a"]
	ctx, stop := context.WithCancelCause(t.Context())
	pid, ended := runUntil(t, ctx, a)
	closed := make(chan error, 1)
	go func() { closed <- h.Close(t.Context()) }()
	awaitClose(t, a)
	select {
	case err := <-closed:
		t.Errorf("Close did not wait for what runs: %v", err)
	default:
	}
	stop(nil)
	if err := <-ended; err != nil {
		t.Errorf("the run that was drained: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := a.Info(t.Context()); executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "backend a is down: the host is closed") {
		t.Errorf("after Close: %v", err)
	}
}

// awaitClose returns when the Close of a's host has begun.
func awaitClose(t *testing.T, a executor.Backend) {
	t.Helper()
	awaittest.Until(t, "the start of Close", func() bool {
		_, err := a.Info(t.Context())
		return executor.CodeOf(err) == executor.Unavailable
	})
}

func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	h, err := host.New(host.Options{Entries: entries(map[string]string{"a": "{}"}), Command: plugintest.Command, RunDir: runDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, ended := runUntil(t, t.Context(), h.Backends()["a"])
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- h.Close(ctx) }()
	awaitClose(t, h.Backends()["a"])
	cancel(nil)
	if err := <-closed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-ended
}

const killEnv = "HOST_TEST_KILLED"

// beKilled is a core: it runs a host, says which process its plugin is, and waits to be killed.
func beKilled(dir string) {
	h, err := host.New(host.Options{Entries: entries(map[string]string{"a": "{}"}), Command: plugintest.Command, RunDir: dir})
	if err != nil {
		panic(err)
	}
	if err := h.Start(context.Background()); err != nil {
		panic(err)
	}
	s := newSink()
	go func() {
		_, _ = h.Backends()["a"].Run(context.Background(), executor.Job{ID: "exe_1", Spec: executor.Spec{Code: "wait"}}, s)
	}()
	fmt.Println(<-s.pid)
	select {}
}

func TestWhatAKilledCoreLeftIsGoneAfterTheNextStart(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	living := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"}), RunDir: dir})
	core := exec.CommandContext(t.Context(), "/proc/self/exe")
	core.Env = append(os.Environ(), killEnv+"="+dir)
	core.Stderr = os.Stderr
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	process := awaittest.Observe(t, pid)
	kill(t, core.Process.Pid)
	_ = core.Wait() // killed
	process.Gone(t)
	if folders, _ := os.ReadDir(dir); len(folders) != 2 {
		t.Errorf("before the next start: %v", folders)
	}
	next := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"}), RunDir: dir})
	if folders, _ := os.ReadDir(dir); len(folders) != 2 { // the living one's and the next one's
		t.Errorf("after the next start: %v", folders)
	}
	for _, h := range []*host.Host{living, next} {
		if _, err := h.Backends()["a"].Info(t.Context()); err != nil {
			t.Errorf("a living host was disturbed: %v", err)
		}
	}
}

func TestARunFolderIsMadePrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(runDir(t), "made")
	started(t, host.Options{Entries: entries(map[string]string{"a": "{}"}), RunDir: dir})
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	long := filepath.Join(runDir(t), strings.Repeat("x", 100))
	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"}), RunDir: long})
	if _, err := h.Backends()["a"].Info(t.Context()); err != nil {
		t.Errorf("with a path that is too long for a socket: %v", err)
	}
}
