package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/agent"
	mcpfrontend "github.com/python-executor/python-executor/plugins/frontend-mcp"
)

func TestMain(m *testing.M) {
	// This binary is its own plugins and its own runner. Any other command of the program would start the tests again.
	switch {
	case plugin.Requested() && len(os.Args) > 2 && os.Args[2] == mcpCommand:
		plugin.ServeFrontend("mcp", "test", mcpfrontend.Factory)
		os.Exit(0)
	case plugin.Requested():
		plugin.ServeBackend("fake", "test", fake.Factory)
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "runner":
		os.Exit(agent.Main(os.Args[2:]))
	}
	leaktest.Main(m)
}

// testBundle has the fake in place of real backends; its plugin process is this test binary.
func testBundle() Bundle {
	return Bundle{Version: "test", Plugins: map[string]Plugin{"backend-fake": {Type: "fake", Filled: func(json.RawMessage) json.RawMessage { return json.RawMessage(`{"a":1}`) }}}}
}

func fakeConfig(t *testing.T) config.Config {
	t.Helper()
	c := config.Default()
	c.Backend, c.Backends = "fake", map[string]config.Backend{"fake": {Options: json.RawMessage("{}")}}
	c.DataDir = filepath.Join(t.TempDir(), "data")
	c.HTTP.Bind = "127.0.0.1:0"
	c.MCP.Toolsets = []string{}
	return c
}

// followed runs code and returns its output.
func followed(t *testing.T, svc executor.Service, spec executor.Spec) (executor.Result, string) {
	t.Helper()
	e, err := svc.Submit(t.Context(), spec, executor.Input{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for event, err := range svc.Events(t.Context(), e.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch b := event.Body.(type) {
		case executor.Output:
			out.Write(b.Data)
		case executor.Finished:
			return b.Result, out.String()
		}
	}
	t.Fatal("no end")
	return executor.Result{}, ""
}

func TestEmbeddedCrossesAPluginProcessAndLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_RUNTIME_DIR", temp)
	c := fakeConfig(t)
	c.Limits.Default.OutputBytes, c.Limits.Max.OutputBytes = executor.Unlimited, executor.Unlimited
	l, err := Embedded(t.Context(), EmbeddedOptions{Config: c, Bundle: testBundle(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	infos, err := l.Backends(t.Context())
	if err != nil || len(infos) != 1 || infos[0].Details["pid"] == "" {
		t.Fatalf("%+v %v", infos, err)
	}
	// More than the window holds, so the log must be drained while it grows.
	r, out := followed(t, l, executor.Spec{Code: "flood stdout 9MB\nprint end"})
	if r.Status != executor.StatusSucceeded || len(out) < 9<<20 || !strings.HasSuffix(out, "end\n") {
		t.Errorf("%+v, %d bytes", r, len(out))
	}
	if err := errors.Join(l.Close(t.Context()), l.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(c.DataDir); err == nil {
		t.Error("an embedded run made the server's data folder")
	}
}

func TestEmbeddedNamesTheVariableOfATemporaryFolderThatIsMissing(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "no-such"))
	_, err := Embedded(t.Context(), EmbeddedOptions{Config: fakeConfig(t), Bundle: testBundle(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("got %v", err)
	}
}

func TestEmbeddedThatCannotStartLeavesNothing(t *testing.T) {
	temp, c := t.TempDir(), fakeConfig(t)
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_RUNTIME_DIR", temp)
	for name, b := range map[string]config.Backend{
		"an unknown key":  {Options: json.RawMessage(`{"nonsense":1}`)},
		"an unknown type": {Type: "docker"},
		"a missing file":  {Path: "/no/such/plugin", SHA256: strings.Repeat("0", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			c.Backends["fake"] = b
			if _, err := Embedded(t.Context(), EmbeddedOptions{Config: c, Bundle: testBundle()}); err == nil {
				t.Error("it started")
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left: %v %v", left, err)
			}
		})
	}
}

// urls is a log that tells where a server listens.
type urls struct {
	once sync.Once
	url  chan string
	mu   sync.Mutex
	// failures are the errors that were logged.
	failures []string
}

func (u *urls) Enabled(context.Context, slog.Level) bool { return true }
func (u *urls) WithAttrs([]slog.Attr) slog.Handler       { return u }
func (u *urls) WithGroup(string) slog.Handler            { return u }
func (u *urls) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		r.Attrs(func(a slog.Attr) bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.failures = append(u.failures, r.Message+": "+a.Value.String())
			return true
		})
	}
	if r.Message == "listening" {
		r.Attrs(func(a slog.Attr) bool {
			u.once.Do(func() { u.url <- a.Value.String() })
			return false
		})
	}
	return nil
}

// serving starts a server; stop ends it and returns what Serve returned.
func serving(t *testing.T, c config.Config) (url string, stop func() error) {
	t.Helper()
	url, _, stop = servingLogged(t, c)
	return url, stop
}

func servingLogged(t *testing.T, c config.Config) (url string, log *urls, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	u := &urls{url: make(chan string, 1)}
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ServeOptions{Config: c, Bundle: testBundle(), Log: slog.New(u)}) }()
	select {
	case url = <-u.url:
	case err := <-done:
		cancel(nil)
		t.Fatalf("serve ended: %v", err)
	}
	return url, u, sync.OnceValue(func() error {
		cancel(errors.New("the test is over"))
		http.DefaultClient.CloseIdleConnections()
		return <-done
	})
}

