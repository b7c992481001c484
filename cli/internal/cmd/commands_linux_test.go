package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// asCommand makes this test binary the command line.
const asCommand = "TEST_AS_PYTHON_EXECUTOR"

func TestMain(m *testing.M) {
	if plugin.Requested() {
		plugin.ServeBackend("fake", "test", fake.Factory)
		os.Exit(0)
	}
	if os.Getenv(asCommand) != "" { // a test started the command in a process of its own
		os.Exit(Main(os.Args, app.Bundle{Version: "test"}))
	}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PYEXEC_") {
			os.Unsetenv(name)
		}
	}
	leaktest.Main(m)
}

// withFake has the fake as its only backend, in a plugin process that is this test binary.
func withFake(t *testing.T) app.Bundle {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("backend: fake\nbackends: {fake: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYEXEC_CONFIG", file)
	return app.Bundle{Version: "test", Plugins: map[string]app.Plugin{"backend-fake": {
		Type:   "fake",
		Filled: func(section json.RawMessage) json.RawMessage { return section },
		Check: func(name string, section json.RawMessage) error {
			if strings.Contains(string(section), "nonsense") {
				return executor.FieldErrorf(executor.Invalid, "backends."+name+".nonsense", "unknown key")
			}
			return nil
		},
		Doctor: func(context.Context, json.RawMessage) []backend.Finding {
			return []backend.Finding{{Level: backend.LevelWarn, Topic: "tools", Message: "no hammer", Remedy: "buy one"}}
		},
	}}}
}

type outcome struct {
	status         int
	stdout, stderr string
}

// lockedBuffer is written by a program's follower while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
	on func(text string)
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.b.Write(p)
	if l.on != nil {
		l.on(l.b.String())
	}
	return n, err
}

func execute(t *testing.T, ctx context.Context, bundle app.Bundle, stdin string, args ...string) outcome { //nolint:revive // t is first in tests
	t.Helper()
	var out, errs lockedBuffer
	streams := IO{Out: &out, Err: &errs}
	if stdin != "" {
		streams.In = strings.NewReader(stdin)
	}
	status := Execute(ctx, args, streams, bundle)
	return outcome{status, out.b.String(), errs.b.String()}
}

