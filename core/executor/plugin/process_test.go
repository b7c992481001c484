package plugin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

func run(t testing.TB, b executor.Backend, code string) string {
	t.Helper()
	s := newSink()
	if _, err := b.Run(t.Context(), job(code), s); err != nil {
		t.Fatalf("run %s: %v", code, err)
	}
	return s.text.String()
}

func TestAPluginIsAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	dataDir := t.TempDir()
	p, err := plugintest.Start(t, plugin.Configure{Name: "odd", Instance: "i1", Embedded: true, DataDir: dataDir, Options: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Backend.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.PID == os.Getpid() || info.Details["pid"] != strconv.Itoa(p.PID) {
		t.Errorf("pid %d, details %v, ours %d", p.PID, info.Details, os.Getpid())
	}
	if info.Name != "odd" || info.Type != "odd" || info.Version != "test" || !info.Healthy {
		t.Errorf("info %+v", info)
	}
	if want := "odd i1 true " + dataDir; info.Details["configured"] != want {
		t.Errorf("configured %q, want %q", info.Details["configured"], want)
	}
	if pgid, err := syscall.Getpgid(p.PID); err != nil || pgid != p.PID {
		t.Errorf("process group %d, %v", pgid, err)
	}
	if s := p.Process.Info(); s.Details["pid"] != info.Details["pid"] {
		t.Errorf("ready with %+v", s)
	}
}

func TestAPluginGetsNothingOfOursThatItIsNotMeantToHave(t *testing.T) {
	// No t.Parallel: it changes the environment.
	t.Setenv("CANARY", "secret")
	t.Setenv("PYEXEC_TOKEN", "secret")
	// A descriptor that our own parent left open: it has no close-on-exec mark.
	leaked, err := unix.Open(os.DevNull, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(leaked) }()
	file := filepath.Join(t.TempDir(), "canary-file")
	if leaked, err = unix.Open(file, unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(leaked) }()

	p := plugintest.Process(t, "odd", nil)
	env := run(t, p.Backend, "environment")
	if strings.Contains(env, "secret") {
		t.Errorf("the environment has the canary:\n%s", env)
	}
	if !strings.Contains(env, "PATH="+os.Getenv("PATH")) {
		t.Errorf("the environment has no PATH:\n%s", env)
	}
	fds := run(t, p.Backend, "descriptors")
	if strings.Contains(fds, "canary-file") {
		t.Errorf("the canary's descriptor is open:\n%s", fds)
	}
	if !strings.Contains(fds, "0 /dev/null\n") {
		t.Errorf("standard input is not /dev/null:\n%s", fds)
	}
}

// inheritable are the signals that a program must not find ignored, as bits of SigIgn: 1 to 31. The real-time signals of
// the C library (32 to 34) stay as our own parent left them: the Go runtime does not touch them.
const inheritable = 1<<31 - 1

func TestSignalsOfTheGroupAreNotForAPluginNorIgnoredByItsPrograms(t *testing.T) {
	// No t.Parallel: what this process ignores is inherited by every plugin that it starts, as under nohup.
	for _, c := range []struct {
		name    string
		ignored []os.Signal
	}{
		{"as this test was started", nil},
		{"under a parent that ignores them", []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range c.ignored {
				if !signal.Ignored(s) {
					signal.Ignore(s)
					defer signal.Reset(s)
				}
			}
			p := plugintest.Process(t, "odd", nil)
			fields := strings.Fields(run(t, p.Backend, "signals"))
			mask, err := strconv.ParseUint(fields[len(fields)-1], 16, 64)
			if err != nil || mask&inheritable != 0 {
				t.Errorf("a program of the plugin ignores signals: %v, %v", fields, err)
			}
			run(t, p.Backend, "environment") // it is still there
		})
	}
}