func body(t *testing.T, method, url, send string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(send))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAServerKeepsItsExecutionsOverARestart(t *testing.T) {
	c := fakeConfig(t)
	url, stop := serving(t, c)
	got := body(t, http.MethodPost, url+"/api/v1/exec/sync", `{"code":"print hi"}`)
	var r struct {
		ID     string `json:"execution_id"`
		Stdout string `json:"stdout"`
	}
	if err := json.Unmarshal([]byte(got), &r); err != nil || r.Stdout != "hi\n" {
		t.Errorf("%v %s", err, got)
	}
	if m := body(t, http.MethodGet, url+"/metrics", ""); !strings.Contains(m, "go_goroutines") {
		t.Errorf("metrics: %.200s", m)
	}
	info, err := os.Stat(c.DataDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	instance, err := os.ReadFile(filepath.Join(c.DataDir, "instance"))
	if err != nil {
		t.Error(err)
	}
	err = Serve(t.Context(), ServeOptions{Config: c, Bundle: testBundle(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second server: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	url, stop = serving(t, c)
	if again := body(t, http.MethodGet, url+"/api/v1/executions/"+r.ID, ""); !strings.Contains(again, `"stdout":"hi\n"`) {
		t.Errorf("after a restart: %s", again)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if now, err := os.ReadFile(filepath.Join(c.DataDir, "instance")); err != nil || string(now) != string(instance) {
		t.Errorf("the instance changed: %s %s %v", instance, now, err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.DataDir, prefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAServerThatDrainsStillAnswersThoseWhoFollow(t *testing.T) {
	url, stop := serving(t, fakeConfig(t))
	var e struct {
		ID string `json:"execution_id"`
	}
	if got := body(t, http.MethodPost, url+"/api/v1/exec/async", `{"code":"print up\nhang"}`); json.Unmarshal([]byte(got), &e) != nil {
		t.Fatal(got)
	}
	resp, err := http.Get(url + "/api/v1/executions/" + e.ID + "/events") //nolint:noctx // the stream ends with the execution
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	awaittest.Until(t, "the start of the drain", func() bool {
		return strings.Contains(body(t, http.MethodGet, url+"/readyz", ""), `"unavailable"`)
	})
	if got := body(t, http.MethodPost, url+"/api/v1/exec/async", `{"code":"exit 0"}`); !strings.Contains(got, `"unavailable"`) {
		t.Errorf("a draining server takes work: %s", got)
	}
	if got := body(t, http.MethodDelete, url+"/api/v1/executions/"+e.ID, ""); !strings.Contains(got, `"killed"`) {
		t.Error(got)
	}
	if all, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(all), "event: finished") {
		t.Errorf("%s %v", all, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// The command drops the error of what a signal ended: that the end went wrong, a full disk say, must be in the log.
func TestAServerThatCannotStopWellLogsIt(t *testing.T) {
	c := fakeConfig(t)
	_, log, stop := servingLogged(t, c)
	if err := os.Rename(c.DataDir, c.DataDir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.DataDir, nil, 0o600); err != nil { // nothing can be removed below a file
		t.Fatal(err)
	}
	if err := stop(); err == nil {
		t.Error("no error")
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if !strings.Contains(strings.Join(log.failures, "\n"), "not a directory") {
		t.Errorf("logged: %q", log.failures)
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*config.Config){
		"listen tcp": func(c *config.Config) { c.HTTP.Bind = "127.0.0.1:999999" },
		"data_dir":   func(c *config.Config) { c.DataDir = "/dev/null/x" },
		"docker":     func(c *config.Config) { c.Backends["fake"] = config.Backend{Type: "docker"} },
		"nonsense": func(c *config.Config) {
			c.Backends["fake"] = config.Backend{Options: json.RawMessage(`{"nonsense":1}`)}
		},
		"sha256": func(c *config.Config) { c.HTTP.Tokens = []config.Token{{Owner: "a", SHA256: "b"}} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := fakeConfig(t)
			change(&c)
			err := Serve(t.Context(), ServeOptions{Config: c, Bundle: testBundle(), Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

func TestAPluginIsChecked(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := CheckPlugin(t.Context(), CheckOptions{Path: self, Section: json.RawMessage("{}"), Rules: []string{"BE-01"}, Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(rules) != 1 || rules[0].ID != "BE-01" {
		t.Errorf("%+v %v", rules, err)
	}
	if _, err := CheckPlugin(t.Context(), CheckOptions{Path: "/no/such/plugin", Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a missing plugin was checked")
	}
	// A rule that is not there would be kept by everybody.
	if _, err := CheckPlugin(t.Context(), CheckOptions{Path: self, Rules: []string{"BE-01", "BE-0l"}, Log: slog.New(slog.DiscardHandler)}); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "BE-0l") {
		t.Errorf("a rule that does not exist: %v", err)
	}
}

func TestClosersRunInReverseEachOnceAlsoAfterAFailure(t *testing.T) {
	t.Parallel()
	var c closers
	var order []string
	c.add(func(context.Context) error { order = append(order, "first"); return nil })
	c.add(func(ctx context.Context) error {
		order = append(order, "second")
		if ctx.Err() != nil {
			t.Error("its time is over already")
		}
		return errors.New("broken")
	})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	err := errors.Join(c.close(ended), c.close(ended))
	if err == nil || err.Error() != "broken" || strings.Join(order, " ") != "second first" {
		t.Error(err, order)
	}
}

func TestInheritedDescriptorsAreSealed(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, 0); errno != 0 {
		t.Fatal(errno)
	}
	SealDescriptors()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
		t.Error(flags, errno)
	}
}

func TestTheBundleIsAskedByType(t *testing.T) {
	t.Parallel()
	b := testBundle()
	if name, _, ok := b.ByType("fake"); !ok || name != "backend-fake" {
		t.Error(name, ok)
	}
	if _, _, err := b.command("docker"); executor.CodeOf(err) != executor.Invalid {
		t.Error(err)
	}
	if s := b.Sections(); string(s["fake"]) != `{"a":1}` {
		t.Error(s)
	}
}

func TestAnAddressOfIPv4IsNoAddressOfIPv6(t *testing.T) {
	t.Parallel()
	for bind, want := range map[string]string{"0.0.0.0:80": "tcp4", "127.0.0.1:0": "tcp4", "[::]:80": "tcp", ":80": "tcp", "localhost:80": "tcp"} {
		if got := network(bind); got != want {
			t.Errorf("%s: %s", bind, got)
		}
	}
}

func TestWithoutATokenScriptsRunOnlyForThisMachine(t *testing.T) {
	t.Parallel()
	token := []config.Token{{Owner: "ann", SHA256: hash("secret"), Scopes: []string{"exec"}}}
	for _, test := range []struct {
		name    string
		bind    string
		allowed []string
		tokens  []config.Token
		want    bool
	}{
		{"scripts on loopback", "127.0.0.1:80", []string{"/srv/x"}, nil, true},
		{"no scripts", "127.0.0.1:80", nil, nil, false},
		{"any address", "0.0.0.0:80", []string{"/srv/x"}, nil, false},
		{"a token that may not", "127.0.0.1:80", []string{"/srv/x"}, token, false},
	} {
		c := config.Default()
		c.HTTP.Bind, c.Scripts.Allowed, c.HTTP.Tokens = test.bind, test.allowed, test.tokens
		a, err := newAuthenticator(c)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Authenticate("Bearer secret")
		if err != nil || slices.Contains(p.Scopes, executor.ScopeScripts) != test.want {
			t.Errorf("%s: %+v, %v", test.name, p, err)
		}
	}
}