// inFolder makes a folder with a main.py for the fake.
func inFolder(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cases are the same for the engine inside and for a server.
func cases(t *testing.T, bundle app.Bundle) {
	for _, test := range []struct {
		name   string
		args   []string
		stdin  string
		status int
		stdout string
		stderr string // contained
	}{
		{"a pipe", []string{"run"}, "print hi", 0, "hi\n", ""},
		{"both streams and the exit code", []string{"run"}, "print out\nprint-err err\nexit 5", 5, "out\n", "err\n"},
		{"a folder, with arguments", []string{"run", inFolder(t, "args"), "--", "a", "b"}, "", 0, "\"a\"\n\"b\"\n", ""},
		{"bytes", []string{"run"}, "hex stdout 00ff0a", 0, "\x00\xff\n", ""},
		{"a signal", []string{"run"}, "signal KILL", 137, "", ""},
		{"a timeout", []string{"run", "--timeout", "0.2"}, "hang", 124, "", "timed out"},
		{"memory", []string{"run", "--memory", "16"}, "alloc 64MB", 137, "", "out of memory: config.memory_mb: "},
		{"disk", []string{"run", "--disk", "16"}, "fill-file a 64MB", 1, "", "disk full: config.disk_mb: "},
		{"stdin", []string{"run", inFolder(t, "read-stdin"), "--stdin", "-"}, "fed", 0, "fed", ""},
		{"an unknown backend", []string{"run", "--backend", "nope"}, "print 1", 125, "", "nope"},
		{"too much memory", []string{"run", "--memory", "999999"}, "print 1", 125, "", "memory"},
		{"no such requirements", []string{"run", "--requirements", "/no/such"}, "print 1", 125, "", "--requirements: "},
		{"no such standard input", []string{"run", inFolder(t, "read-stdin"), "--stdin", "/no/such"}, "", 125, "", "--stdin: "},
		{"a backend that dies", []string{"run"}, "print 1\nbackend-error internal broken", 125, "1\n", ""},
		{"verbose", []string{"run", "-v"}, "print hi", 0, "hi\n", "python-executor: succeeded: wall"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := execute(t, t.Context(), bundle, test.stdin, test.args...)
			if o.status != test.status || o.stdout != test.stdout || !strings.Contains(o.stderr, test.stderr) {
				t.Errorf("%+v", o)
			}
		})
	}
	t.Run("json", func(t *testing.T) {
		o := execute(t, t.Context(), bundle, "print hi\nexit 2", "run", "--json")
		var r map[string]any
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.status != 2 || r["stdout"] != "hi\n" || o.stderr != "" {
			t.Errorf("%v %+v", err, o)
		}
	})
	t.Run("artifacts", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out")
		o := execute(t, t.Context(), bundle, "write-file a/b.txt kept", "run", "--output", out)
		if b, err := os.ReadFile(filepath.Join(out, "a", "b.txt")); err != nil || string(b) != "kept" || o.status != 0 {
			t.Errorf("%q %v %+v", b, err, o)
		}
		o = execute(t, t.Context(), bundle, "write-file .h kept", "run", "--output", out, "--artifact", ".h")
		if b, err := os.ReadFile(filepath.Join(out, ".h")); err != nil || string(b) != "kept" || o.status != 0 {
			t.Errorf("a hidden file that was named: %q %v %+v", b, err, o)
		}
		o = execute(t, t.Context(), bundle, "print 1", "run", "--output", out, "--artifact", "nothing")
		if o.status != 0 || !strings.Contains(o.stderr, "no file matches --artifact") {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a signal to us", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		out := &lockedBuffer{on: func(text string) {
			if strings.Contains(text, "up") {
				cancel(interrupted{syscall.SIGINT})
			}
		}}
		var errs lockedBuffer
		dir := filepath.Join(t.TempDir(), "out")
		status := Execute(ctx, []string{"run", "--output", dir}, IO{In: strings.NewReader("on-int saved\nprint up\nhang"), Out: out, Err: &errs}, bundle)
		if status != 130 {
			t.Errorf("status %d: %s", status, errs.b.String())
		}
		if _, err := os.Stat(filepath.Join(dir, "saved")); err != nil {
			t.Errorf("what the program wrote at Ctrl-C is lost: %v\n%s", err, errs.b.String())
		}
	})
	t.Run("a reader that goes away", func(t *testing.T) {
		var errs lockedBuffer
		status := Execute(t.Context(), []string{"run"}, IO{In: strings.NewReader("print up\nhang"), Out: failing{syscall.EPIPE}, Err: &errs}, bundle)
		if status != 141 || errs.b.String() != "" {
			t.Errorf("status %d: %s", status, errs.b.String())
		}
		status = Execute(t.Context(), []string{"run"}, IO{In: strings.NewReader("print up\nhang"), Out: failing{syscall.ENOSPC}, Err: &errs}, bundle)
		if status != 125 || !strings.Contains(errs.b.String(), "no space left") {
			t.Errorf("status %d: %s", status, errs.b.String())
		}
	})
	t.Run("backends", func(t *testing.T) {
		if o := execute(t, t.Context(), bundle, "", "backends"); o.status != 0 || !strings.HasPrefix(o.stdout, "fake (fake ") {
			t.Errorf("%+v", o)
		}
		if o := execute(t, t.Context(), bundle, "", "backends", "--json"); o.status != 0 || !strings.Contains(o.stdout, `"capabilities"`) {
			t.Errorf("%+v", o)
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "stdout", Err: f.err}
}

func TestTheEngineInside(t *testing.T) { cases(t, withFake(t)) }

func TestAServer(t *testing.T) {
	bundle := withFake(t)
	startServer(t, bundle)
	cases(t, bundle)
	// What Ctrl-C and a lost reader ended has ended on the server, too.
	if o := execute(t, t.Context(), bundle, "", "ls", "--status", "running,queued"); o.status != 0 || strings.Contains(o.stdout, "exe_") {
		t.Errorf("%+v", o)
	}
	run := func(stdin string, args ...string) outcome {
		t.Helper()
		return execute(t, t.Context(), bundle, stdin, args...)
	}
	o := run("print hi\nprint-err err\nwrite-file a.txt kept\nwrite-file .h kept\nexit 3", "submit", "--artifact", "*.txt", "--artifact", ".h")
	id := strings.TrimSuffix(o.stdout, "\n")
	if o.status != 0 || o.stderr != "" || !strings.HasPrefix(id, "exe_") || strings.ContainsAny(id, "\n ") {
		t.Fatalf("%+v", o)
	}
	for _, test := range []struct { // the first waits for the end
		name string
		args []string
		want outcome
	}{
		{"follow", []string{"follow", id}, outcome{3, "hi\n", "err\n"}},
		{"follow tail", []string{"follow", "--tail", id}, outcome{3, "hi\n", "err\n"}},
		{"logs", []string{"logs", id}, outcome{0, "hi\n", "err\n"}},
		{"logs follow", []string{"logs", "-f", id}, outcome{0, "hi\n", "err\n"}},
		{"logs stdout", []string{"logs", id, "--stream", "stdout"}, outcome{0, "hi\n", ""}},
		{"kill the end", []string{"kill", id}, outcome{0, id + " failed\n", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if o := run("", test.args...); o != test.want {
				t.Errorf("%+v", o)
			}
		})
	}
	saved := filepath.Join(t.TempDir(), "o")
	if o := run("", "follow", id, "--output", saved); o.status != 3 {
		t.Errorf("%+v", o)
	}
	for _, name := range []string{"a.txt", ".h"} {
		if b, err := os.ReadFile(filepath.Join(saved, name)); err != nil || string(b) != "kept" {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	if o := run("", "ls", "--after", id); o.status != 0 || strings.Contains(o.stdout, id) {
		t.Errorf("%+v", o)
	}
	if o := run("", "ls"); !strings.Contains(o.stdout, id+"  failed") {
		t.Errorf("%+v", o)
	}
	if o := run("", "ls", "--json", "--limit", "1"); !strings.Contains(o.stdout, `"next": "exe_`) {
		t.Errorf("%+v", o)
	}
	if o := run("", "kill", "exe_nope", "--json"); o.status != 125 || !strings.Contains(o.stderr, "not_found") {
		t.Errorf("%+v", o)
	}
	o = run("print up\nhang", "run", "--async")
	running := strings.TrimSpace(o.stdout)
	t.Run("logs of what runs end where they are", func(t *testing.T) {
		if o := run("", "logs", running); o.status != 0 || o.stdout != "" && o.stdout != "up\n" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("Ctrl-C stops following, not the execution", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		out := &lockedBuffer{on: func(string) { cancel(interrupted{syscall.SIGINT}) }}
		if status := Execute(ctx, []string{"follow", "--tail", running}, IO{Out: out, Err: io.Discard}, bundle); status != 130 {
			t.Errorf("status %d", status)
		}
		if o := run("", "ls", "--status", "running,queued"); !strings.Contains(o.stdout, running) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("logs -f of what runs goes on", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		out := &lockedBuffer{on: func(string) { cancel(interrupted{syscall.SIGINT}) }}
		if status := Execute(ctx, []string{"logs", "-f", running}, IO{Out: out, Err: io.Discard}, bundle); status != 130 {
			t.Errorf("status %d", status)
		}
	})
	if o := run("", "kill", "exe_nope", running); o.status != 125 || o.stdout != running+" killed\n" || !strings.Contains(o.stderr, "exe_nope") {
		t.Errorf("%+v", o)
	}
	if o := run("", "doctor"); o.status != 0 || !strings.Contains(o.stdout, "; Python 3.13, 3.12") {
		t.Errorf("%+v", o)
	}
	if o := run("", "doctor", "--server", "http://127.0.0.1:1"); o.status != 1 || !strings.Contains(o.stdout, "→ check --server") {
		t.Errorf("%+v", o)
	}
}

// startServer serves with bundle until the test ends, and points the client's variable at it.
func startServer(t *testing.T, bundle app.Bundle) { startServerWith(t, bundle, fake.Section{}) }

func startServerWith(t *testing.T, bundle app.Bundle, section fake.Section, change ...func(*config.Config)) {
	t.Helper()
	options, err := json.Marshal(section)
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Backend, c.Backends = "fake", map[string]config.Backend{"fake": {Options: options}}
	c.DataDir, c.HTTP.Bind = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	for _, f := range change {
		f(&c)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	url, done := make(chan string, 1), make(chan error, 1)
	log := slog.New(slog.NewJSONHandler(listener(func(line []byte) {
		var entry struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(line, &entry) == nil && entry.URL != "" {
			url <- entry.URL
		}
	}), nil))
	go func() { done <- app.Serve(ctx, app.ServeOptions{Config: c, Bundle: bundle, Log: log}) }()
	select {
	case u := <-url:
		t.Setenv("PYEXEC_SERVER", u)
	case err := <-done:
		cancel(nil)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel(errors.New("the test is over"))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type listener func([]byte)

func (l listener) Write(p []byte) (int, error) {
	l(p)
	return len(p), nil
}

func TestCommandsThatRunNothing(t *testing.T) {
	bundle := withFake(t)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("backend: fake\nbackends: {fake: {nonsense: 1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	worse := filepath.Join(t.TempDir(), "worse.yaml")
	if err := os.WriteFile(worse, []byte("no: 1\nbackend: fake\nbackends: {fake: {nonsense: 1}}\nengine: {max_queued: -1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	external := filepath.Join(t.TempDir(), "external.yaml")
	text := "backend: fake\nbackends: {fake: {}, other: {path: /no/such, sha256: " + strings.Repeat("a", 64) + "}}\n"
	if err := os.WriteFile(external, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args           string
		status         int
		stdout, stderr string
	}{
		{"", 0, "Usage:", ""},
		{"version", 0, "python-executor test (go", ""},
		{"version extra", 125, "", "takes no arguments"},
		{"version --json", 0, `"version": "test"`, ""},
		{"completion bash", 0, "bash completion", ""},
		{"completion zsh", 0, "#compdef", ""},
		{"completion fish", 0, "fish completion", ""},
		{"completion tcsh", 125, "", "bash, zsh or fish"},
		{"config", 0, "Usage:", ""},
		{"config check", 0, "ok\n", ""},
		{"config check --json", 0, `"ok": true`, ""},
		{"config show", 0, "backend: fake", ""},
		{"config show --json", 0, `"backend": "fake"`, ""},
		{"config check --config " + bad, 1, "", "backends.fake.nonsense: unknown key"},
		{"config check --json --config " + bad, 1, `"backends.fake.nonsense"`, ""},
		{"config check --config " + worse, 1, "", "no: unknown key"},
		{"config check --config " + worse, 1, "", "\nengine.max_queued: must be >= 0"},
		{"config check --config " + worse, 1, "", "\nbackends.fake.nonsense: unknown key"},
		{"config check --json --config " + worse, 1, `"engine.max_queued"`, ""},
		{"config check --json --config " + worse, 1, `"backends.fake.nonsense"`, ""},
		{"config check --config " + external, 0, "ok\n", ""},
		{"doctor --config " + external, 1, "error  backend other: ", ""},
		{"doctor -q --config " + external, 1, "error  backend other: ", ""},
		{"run x --artifact a", 125, "", "--artifact: must be given together with --output"},
		{"submit x --output o --server http://127.0.0.1:1", 125, "", "--output: must not be given here"},
		{"config check --config /no/such", 125, "", "/no/such"},
		{"doctor", 0, "warn   fake tools: no hammer\n       → buy one", ""},
		{"doctor --json", 0, `"remedy": "buy one"`, ""},
		{"doctor --config " + bad, 1, "error  config: backends.fake.nonsense", ""},
		{"doctor --config /no/such", 1, "error  config: read the configuration", ""},
		{"serve --bind 0.0.0.0:0", 125, "", "http.bind: must be a loopback address"},
		{"serve --pprof-bind :6060", 125, "", `http.pprof_bind: must be a loopback address (got ":6060", in --pprof-bind)`},
		{"serve --backend x", 125, "", "backend: must name an entry"},
		{"plugin", 0, "check", ""},
		{"plugin x", 125, "", `unknown command "plugin x"`},
		{"plugin backend-fake", 125, "", "started by its host"},
		{"plugin check /no/such", 125, "", ""},
		{"plugin check --section { x", 125, "", "--section: must be JSON"},
		{"runner", 125, "", "no runner"},
		{"logs x --stream y", 125, "", "--stream: must be"},
		{"ls --limit 501", 125, "", "--limit: must be"},
		{"kill", 125, "", "needs the id"},
		{"follow a b", 125, "", "needs the id"},
		{"submit x", 125, "", "needs a server"},
		{"nonsense", 125, "", `unknown command "nonsense"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			o := execute(t, t.Context(), bundle, "", strings.Fields(test.args)...)
			if o.status != test.status || !strings.Contains(o.stdout, test.stdout) || !strings.Contains(o.stderr, test.stderr) {
				t.Errorf("%+v", o)
			}
			if (o.stdout == "") != (test.stdout == "") || o.stderr != "" && test.stderr == "" && test.args != "plugin check /no/such" {
				t.Errorf("the wrong stream: %+v", o)
			}
		})
	}
}

func TestAVariableThatSetsNothingIsAWarning(t *testing.T) {
	bundle := withFake(t)
	t.Setenv("PYEXEC_BAKCENDS_FAKE_NONSENSE", "1")
	const warning = "python-executor: warning: PYEXEC_BAKCENDS_FAKE_NONSENSE sets nothing and is ignored"
	for args, want := range map[string]outcome{
		"config check": {0, "ok\n", warning}, "config check --json": {0, `"ok": true`, warning}, "config check -q": {0, "ok\n", ""},
		"doctor": {0, "warn   config: PYEXEC_BAKCENDS_FAKE_NONSENSE sets nothing", ""},
	} {
		o := execute(t, t.Context(), bundle, "", strings.Fields(args)...)
		if o.status != want.status || !strings.Contains(o.stdout, want.stdout) || !strings.Contains(o.stderr, want.stderr) || want.stderr == "" && o.stderr != "" {
			t.Errorf("%s: %+v", args, o)
		}
	}
	var log lockedBuffer
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil) // it ends as soon as it serves
	t.Setenv("PYEXEC_DATA_DIR", t.TempDir())
	Execute(ctx, []string{"serve", "--bind", "127.0.0.1:0"}, IO{In: strings.NewReader(""), Out: io.Discard, Err: &log}, bundle)
	if !strings.Contains(log.b.String(), `"variable":"PYEXEC_BAKCENDS_FAKE_NONSENSE"`) {
		t.Errorf("serve says %s", log.b.String())
	}
}

func TestAPluginProgramIsChecked(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := execute(t, t.Context(), app.Bundle{}, "", "plugin", "check", self, "--rule", "BE-01")
	if o.status != 1 && o.status != 0 || !strings.Contains(o.stdout, "BE-01") {
		t.Errorf("%+v", o)
	}
}

func TestMessagesAreSafeForATerminal(t *testing.T) {
	t.Parallel()
	if got := clean("a\x1b[2Jb\nc\td\u009b"); got != "a?[2Jb\nc\td?" {
		t.Errorf("%q", got)
	}
}
