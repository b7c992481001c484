package mcpfrontend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestProgressComesBeforeItsOwnResultAndToNobodyElse(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			own := *c
			for n := range 5 {
				token := fmt.Sprintf("token-%d-%d", i, n)
				_, messages, err := own.post(t.Context(), map[string]any{"jsonrpc": "2.0", "id": 100*i + n + 1000, "method": "tools/call", "params": map[string]any{
					"name": "run_script_with_dependencies", "arguments": map[string]any{"script_content": "print " + token, "python_version": "3.12"},
					"_meta": map[string]any{"progressToken": token},
				}}, nil)
				if err != nil || len(messages) < 2 {
					t.Errorf("%s: %v, %v", token, messages, err)
					return
				}
				last := 0.0
				for _, m := range messages[:len(messages)-1] {
					p, _ := m["params"].(map[string]any)
					if m["method"] != "notifications/progress" || p["progressToken"] != token {
						t.Errorf("%s got %v", token, m)
					}
					if n, _ := p["progress"].(float64); n <= last {
						t.Errorf("%s: progress does not increase: %v", token, m)
					} else {
						last = n
					}
				}
				end := messages[len(messages)-1]
				result, _ := end["result"].(map[string]any)
				if a := answerOf(result); a.fields["stdout"] != token+"\n" {
					t.Errorf("%s: %v", token, end)
				}
			}
		})
	}
	wg.Wait()
}

func TestAClientThatGoesAwayLeavesNothingRunning(t *testing.T) {
	svc := newService(t, fake.Options{})
	c := serveTest(t, svc, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _, _ = c.post(ctx, map[string]any{"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": map[string]any{
			"name": "run_script_with_dependencies", "arguments": map[string]any{"script_content": "hang", "python_version": "3.12"},
		}}, nil)
	}()
	x := awaitOne(t, svc, executor.StatusRunning)
	cancel(nil)
	<-gone
	if x := awaitEnd(t, svc, x.ID); x.Status != executor.StatusKilled {
		t.Errorf("the execution of a client that went away is %s", x.Status)
	}
}

// slowAnswer is a Service that delays its answer to a Submit.
type slowAnswer struct {
	executor.Service
	accepted chan executor.Execution
	release  chan struct{}
}

func (s *slowAnswer) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	x, err := s.Service.Submit(ctx, spec, in)
	if err == nil {
		s.accepted <- x
		<-s.release
	}
	return x, err
}

// The core has accepted the Execution, but the frontend does not know its id yet when the client disconnects.
func TestAClientThatGoesAwayDuringTheSubmitLeavesNothingRunning(t *testing.T) {
	svc := newService(t, fake.Options{})
	for _, test := range []struct {
		tool string
		want executor.Status
	}{
		{"run_script_with_dependencies", executor.StatusKilled},
		{"run_script_with_dependencies_async", executor.StatusRunning},
	} {
		slow := &slowAnswer{svc, make(chan executor.Execution, 1), make(chan struct{})}
		c := serveTest(t, slow, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _, _ = c.post(ctx, map[string]any{"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": map[string]any{
				"name": test.tool, "arguments": map[string]any{"script_content": "hang", "python_version": "3.12"},
			}}, nil)
		}()
		x := <-slow.accepted
		cancel(nil)
		<-gone
		close(slow.release)
		if test.want == executor.StatusKilled {
			if x := awaitEnd(t, svc, x.ID); x.Status != test.want {
				t.Errorf("%s: %s", test.tool, x.Status)
			}
			continue
		}
		// A job goes on, and is in its owner's list.
		awaittest.Until(t, test.tool+": its job in the list", func() bool { return strings.Contains(c.call("list_running_jobs", nil).text, x.ID) })
		if x, err := svc.Get(t.Context(), x.ID); err != nil || x.Status.Terminal() {
			t.Errorf("%s: %s, %v", test.tool, x.Status, err)
		}
	}
}

