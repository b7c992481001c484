package mcpfrontend

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// served is a frontend that Factory has made.
type served struct {
	details map[string]string
	stop    context.CancelCauseFunc
	// ended receives the error that the frontend returned.
	ended chan error
}

// serveFrontend configures and serves a frontend.
func serveFrontend(t *testing.T, svc executor.Service, change func(*Config)) *served {
	t.Helper()
	c := testConfig(func(c *Config) { c.HTTP.Bind = "127.0.0.1:0" })
	change(&c)
	options, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	serve, details, err := Factory(t.Context(), plugin.Configure{Name: "mcp", Options: options, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	s := &served{details: details, stop: stop, ended: make(chan error, 1)}
	wire := plugintest.WireService(t, svc)
	go func() { s.ended <- serve(ctx, wire) }()
	t.Cleanup(func() { stop(nil) })
	return s
}

// wait returns the error that the frontend returned.
func (s *served) wait(t *testing.T) error {
	t.Helper()
	return awaittest.Recv(t, "the end of the frontend", s.ended)
}

// closed fails the test if something still listens at the address.
func (s *served) closed(t *testing.T) {
	t.Helper()
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.details[DetailAddress]); err == nil {
		c.Close()
		t.Error("the frontend still listens")
	}
}

// openSandboxes counts the open sandboxes of all owners.
func openSandboxes(t *testing.T, svc executor.Service) int {
	t.Helper()
	everybody := executor.WithPrincipal(t.Context(), executor.Principal{Owner: "root", Scopes: []executor.Scope{executor.ScopeAdmin, executor.ScopeRead}})
	list, err := svc.ListSessions(everybody)
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(list, func(s executor.Session) bool { return s.Status != executor.SessionActive }))
}

// awaitSandboxes waits until want sandboxes are open.
func awaitSandboxes(t *testing.T, svc executor.Service, want int) {
	t.Helper()
	awaittest.UntilNil(t, "another number of sandboxes", func() error {
		if open := openSandboxes(t, svc); open != want {
			return fmt.Errorf("%d are open, want %d", open, want)
		}
		return nil
	})
}

// sandbox opens a sandbox for the client's session.
func (c *client) sandbox() {
	c.t.Helper()
	if a := c.call("execute", map[string]any{"command": "fake", "args": []string{"-c", "print 1"}}); a.isError {
		c.t.Fatalf("%v", a)
	}
}

func TestAFrontendServesItsListenersAndLeavesNothing(t *testing.T) {
	svc := newService(t, fake.Options{})
	socket := filepath.Join(t.TempDir(), "mcp.sock")
	s := serveFrontend(t, svc, func(c *Config) {
		c.HTTP.Socket, c.HTTP.Tokens = socket, []auth.Token{tokenOf("ann"), tokenOf("bob")}
	})
	ann := &client{t: t, url: "http://" + s.details[DetailAddress] + "/mcp", token: "ann's"}
	ann.initialize()
	ann.sandbox()
	hello := map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"},
	}}
	principal := map[string]string{PrincipalHeader: `{"Owner":"ann","Scopes":["exec","read"]}`}
	nobody := &client{t: t, url: ann.url}
	if status, _, err := nobody.post(t.Context(), hello, principal); err != nil || status != http.StatusUnauthorized {
		t.Errorf("over TCP a header names the caller: %d, %v", status, err)
	}
	local := &client{t: t, url: ann.url, token: "ann's", http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
	if status, _, err := local.post(t.Context(), hello, nil); err != nil || status != http.StatusUnauthorized {
		t.Errorf("over the socket a caller without a name gets %d, %v", status, err)
	}
	if status, _, err := local.post(t.Context(), hello, principal); err != nil || status != http.StatusOK {
		t.Errorf("over the socket a named caller gets %d, %v", status, err)
	}
	s.stop(nil)
	if err := s.wait(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
	s.closed(t)
	awaitSandboxes(t, svc, 0)
}

func TestASessionThatNobodyUsesEnds(t *testing.T) {
	svc := newService(t, fake.Options{})
	s := serveFrontend(t, svc, func(c *Config) { c.HTTP.SessionIdleSeconds = 0.5 })
	c := &client{t: t, url: "http://" + s.details[DetailAddress] + "/mcp"}
	// On a busy machine the session may have ended before its second request, and the client begins anew.
	call := map[string]any{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": map[string]any{
		"name": "execute", "arguments": map[string]any{"command": "fake", "args": []string{"-c", "print 1"}},
	}}
	awaittest.Until(t, "a call in a session", func() bool {
		c.initialize()
		status, messages, err := c.post(t.Context(), call, nil)
		if err != nil || status != http.StatusOK && status != http.StatusNotFound {
			t.Fatalf("status %d, %v, %v", status, messages, err)
		}
		return status == http.StatusOK
	})
	awaitSandboxes(t, svc, 0)
	if got := c.ping(c.session); got != http.StatusNotFound {
		t.Errorf("the session that has ended: status %d", got)
	}
	s.stop(nil)
	if err := s.wait(t); err != nil {
		t.Error(err)
	}
}

