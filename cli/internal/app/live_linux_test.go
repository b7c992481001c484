package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// messages is a log that passes on the messages about changes of the configuration.
type messages struct {
	urls
	said chan string
}

func (m *messages) WithAttrs([]slog.Attr) slog.Handler { return m }
func (m *messages) WithGroup(string) slog.Handler      { return m }
func (m *messages) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case strings.HasPrefix(r.Message, "the changed configuration"), strings.HasPrefix(r.Message, "a change needs"), r.Message == "profiles are served",
		r.Message == "backend drained", r.Message == "the former MCP frontend was not drained":
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
			return true
		})
		m.said <- text
	}
	return m.urls.Handle(ctx, r)
}

// liveServer is a server whose configuration is a file.
type liveServer struct {
	t    *testing.T
	url  string
	file string
	log  *messages
	hup  chan struct{}
	// session, if not empty, is sent as the MCP session.
	session string
}

// startLive starts a server with the configuration that text adds to that of the tests. loaded is called between the reading of the file
// and the start.
func startLive(t *testing.T, text string, loaded ...func(*liveServer)) *liveServer {
	t.Helper()
	dir := t.TempDir()
	s := &liveServer{t: t, file: filepath.Join(dir, "c.yaml"), hup: make(chan struct{}, 1)}
	s.log = &messages{urls: urls{url: make(chan string, 1)}, said: make(chan string, 100)}
	s.write(text)
	bundle := testBundle()
	load := func() (config.Config, error) {
		c, err := settings.Load(settings.Options{File: s.file, Sections: bundle.Sections()})
		if c.HTTP.Bind == config.Default().HTTP.Bind {
			c.HTTP.Bind = "127.0.0.1:0"
		}
		if c.DataDir == config.Default().DataDir {
			c.DataDir = filepath.Join(dir, "data")
		}
		return c, err
	}
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range loaded {
		f(s)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, ServeOptions{Config: c, Bundle: bundle, Log: slog.New(s.log), File: s.file, Reload: load, Hangups: s.hup})
	}()
	select {
	case s.url = <-s.log.url:
	case err := <-done:
		cancel(nil)
		t.Fatalf("serve ended: %v", err)
	}
	t.Cleanup(func() {
		cancel(errors.New("the test is over"))
		http.DefaultClient.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// write replaces the file by a rename, as editors do.
func (s *liveServer) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.file+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil {
		s.t.Fatal(err)
	}
}

// says waits for a message that has every one of want.
func (s *liveServer) says(want ...string) {
	s.t.Helper()
	for {
		text := awaittest.Recv(s.t, fmt.Sprintf("the message %q", want), s.log.said)
		if !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(text, w) }) {
			return
		}
		s.t.Logf("not waited for: %s", text)
	}
}

// saysBoth waits for two messages, in any order.
func (s *liveServer) saysBoth(a, b string) {
	s.t.Helper()
	for seenA, seenB := false, false; !seenA || !seenB; {
		text := awaittest.Recv(s.t, fmt.Sprintf("the messages %q and %q", a, b), s.log.said)
		seenA, seenB = seenA || strings.Contains(text, a), seenB || strings.Contains(text, b)
	}
}

const taken, refused = "the changed configuration is in effect", "the changed configuration is not in effect"

// call returns the status and the body of a request. With a token, it sends that.
func (s *liveServer) call(method, path, send, token string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(send))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if s.session != "" {
		req.Header.Set("Mcp-Session-Id", s.session)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// run runs a program of the fake to its end and returns its answer.
func (s *liveServer) run(code, more string) (status int, answer map[string]any) {
	s.t.Helper()
	quoted, _ := json.Marshal(code)
	status, text := s.call(http.MethodPost, "/api/v1/exec/sync", `{"code":`+string(quoted)+more+`}`, "")
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		s.t.Fatal(text)
	}
	return status, answer
}

// list returns the backends.
func (s *liveServer) list() (all []map[string]any) {
	s.t.Helper()
	var answer struct {
		Backends []map[string]any `json:"backends"`
	}
	if _, text := s.call(http.MethodGet, "/api/v1/backends", "", ""); json.Unmarshal([]byte(text), &answer) != nil {
		s.t.Fatal(text)
	}
	return answer.Backends
}

