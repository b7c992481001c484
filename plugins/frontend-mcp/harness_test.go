package mcpfrontend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/python-executor/python-executor/core/auth"
	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	memorystore "github.com/python-executor/python-executor/core/store/memory"
)

func TestMain(m *testing.M) {
	leaktest.Main(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// newService returns an engine on the fake backend.
func newService(t *testing.T, o fake.Options, change ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	blobs, err := dirblobs.Open(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Capabilities == nil {
		can := fake.DefaultCapabilities()
		can.Sessions, can.MemorySamples = true, true
		can.Languages = []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}
		o.Capabilities = &can
	}
	c := config.Default()
	options := engine.Options{
		Store: memorystore.New(memorystore.Options{}), Blobs: blobs, Backends: map[string]executor.Backend{"fake": fake.New(o)},
		Engine: config.Engine{MaxConcurrent: 8, MaxQueued: 100}, Limits: c.Limits, Sessions: c.Sessions, Embedded: true,
	}
	for _, f := range change {
		f(&options)
	}
	e, err := engine.New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancelCause(context.Background())
		cancel(nil)
		_ = e.Close(now) // what still runs is not waited for
	})
	return e
}

// testLog writes to the test.
func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func testConfig(change func(*Config)) Config {
	c := Default()
	c.Version, c.Toolsets, c.HTTP.MaxSessions = "test", Toolsets(), 3
	if change != nil {
		change(&c)
	}
	return c
}

// client speaks JSON-RPC to an endpoint over HTTP.
type client struct {
	t       *testing.T
	url     string
	token   string
	session string
	id      int
	// header is the header of the last answer.
	header http.Header
	// http is the HTTP client; nil: http.DefaultClient.
	http *http.Client
	// buffers is the server's budget for messages.
	buffers *buffered.Budget
}

// serveTest serves svc over HTTP and returns a client that has initialized.
func serveTest(t *testing.T, svc executor.Service, change func(*Config)) *client {
	t.Helper()
	return serveLogged(t, svc, testLog(t), change)
}

// serveLogged is serveTest with the log of the frontend.
func serveLogged(t *testing.T, svc executor.Service, log *slog.Logger, change func(*Config)) *client {
	t.Helper()
	c := testConfig(change)
	// As in a plugin process: a call with a ctx that has ended does not come through.
	tools, err := newTools(t.Context(), c, plugintest.WireService(t, svc), log)
	if err != nil {
		t.Fatal(err)
	}
	tools.sessions = newMCPSessions(c.HTTP, tools.sessionEnded)
	authenticator, err := auth.New(c.HTTP.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	authenticator.Allow(executor.ScopeScripts)
	inner := newInner(tools.server, tools.sessions, testLog(t))
	buffers := buffered.New(c.HTTP.MaxBufferedBytes, false)
	s := httptest.NewServer(&endpoint{
		config: c.HTTP, authenticator: authenticator, sessions: tools.sessions, inner: inner, buffers: buffers, log: testLog(t),
	})
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := inner.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		tools.close(context.Background())
	})
	cl := &client{t: t, url: s.URL + "/mcp", buffers: buffers}
	if len(c.HTTP.Tokens) == 0 {
		cl.initialize()
	}
	return cl
}

func (c *client) initialize() {
	c.t.Helper()
	c.session = ""
	c.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	if c.session == "" {
		c.t.Fatal("no session")
	}
}

// post sends one message and returns the status and the messages of the answer.
func (c *client) post(ctx context.Context, message map[string]any, headers map[string]string) (int, []map[string]any, error) {
	c.t.Helper()
	raw, err := json.Marshal(message)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(raw))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range headers {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	sender := http.DefaultClient
	if c.http != nil {
		sender = c.http
	}
	resp, err := sender.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	c.header = resp.Header
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, messagesOf(c.t, resp.Header.Get("Content-Type"), body), nil
}

func messagesOf(t *testing.T, mediaType string, body []byte) []map[string]any {
	t.Helper()
	lines := [][]byte{body}
	if strings.HasPrefix(mediaType, "text/event-stream") {
		lines = nil
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				lines = append(lines, data)
			}
		}
	} else if !strings.HasPrefix(mediaType, "application/json") {
		return nil
	}
	var list []map[string]any
	for _, line := range lines {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("not JSON: %q", line)
		}
		list = append(list, m)
	}
	return list
}

// request sends a request and returns its result and the messages before the result.
func (c *client) request(method string, params map[string]any) (map[string]any, []map[string]any) {
	c.t.Helper()
	c.id++
	status, messages, err := c.post(c.t.Context(), map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params}, nil)
	if err != nil || len(messages) == 0 {
		c.t.Fatalf("%s: status %d, %v, %v", method, status, messages, err)
	}
	last := messages[len(messages)-1]
	result, ok := last["result"].(map[string]any)
	if !ok {
		c.t.Fatalf("%s: %v", method, last)
	}
	return result, messages[:len(messages)-1]
}

// answer is a tool's result.
type answer struct {
	isError bool
	text    string
	fields  map[string]any
	content []any
}

func answerOf(result map[string]any) answer {
	a := answer{}
	a.isError, _ = result["isError"].(bool)
	a.fields, _ = result["structuredContent"].(map[string]any)
	a.content, _ = result["content"].([]any)
	if len(a.content) > 0 {
		first, _ := a.content[0].(map[string]any)
		a.text, _ = first["text"].(string)
	}
	return a
}

func (c *client) call(tool string, args map[string]any) answer {
	c.t.Helper()
	result, _ := c.request("tools/call", map[string]any{"name": tool, "arguments": args})
	return answerOf(result)
}

// outrun runs code that writes size bytes to stderr and does not end, up to its time limit. On a busy machine a short limit may be reached
// before the code has written, so longer ones are tried.
func (c *client) outrun(code string, size float64) answer {
	c.t.Helper()
	var a answer
	for _, seconds := range []int{1, 10, 60} {
		a = c.call("run_script_with_dependencies", map[string]any{"script_content": code, "python_version": "3.12", "timeout_seconds": seconds})
		if a.fields["stderr_bytes"] == size {
			break
		}
	}
	return a
}

// stdioClient speaks JSON-RPC over pipes.
type pipeClient struct {
	t     *testing.T
	in    *io.PipeWriter
	lines *bufio.Reader
	done  chan error
}

func serveStdioTest(t *testing.T, svc executor.Service, change func(*Config)) *pipeClient {
	t.Helper()
	c := testConfig(change)
	c.Stdio = true
	// As in a plugin process: a call with a ctx that has ended does not come through.
	tools, err := newTools(t.Context(), c, plugintest.WireService(t, svc), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeClient{t: t, in: inW, lines: bufio.NewReader(outR), done: make(chan error, 1)}
	go func() {
		p.done <- serveStdio(context.Background(), tools.server, inR, outW, log.New(io.Discard, "", 0))
		outW.Close()
	}()
	t.Cleanup(func() {
		inW.Close()
		go io.Copy(io.Discard, p.lines) //nolint:errcheck // so that nothing waits for a reader
		<-p.done
		tools.close(context.Background())
		outR.Close()
	})
	return p
}

func (p *pipeClient) send(message string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, message); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pipeClient) receive() map[string]any {
	p.t.Helper()
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(line, &m); err != nil {
		p.t.Fatalf("not JSON: %q", line)
	}
	return m
}