// TestMessagesOfAListenerShareABudget sends two messages of which only one fits, and ends neither. Where both wait for more room at
// the same time, both are refused.
func TestMessagesOfAListenerShareABudget(t *testing.T) {
	s := serveFrontend(t, newService(t, fake.Options{}), func(c *Config) { c.HTTP.MaxBodyBytes, c.HTTP.MaxBufferedBytes = 4<<20, 4<<20 })
	type answer struct {
		status int
		err    error
	}
	answers := make(chan answer, 2)
	send := func() *io.PipeWriter {
		body, feed := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.details[DetailAddress]+"/mcp", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue") // it is refused when it sends already
		go func() {
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{resp.StatusCode, resp.Body.Close()}
		}()
		go func() {
			_, _ = io.WriteString(feed, strings.Repeat(" ", 3500<<10)) // one that is refused is cut off
		}()
		return feed
	}
	feeds := []*io.PipeWriter{send(), send()}
	if a := awaittest.Recv(t, "a refusal of one message", answers); a.err != nil || a.status != http.StatusServiceUnavailable {
		t.Errorf("the message that does not fit gets %d, %v", a.status, a.err)
	}
	for _, feed := range feeds {
		feed.Close()
	}
	if a := <-answers; a.err != nil || a.status != http.StatusBadRequest && a.status != http.StatusServiceUnavailable {
		t.Errorf("the other message, which is not JSON-RPC, gets %d, %v", a.status, a.err)
	}
	send().Close()
	if a := <-answers; a.err != nil || a.status != http.StatusBadRequest {
		t.Errorf("a message that comes when nothing is held gets %d, %v", a.status, a.err)
	}
	s.stop(nil)
	if err := s.wait(t); err != nil {
		t.Error(err)
	}
}

func TestAFrontendThatCannotServeClosesItsListeners(t *testing.T) {
	s := serveFrontend(t, newService(t, fake.Options{}), func(c *Config) { c.Backend = "other" })
	if err := s.wait(t); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("it ended with %v", err)
	}
	s.closed(t)
}

func TestTheEndOfStdioEndsTheListenersToo(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	authenticator, err := auth.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	f := &frontend{config: testConfig(func(c *Config) { c.Stdio = true }), log: testLog(t), authenticator: authenticator, listener: listener, in: in, out: stdout}
	s := &served{details: map[string]string{DetailAddress: listener.Addr().String()}, ended: make(chan error, 1)}
	svc := newService(t, fake.Options{})
	wire := plugintest.WireService(t, svc)
	go func() {
		s.ended <- f.serve(context.Background(), wire)
		stdout.Close()
	}()
	p := &pipeClient{t: t, in: stdin, lines: bufio.NewReader(out)}
	p.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	p.receive()
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute","arguments":{"command":"fake","args":["-c","print 1"]}}}` + "\n")
	p.receive()
	awaitSandboxes(t, svc, 1)
	stdin.Close()
	if err := s.wait(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
	s.closed(t)
	if n := openSandboxes(t, svc); n != 0 {
		t.Errorf("after its end %d sandboxes are open", n)
	}
}

func TestAListenerThatFailsEndsTheFrontend(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frontend{config: testConfig(nil), log: testLog(t), listener: listener}
	s := &served{ended: make(chan error, 1)}
	wire := plugintest.WireService(t, newService(t, fake.Options{}))
	go func() { s.ended <- f.serve(context.Background(), wire) }()
	listener.Close()
	if err := s.wait(t); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("it ended with %v", err)
	}
}