// plugins returns the processes that this one has started and that have not ended. No other test runs at the same time.
func plugins(t *testing.T) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		raw, _ := os.ReadFile(list) // a thread may have ended
		pids = append(pids, strings.Fields(string(raw))...)
	}
	return pids
}

func pidOf(b map[string]any) any { return b["details"].(map[string]any)["pid"] }

const quiet = "backend: fake\nmcp: {toolsets: []}\n"

func TestAChangedBackendTakesOverWhileTheFormerOneEndsItsExecutions(t *testing.T) {
	s := startLive(t, quiet+"backends: {fake: {}}\n")
	first := pidOf(s.list()[0])
	var wg sync.WaitGroup
	wg.Go(func() {
		if status, x := s.run("print begun\nsleep 2s\nprint done", ""); status != 200 || x["status"] != "succeeded" || x["stdout"] != "begun\ndone\n" {
			t.Errorf("what ran: %d %v", status, x)
		}
	})
	// Another one runs until it is cancelled: on a machine under load, the change may take longer than a sleep.
	var hangs struct {
		ID string `json:"execution_id"`
	}
	if _, text := s.call(http.MethodPost, "/api/v1/exec/async", `{"code":"hang"}`, ""); json.Unmarshal([]byte(text), &hangs) != nil {
		t.Fatal(text)
	}
	for s.accepted() < 2 { // neither is refused
	}
	s.write(quiet + "backends: {fake: {capacity: 3}}\n")
	s.says(taken, "backends.fake.capacity", "draining=1")
	all := s.list()
	if len(all) != 2 || all[0]["capacity"] != 3.0 || pidOf(all[0]) == first || pidOf(all[1]) != first || !strings.Contains(all[1]["message"].(string), "draining until") {
		t.Errorf("backends: %v", all)
	}
	if status, x := s.run("print new", ""); status != 200 || x["stdout"] != "new\n" {
		t.Errorf("a new one: %d %v", status, x)
	}
	wg.Wait()
	if _, text := s.call(http.MethodDelete, "/api/v1/executions/"+hangs.ID, "", ""); !strings.Contains(text, `"killed"`) {
		t.Errorf("what hangs: %s", text)
	}
	s.says("backend drained")
	s.write(quiet + "backend: other\nbackends: {other: {type: fake}}\n") // twice the key backend
	s.says(refused, "duplicate key")
	s.write("backend: other\nbackends: {other: {type: fake}}\nmcp: {toolsets: []}\n")
	s.saysBoth(taken, "backend drained") // in either order
	if _, x := s.run("print x", ""); x["backend"] != "other" {
		t.Errorf("it ran as %v", x)
	}
	if all := s.list(); len(all) != 1 || all[0]["warnings"] != nil {
		t.Errorf("backends: %v", all)
	}
	awaittest.Until(t, "the end of the former processes", func() bool { return len(plugins(t)) == 1 })
}

// accepted returns the number of executions, each of which has its backend.
func (s *liveServer) accepted() int {
	_, text := s.call(http.MethodGet, "/api/v1/executions", "", "")
	return strings.Count(text, `"exe_`)
}