func TestAPluginThatCannotBeConfiguredSaysWhy(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		code executor.Code
		text string
	}{
		"invalid": {executor.Invalid, "not like this"},
		"untyped": {executor.Internal, "no idea"},
		"panic":   {executor.Internal, "panicked"},
		"exit":    {executor.Unavailable, "cannot go on"},
		"nothing": {executor.Internal, "made no backend"},
		"no-info": {executor.Unavailable, "no info"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed := filepath.Join(t.TempDir(), "closed")
			_, err := plugintest.Start(t, plugin.Configure{Name: "odd", Options: options(t, oddOptions{Make: name, Closed: closed})})
			if executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %s: %v", executor.CodeOf(err), err)
			}
			if name == "invalid" {
				if strings.Contains(err.Error(), "chatter") {
					t.Errorf("what it wrote is part of the answer: %v", err)
				}
				e, _ := errors.AsType[*executor.Error](err)
				if len(e.Fields) != 1 || e.Fields[0].Field != "backends.odd.make" {
					t.Errorf("fields %+v", e.Fields)
				}
			}
		})
	}
}

func TestAStartEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hang", "hang-hard"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, seen := runDir(t), filepath.Join(t.TempDir(), "seen")
			ctx, cancel := context.WithCancelCause(t.Context())
			path, args, _ := plugintest.Command("odd")
			launched := make(chan error, 1)
			go func() {
				_, err := plugin.Launch(ctx, plugin.LaunchOptions{
					Path: path, Args: args, RunDir: dir,
					Configure: plugin.Configure{Name: "odd", Options: options(t, oddOptions{Make: kind, Seen: seen})},
				})
				launched <- err
			}()
			awaittest.UntilNil(t, "the start of the backend", func() error { _, err := os.Stat(seen); return err })
			cancel(nil)
			if err := awaittest.Recv(t, "the end of Launch", launched); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestAProgramThatIsNoPluginIsAnError(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	good, wrong := hex.EncodeToString(sum[:]), strings.Repeat("0", 64)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho I am a script >&2; echo and no plugin\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho '1|1|unix|/nowhere|grpc|'; sleep 60\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		o     plugin.LaunchOptions
		code  executor.Code
		field string
		text  string
	}{
		"a missing file":        {o: plugin.LaunchOptions{Path: "/nowhere/plugin"}, code: executor.NotFound, field: "backends.x.path"},
		"a folder":              {o: plugin.LaunchOptions{Path: "/usr"}, code: executor.Invalid, field: "backends.x.path"},
		"a file without x":      {o: plugin.LaunchOptions{Path: plain}, code: executor.Invalid, field: "backends.x.path"},
		"another digest":        {o: plugin.LaunchOptions{Path: self, SHA256: wrong}, code: executor.Invalid, field: "backends.x.sha256"},
		"a digest that is none": {o: plugin.LaunchOptions{Path: self, SHA256: "abc"}, code: executor.Invalid, field: "backends.x.sha256"},
		"a digest that is short": {
			o: plugin.LaunchOptions{Path: self, SHA256: "abcd"}, code: executor.Invalid, field: "backends.x.sha256", text: "must be a SHA-256 in hex",
		},
		"a script": {o: plugin.LaunchOptions{Path: script}, code: executor.Unavailable, text: "I am a script"},
		"a plugin of another version of the protocol": {
			o: plugin.LaunchOptions{Path: other}, code: executor.Unavailable, text: "Plugin version: 1, Client versions: [2]",
		},
		"a plugin of another kind": {o: plugin.LaunchOptions{Path: self, SHA256: good, Args: []string{self, "plugin", "none"}}, code: executor.Unavailable, text: `no plugin type "none"`},
		"a run folder that is too long for a socket": {
			o: plugin.LaunchOptions{Path: self, RunDir: filepath.Join(t.TempDir(), strings.Repeat("x", 90))}, code: executor.Invalid, text: "too long",
		},
		"a run folder that is missing": {o: plugin.LaunchOptions{Path: self, RunDir: "/nowhere"}, code: executor.Unavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.o.RunDir == "" {
				c.o.RunDir = runDir(t)
			} else if c.o.RunDir != "/nowhere" {
				if err := os.Mkdir(c.o.RunDir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			c.o.Configure.Name = "x"
			_, err := plugin.Launch(t.Context(), c.o)
			e, _ := errors.AsType[*executor.Error](err)
			if executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %s: %v", executor.CodeOf(err), err)
			}
			if c.field != "" && (len(e.Fields) != 1 || e.Fields[0].Field != c.field) {
				t.Errorf("fields %+v", e.Fields)
			}
			if left, _ := os.ReadDir(c.o.RunDir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestARightDigestStarts(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	p, err := plugin.Launch(t.Context(), plugin.LaunchOptions{
		Path: self, Args: []string{self, "plugin", "odd"}, SHA256: hex.EncodeToString(sum[:]), RunDir: runDir(t),
		Configure: plugin.Configure{Name: "odd", Options: []byte("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.Kill() // idempotent
}

func TestADeadPluginFailsItsRunsAtOnce(t *testing.T) {
	t.Parallel()
	p := plugintest.Process(t, "odd", nil)
	process := awaittest.Observe(t, p.PID)
	s := newSink()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { _, err = p.Backend.Run(t.Context(), job("wait"), s) })
	<-s.first
	p.Kill()
	wg.Wait()
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the run: %v", err)
	}
	<-p.Process.Done()
	if p.Process.Err() == nil {
		t.Error("it ended without a reason")
	}
	if _, err := p.Backend.Info(t.Context()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a call after it: %v", err)
	}
	process.Gone(t)
}

func TestAPluginThatExitsByItselfIsSeenAndItsChildrenEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *plugintest.Plugin) error{
		"it exits": func(p *plugintest.Plugin) error {
			_, err := p.Backend.Run(t.Context(), job("exit"), newSink())
			return err
		},
		"it is lost": func(p *plugintest.Plugin) error {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			<-p.Process.Done()
			_, err := p.Backend.Info(t.Context())
			return err
		},
		"the host kills it": func(p *plugintest.Plugin) error {
			p.Kill()
			_, err := p.Backend.Info(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugintest.Process(t, "odd", nil)
			pid, err := strconv.Atoi(run(t, p.Backend, "child"))
			if err != nil {
				t.Fatal(err)
			}
			child := awaittest.Observe(t, pid)
			if err := end(p); executor.CodeOf(err) != executor.Unavailable {
				t.Errorf("its caller gets: %v", err)
			}
			<-p.Process.Done()
			child.Gone(t)
		})
	}
}

func TestAProgramThatHoldsTheOutputOfItsPluginDelaysNobody(t *testing.T) {
	t.Parallel()
	p := plugintest.Process(t, "odd", nil)
	pid, err := strconv.Atoi(run(t, p.Backend, "escape"))
	if err != nil {
		t.Fatal(err)
	}
	program := awaittest.Observe(t, pid)
	p.Process.Kill()
	if program.Ended() {
		t.Error("the host has waited for the program")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	program.Gone(t)
}

func TestAWorkspaceIsReadByNameOnlyWhereFilesAreShared(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tar")
	if err := os.WriteFile(file, []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	for shared, want := range map[bool]string{true: "4", false: "2"} {
		p := plugintest.Process(t, "odd", options(t, oddOptions{LocalPath: shared}))
		j, s := job("read"), newSink()
		j.Workspace = &executor.Source{SizeBytes: -1, Path: file, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("12")), nil }}
		if _, err := p.Backend.Run(t.Context(), j, s); err != nil || s.text.String() != want {
			t.Errorf("files are shared: %t; it read %s bytes, want %s: %v", shared, s.text.String(), want, err)
		}
	}
}

func TestAPluginThatDoesNotAnswerIsKilled(t *testing.T) {
	t.Parallel()
	path, args, _ := plugintest.Command("odd")
	p, err := plugin.Launch(t.Context(), plugin.LaunchOptions{
		Path: path, Args: args, RunDir: runDir(t), PingInterval: 50 * time.Millisecond, PingTimeout: 10 * time.Second,
		Configure: plugin.Configure{Name: "odd", Options: []byte("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	process := awaittest.Observe(t, p.PID())
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	process.Gone(t)
}

// lines is a log handler's output.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func TestAPluginsLogReachesOursWhateverItWrites(t *testing.T) {
	t.Parallel()
	path, args, _ := plugintest.Command("odd")
	var out lines
	p, err := plugin.Launch(t.Context(), plugin.LaunchOptions{
		Path: path, Args: args, RunDir: runDir(t),
		Configure: plugin.Configure{Name: "odd", Options: []byte("{}")},
		Log:       slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Backend(), "log")
	if err := p.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	p.Kill()
	text := out.buf.String()
	for _, want := range []string{`level=WARN msg="a warning" answer=42` + "\n", `level=INFO msg="the last line"`, `{\"@message\":5}`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}