// Over gRPC the end of a ctx arrives with a delay. Here the Service sees it at once.
func TestTheEndOfACallDoesNotBreakOffItsSubmit(t *testing.T) {
	t.Parallel()
	svc := newService(t, fake.Options{})
	slow := &slowAnswer{svc, make(chan executor.Execution, 1), make(chan struct{})}
	var submitting context.Context
	tools, err := newTools(t.Context(), testConfig(nil), submitted{slow, func(ctx context.Context) { submitting = ctx }}, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tools.close(t.Context())
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		o := &outcome{}
		ended <- tools.follow(ctx, executor.Spec{Code: "hang"}, executor.Input{}, o, func(e executor.Event) { o.take(e, newProgress(ctx, mcp.CallToolRequest{})) })
	}()
	x := <-slow.accepted
	cancel(gone)
	if submitting.Err() != nil {
		t.Error("the Submit has ended with the call")
	}
	close(slow.release)
	if err := <-ended; !errors.Is(err, gone) {
		t.Errorf("follow: %v", err)
	}
	if x := awaitEnd(t, svc, x.ID); x.Status != executor.StatusKilled {
		t.Errorf("it is %s", x.Status)
	}
}

// submitted is a Service that passes the ctx of each Submit to with.
type submitted struct {
	executor.Service
	with func(context.Context)
}

func (s submitted) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	s.with(ctx)
	return s.Service.Submit(ctx, spec, in)
}

// awaitOne waits until there is an Execution of that status.
func awaitOne(t *testing.T, svc executor.Service, status executor.Status) executor.Execution {
	t.Helper()
	return awaitOneOf(t.Context(), t, svc, status)
}

// awaitOneOf waits as the caller that ctx names.
func awaitOneOf(ctx context.Context, t *testing.T, svc executor.Service, status executor.Status) executor.Execution {
	t.Helper()
	var found executor.Execution
	awaittest.UntilNil(t, "an execution that is "+string(status), func() error { // a List has no event to wait for
		list, err := svc.List(ctx, executor.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(x executor.Execution) bool { return x.Status == status })
		if i < 0 {
			return fmt.Errorf("there are %+v", list)
		}
		found = list[i]
		return nil
	})
	return found
}

// awaitEnd follows an Execution to its end, and fails the test if the end does not come.
func awaitEnd(t *testing.T, svc executor.Service, id string) executor.Execution {
	t.Helper()
	ctx := awaittest.Context(t)
	for _, err := range svc.Events(ctx, id, 0) {
		if err != nil {
			t.Fatalf("follow %s: %v", id, err)
		}
	}
	x, err := svc.Get(t.Context(), id)
	if err != nil || !x.Status.Terminal() {
		t.Fatalf("%s is %s, %v: %v", id, x.Status, err, context.Cause(ctx))
	}
	return x
}