func TestABrokenConfigurationChangesNothingAndIsReported(t *testing.T) {
	good := quiet + "backends: {fake: {}}\n"
	s := startLive(t, good)
	pid := pidOf(s.list()[0])
	for name, c := range map[string]struct{ text, field string }{
		"no YAML":                   {"a: [", ""},
		"empty":                     {" \n", "must not be empty"},
		"an unknown key":            {good + "bakend: x\n", "bakend"},
		"a wrong value":             {good + "engine: {max_queued: -1}\n", "engine.max_queued"},
		"a refused section":         {quiet + "backends: {fake: {nonsense: 1}}\n", "nonsense"},
		"an unknown type":           {"backend: x\nbackends: {x: {type: none}}\nmcp: {toolsets: []}\n", "unknown backend type"},
		"one of two does not start": {quiet + "backends: {fake: {capacity: 1}, b: {type: fake, path: /no/such, sha256: " + strings.Repeat("a", 64) + "}}\n", "backends.b.path"},
		"the second of two":         {quiet + "backends: {fake: {capacity: 1}, second: {type: fake, path: /no/such, sha256: " + strings.Repeat("a", 64) + "}}\n", "backends.second.path"},
		"a default that is not":     {"backend: b\nbackends: {fake: {}}\nmcp: {toolsets: []}\n", "backend"},
		"the same token twice":      {good + "http: {tokens: [{owner: a, sha256: " + hash("x") + "}, {owner: b, sha256: " + hash("x") + "}]}\n", "http.tokens[1].sha256"},
		"MCP on a port in use":      {"backend: fake\nbackends: {fake: {capacity: 9}}\nmcp: {http: {enabled: true, bind: " + strings.TrimPrefix(s.url, "http://") + "}}\n", "mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.write(c.text)
			s.says(refused, c.field)
			all := s.list()
			if len(all) != 1 || pidOf(all[0]) != pid || all[0]["warnings"] == nil || !strings.Contains(fmt.Sprint(all[0]["warnings"]), refused) || !strings.Contains(fmt.Sprint(all[0]["warnings"]), c.field) {
				t.Errorf("backends: %v", all)
			}
			if pids := plugins(t); len(pids) != 1 || pids[0] != pid {
				t.Errorf("processes %v are left, want %v", pids, pid)
			}
			if status, text := s.call(http.MethodGet, "/readyz", "", ""); status != 200 || !strings.Contains(text, `"ready":true,"configuration":"`+refused) {
				t.Errorf("readyz: %d %s", status, text)
			}
			if status, x := s.run("print x", ""); status != 200 || x["status"] != "succeeded" {
				t.Errorf("it ran: %d %v", status, x)
			}
		})
	}
	s.t = t
	// The former file again: nothing has changed, and nothing is wrong any more.
	s.write(good + "limits: {default: {timeout_seconds: 5}, max: {timeout_seconds: 7}}\n")
	s.says(taken, "limits.max.timeout_seconds")
	if _, text := s.call(http.MethodGet, "/readyz", "", ""); strings.TrimSpace(text) != `{"ready":true}` {
		t.Errorf("readyz: %s", text)
	}
	if all := s.list(); pidOf(all[0]) != pid || all[0]["warnings"] != nil {
		t.Errorf("backends: %v", all)
	}
	// The file that is in effect again: no message says so.
	s.write(good + "bakend: x\n")
	s.says(refused, "bakend")
	s.write(good + "limits: {default: {timeout_seconds: 5}, max: {timeout_seconds: 7}}\n")
	awaittest.UntilNil(t, "a server without a notice", func() error {
		if _, text := s.call(http.MethodGet, "/readyz", "", ""); strings.TrimSpace(text) != `{"ready":true}` {
			return errors.New(text)
		}
		return nil
	})
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestTokensLimitsAndScriptsAreTakenLive(t *testing.T) {
	script := filepath.Join(t.TempDir(), "hello.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho hello\n"), 0o700); err != nil { //nolint:gosec // a script
		t.Fatal(err)
	}
	base := quiet + "backends: {fake: {}}\n"
	s := startLive(t, base)
	if status, x := s.run("print x", `,"config":{"timeout_seconds":8}`); status != 200 {
		t.Fatalf("%d %v", status, x)
	}
	s.write(base + "limits: {default: {timeout_seconds: 5}, max: {timeout_seconds: 7}}\nhttp: {max_body_bytes: 1000}\n")
	s.says(taken)
	if status, x := s.run("print x", `,"config":{"timeout_seconds":8}`); status != 422 {
		t.Errorf("a limit: %d %v", status, x)
	}
	if status, _ := s.run(strings.Repeat("#", 2000), ""); status != 413 {
		t.Errorf("a body: %d", status)
	}
	s.write(base + "scripts: {allowed: [" + script + "]}\n")
	s.says(taken, "scripts.allowed")
	if _, text := s.call(http.MethodGet, "/api/v1/backends", "", ""); !strings.Contains(text, `"name":"scripts"`) {
		t.Errorf("backends: %s", text)
	}
	s.write(base + "http: {tokens: [{owner: alice, sha256: " + hash("secret") + "}]}\n")
	s.says(taken, "http.tokens", "draining=1")
	for token, want := range map[string]int{"": 401, "other": 401, "secret": 200} {
		if status, text := s.call(http.MethodGet, "/api/v1/executions", "", token); status != want {
			t.Errorf("with the token %q: %d %s", token, status, text)
		}
	}
}

func TestAChangeBetweenTheReadingAndTheFirstWatchIsSeen(t *testing.T) {
	s := startLive(t, quiet+"backends: {fake: {}}\n", func(s *liveServer) {
		s.write(quiet + "backends: {fake: {}}\nengine: {max_queued: 5}\n")
	})
	s.says(taken, "[engine.max_queued]")
}

func TestSIGHUPReadsTheFileAndWhatNeedsARestartIsNamed(t *testing.T) {
	s := startLive(t, quiet+"backends: {fake: {}}\n")
	s.write(quiet + "backends: {fake: {}}\nhttp: {bind: \"127.0.0.1:1\"}\ndata_dir: /elsewhere\nengine: {max_queued: 5}\n")
	s.says("a change needs a restart of the server", "key=http.bind", "in_effect=127.0.0.1:0", "in_file=127.0.0.1:1")
	s.says("a change needs a restart of the server", "key=data_dir")
	s.says(taken, "[engine.max_queued]")
	s.hup <- struct{}{}
	s.says("a change needs a restart of the server", "key=http.bind")
	s.write(quiet + "backends: {fake: {}}\nhttp: {bind: \"0.0.0.0:1\", allow_unauthenticated: true}\n")
	s.says(taken, "[engine.max_queued http.allow_unauthenticated]")
}

// An MCP session ends with the settings that it was opened with: its client gets the status 404, after which it initializes again.
func TestMCPGetsItsNewSettingsAndItsClientsAreTold(t *testing.T) {
	const base = "backend: fake\nbackends: {fake: {}}\n"
	s := startLive(t, base+"mcp: {toolsets: [python]}\n")
	initialize := func() string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		return resp.Header.Get("Mcp-Session-Id")
	}
	tools := func(session string) (int, string) {
		t.Helper()
		s.session = session
		defer func() { s.session = "" }()
		return s.call(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, "")
	}
	old := initialize()
	if status, text := tools(old); status != 200 || !strings.Contains(text, "run_script_in_dir") {
		t.Fatal(status, text)
	}
	s.write(base + "mcp: {toolsets: [shell]}\n")
	s.says(taken, "mcp.toolsets")
	if status, text := tools(old); status != 404 {
		t.Errorf("the former session: %d %s", status, text)
	}
	if status, text := tools(initialize()); status != 200 || !strings.Contains(text, `"execute"`) || strings.Contains(text, "run_script_in_dir") {
		t.Errorf("a new session: %d %s", status, text)
	}
	s.write(base + "mcp: {toolsets: []}\n")
	s.says(taken, "mcp.toolsets")
	if status, _ := tools(""); status != 404 {
		t.Errorf("without toolsets: %d", status)
	}
	// What says nothing about MCP leaves its sessions alone.
	s.write(base + "mcp: {toolsets: [shell]}\n")
	s.says(taken)
	lasting := initialize()
	s.write("backend: fake\nbackends: {fake: {capacity: 3}}\nmcp: {toolsets: [shell]}\nengine: {max_queued: 7}\n")
	s.says(taken, "backends.fake.capacity")
	if status, text := tools(lasting); status != 200 {
		t.Errorf("after another change: %d %s", status, text)
	}
}

// Every key of the configuration is in effect after a change, or is named as one that needs a restart. A new key fails here until it is
// decided where it belongs.
func TestEveryKeyIsLiveOrNeedsARestart(t *testing.T) {
	t.Parallel()
	sections := []string{"http", "backend", "engine", "limits", "retention", "sessions", "mcp", "scripts"} // all that apply hands on
	for _, key := range settings.Keys() {
		section, _, _ := strings.Cut(key, ".")
		if section == "worker" {
			continue // of another command, which reads its settings once
		}
		restart := false
		for _, k := range atStart {
			restart = restart || k.key == key
		}
		if !restart && !slices.Contains(sections, section) {
			t.Errorf("%s: nobody takes it", key)
		}
	}
	for _, k := range atStart {
		var c config.Config
		*k.value(&c) = "x"
		if got := changedKeys(config.Config{}, c); !reflect.DeepEqual(got, []string{k.key}) {
			t.Errorf("%s changes %v", k.key, got)
		}
	}
}