func TestWhatIsRefusedBeforeItReachesTheLibrary(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	open := serveTest(t, newService(t, fake.Options{}), func(c *Config) {
		c.HTTP.MaxBodyBytes, c.HTTP.AllowedOrigins = 2000, []string{"https://app.example"}
	})
	closed := serveTest(t, newService(t, fake.Options{}), func(c *Config) {
		c.HTTP.Tokens = []auth.Token{{Owner: "me", SHA256: hex.EncodeToString(sum[:])}}
	})
	ping := map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"}
	big := map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": map[string]any{"x": strings.Repeat("y", 3000)}}
	for name, test := range map[string]struct {
		c       *client
		message map[string]any
		headers map[string]string
		status  int
	}{
		"a foreign page":                  {open, ping, map[string]string{"Origin": "http://evil.example"}, 403},
		"a page of the same name":         {open, ping, map[string]string{"Origin": "http://localhost:1"}, 403},
		"a page that is allowed":          {open, ping, map[string]string{"Origin": "https://app.example"}, 200},
		"a name that was made to resolve": {open, ping, map[string]string{"Host": "evil.example"}, 403},
		"too much":                        {open, big, nil, 413},
		"another owner's session":         {open, ping, map[string]string{"Mcp-Session-Id": "mcp-session-00000000-0000-4000-8000-000000000000"}, 404},
		"no token":                        {closed, ping, nil, 401},
		"a wrong token":                   {closed, ping, map[string]string{"Authorization": "Bearer wrong"}, 401},
		"a name in a header":              {closed, ping, map[string]string{PrincipalHeader: `{"Owner":"root","Scopes":["trusted"]}`}, 401},
	} {
		status, messages, err := test.c.post(t.Context(), test.message, test.headers)
		if err != nil || status != test.status {
			t.Errorf("%s: status %d, want %d: %v %v", name, status, test.status, messages, err)
		}
	}
	anywhere := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.HTTP.Bind = "server.example:8000" })
	for host, want := range map[string]int{
		"evil.example": 403, "evil.example.:8000": 403, "127.0.0.1.evil.example": 403, "server.example": 200, "SERVER.example.:8000": 200,
		"192.0.2.7:8000": 200, "[2001:db8::1]:8000": 200, "LOCALHOST": 200, "intranet:8000": 200,
	} {
		if status, _, err := anywhere.post(t.Context(), ping, map[string]string{"Host": host}); err != nil || status != want {
			t.Errorf("without tokens, Host %q: %d, %v, want %d", host, status, err, want)
		}
	}
	unknown := "mcp-session-00000000-0000-4000-8000-000000000000"
	for _, test := range []struct {
		method, session, body string
		status                int
		says                  string
	}{
		{http.MethodGet, "", "", 400, "send initialize"},
		{http.MethodGet, unknown, "", 404, "no such session"},
		{http.MethodDelete, "", "", 400, "send initialize"},
		{http.MethodDelete, unknown, "", 404, "no such session"},
		{http.MethodPut, open.session, "{}", 405, "must be one of GET"},
		{http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400, "send initialize"},
		{http.MethodPost, open.session, ` [{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, "one message at a time"},
		{http.MethodPost, open.session, "{nope", 400, "-32700"},
		{http.MethodPost, open.session, "", 400, "-32700"},
		{http.MethodDelete, open.session, "", 200, ""},
		{http.MethodDelete, open.session, "", 404, "no such session"},
		{http.MethodGet, open.session, "", 404, "no such session"},
		{http.MethodPost, open.session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 404, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, open.url, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if test.session != "" {
			r.Header.Set("Mcp-Session-Id", test.session)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || resp.StatusCode != test.status || !strings.Contains(string(body), test.says) {
			t.Errorf("%s %q in %q: %d %s, %v", test.method, test.body, test.session, resp.StatusCode, body, err)
		}
	}
	open.initialize()
	closed.token = "secret"
	closed.initialize()
	if status, _, err := closed.post(t.Context(), ping, nil); err != nil || status != 200 {
		t.Errorf("with the token: %d, %v", status, err)
	}
	other := *closed
	other.token = ""
	if status, _, _ := other.post(t.Context(), ping, nil); status != 401 {
		t.Errorf("a session id is taken for a token: %d", status)
	}
}

func TestOneClientCannotCancelAnothersCall(t *testing.T) {
	svc := newService(t, fake.Options{})
	c := serveTest(t, svc, nil)
	modern := map[string]string{"Mcp-Session-Id": "", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "run_script_with_dependencies"}
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "t", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	own := *c
	own.session = ""
	done := make(chan answer, 1)
	go func() {
		_, messages, err := own.post(t.Context(), map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
			"name": "run_script_with_dependencies", "_meta": meta,
			"arguments": map[string]any{"script_content": "print begun\nsleep 300ms\nprint done", "python_version": "3.12"},
		}}, modern)
		if err != nil || len(messages) == 0 {
			t.Errorf("%v, %v", messages, err)
			done <- answer{}
			return
		}
		result, _ := messages[len(messages)-1]["result"].(map[string]any)
		done <- answerOf(result)
	}()
	awaitOne(t, svc, executor.StatusRunning)
	foreign := *c
	foreign.session = ""
	status, _, err := foreign.post(t.Context(), map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": 1}},
		map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "notifications/cancelled"})
	if err != nil || status != http.StatusAccepted {
		t.Errorf("status %d, %v", status, err)
	}
	if a := <-done; a.fields["stdout"] != "begun\ndone\n" {
		t.Errorf("the other's call: %v", a)
	}
}

func TestAnMCPSessionThatEndsTakesItsSandboxWithIt(t *testing.T) {
	backend := fake.Options{}
	svc := newService(t, backend)
	c := serveTest(t, svc, nil)
	run := func(c *client, text string) answer {
		return c.call("execute", map[string]any{"command": "fake", "args": []string{"-c", text}})
	}
	if a := run(c, "write-file f kept"); a.isError || a.fields["exit_code"] != 0.0 {
		t.Fatalf("%v", a)
	}
	if a := run(c, "cat f"); a.fields["stdout"] != "kept" {
		t.Errorf("files do not persist: %v", a)
	}
	first := c.session
	c.initialize()
	if a := run(c, "exists f"); a.fields["stdout"] != "false\n" {
		t.Errorf("another session sees the file: %v", a)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, c.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", first)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	awaitSandboxes(t, svc, 1)
	// A fourth session ends the one that was used least recently.
	for range 3 {
		c.initialize()
	}
	old := *c
	old.session = first
	if status, _, _ := old.post(t.Context(), map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"}, nil); status != 404 {
		t.Errorf("a session that was deleted answers %d", status)
	}
}

func TestSandboxesOfAProcessThatWasKilledAreClosedByTheNext(t *testing.T) {
	svc := newService(t, fake.Options{})
	first := serveTest(t, svc, nil)
	if a := first.call("execute", map[string]any{"command": "fake", "args": []string{"-c", "print 1"}}); a.isError {
		t.Fatalf("%v", a)
	}
	mine := first.call("create_context", map[string]any{"name": "stays", "description": serversSandbox}).fields["context_id"]
	bridge := executor.Session{Name: "shell", Description: "files of the MCP toolset shell", Language: executor.LanguageShell}
	if _, err := svc.OpenSession(t.Context(), bridge); err != nil { // of another client's own process
		t.Fatal(err)
	}
	// The former frontend of a successor still answers calls.
	successor, err := newTools(t.Context(), testConfig(func(c *Config) { c.Successor = true }), svc, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	successor.close(t.Context())
	if n := openSandboxes(t, svc); n != 3 {
		t.Fatalf("after a successor %d are open", n)
	}
	second := serveTest(t, svc, nil)
	awaitSandboxes(t, svc, 2)
	if a := second.call("run_code", map[string]any{"context_id": mine, "code": "print 1"}); a.isError {
		t.Errorf("a context: %v", a)
	}
}

func TestStdio(t *testing.T) {
	svc := newService(t, fake.Options{})
	p := serveStdioTest(t, svc, nil)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	if m := p.receive(); m["id"] != 1.0 {
		t.Fatalf("%v", m)
	}
	// Long calls leave workers free for the calls that end them.
	const hanging = 12
	for i := range hanging {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"h%d","method":"tools/call","params":{"name":"run_script_with_dependencies","arguments":{"script_content":"hang","python_version":"3.12"}}}`+"\n", i))
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_running_jobs","arguments":{}}}` + "\n")
	if m := p.receive(); m["id"] != 2.0 {
		t.Fatalf("a quick call waits behind long ones: %v", m)
	}
	for i := range hanging {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h%d"}}`+"\n", i))
	}
	for range hanging {
		if m := p.receive(); !strings.HasPrefix(fmt.Sprint(m["id"]), "h") {
			t.Errorf("%v", m)
		}
	}
	// Progress always comes before its result.
	for i := range 50 {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_script_with_dependencies","arguments":{"script_content":"print x","python_version":"3.12"},"_meta":{"progressToken":"p%d"}}}`+"\n", 100+i, i))
		for seen := false; ; {
			m := p.receive()
			if m["method"] == "notifications/progress" {
				seen = true
				continue
			}
			if m["id"] != float64(100+i) || !seen {
				t.Fatalf("%v, after progress: %t", m, seen)
			}
			break
		}
	}
	// Requests before the end of standard input are answered, also if the last line has no line break.
	p.send(`{"jsonrpc":"2.0","id":1e3,"method":"tools/call","params":{"name":"run_script_with_dependencies","arguments":{"script_content":"sleep 50ms\nprint late","python_version":"3.12"}}}`)
	p.in.Close()
	m := p.receive()
	result, _ := m["result"].(map[string]any)
	if a := answerOf(result); m["id"] != 1000.0 || a.fields["stdout"] != "late\n" {
		t.Errorf("%v", m)
	}
	if err := <-p.done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	p.done <- nil
}

// cancelled is a Service that notes whether the ctx of a Cancel has ended. A Service over the wire cannot be called with such a ctx.
type cancelled struct {
	executor.Service
	ended error
	calls int
}

func (c *cancelled) Cancel(ctx context.Context, _ string) (executor.Execution, error) {
	c.ended, c.calls = ctx.Err(), c.calls+1
	return executor.Execution{}, nil
}

func TestAClientThatHasGoneCancelsWithACtxThatLives(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancelCause(t.Context())
	end(errors.New("the client has gone"))
	svc := &cancelled{}
	(&tools{svc: svc, log: slog.New(slog.DiscardHandler)}).cancel(ctx, "x")
	if svc.calls != 1 || svc.ended != nil {
		t.Errorf("%d calls, with a ctx whose error is %v", svc.calls, svc.ended)
	}
}
