package httpfrontend

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// mcpPlugin is a plugin's socket that handler serves; asked counts how often it was asked for.
func mcpPlugin(t *testing.T, handler http.HandlerFunc) (change func(*Options), asked *atomic.Int32) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcp") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	asked = &atomic.Int32{}
	return func(o *Options) {
		o.MCP = &MCP{Path: "/mcp", PrincipalHeader: "X-Principal", MaxBodyBytes: 1000, Socket: func(context.Context) string {
			asked.Add(1)
			return socket
		}}
	}, asked
}

// hastyBody is a request's body as net/http has it, at its worst: whoever looks behind its end once the message was passed
// on is kept until the answer has begun, and finds it closed.
type hastyBody struct {
	message  io.Reader
	passedOn *atomic.Int32
	late     atomic.Bool // it is read while it is passed on
	answered chan struct{}
	closed   func()
}

func (b *hastyBody) Read(p []byte) (int, error) {
	if b.passedOn.Load() > 0 {
		b.late.Store(true)
	}
	n, err := b.message.Read(p)
	if n > 0 || !b.late.Load() {
		return n, err
	}
	<-b.answered
	b.closed()
	return 0, http.ErrBodyReadAfterClose
}

func (b *hastyBody) Close() error { return nil }

// beginning tells when the answer begins.
type beginning struct {
	*httptest.ResponseRecorder
	begun func()
}

func (b beginning) WriteHeader(status int) {
	b.ResponseRecorder.WriteHeader(status)
	b.begun()
}

func TestAnAnswerOfMCPIsNotLostWhenItsFirstEventComesAtOnce(t *testing.T) {
	t.Parallel()
	closed, answered := make(chan struct{}), make(chan struct{})
	body := &hastyBody{message: strings.NewReader("message"), answered: answered, closed: sync.OnceFunc(func() { close(closed) })}
	plugin, asked := mcpPlugin(t, func(w http.ResponseWriter, r *http.Request) {
		message, _ := io.ReadAll(io.LimitReader(r.Body, r.ContentLength))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: progress\n\n")
		_ = http.NewResponseController(w).Flush()
		if body.late.Load() {
			<-closed
			<-r.Context().Done() // the connection is gone
		}
		_, _ = io.WriteString(w, "data: "+string(message)+"\n\n")
	})
	body.passedOn = asked
	h := handlerOf(t, hello().service(), plugin)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	r.Host = "127.0.0.1:8080"
	r.Body, r.ContentLength = body, 7
	w := beginning{httptest.NewRecorder(), sync.OnceFunc(func() { close(answered) })}
	h.ServeHTTP(w, r)
	if w.Code != 200 || w.Body.String() != "data: progress\n\ndata: message\n\n" {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
}

func TestTheMountOfMCP(t *testing.T) {
	t.Parallel()
	plugin, asked := mcpPlugin(t, func(w http.ResponseWriter, r *http.Request) {
		message, _ := io.ReadAll(r.Body)
		var p executor.Principal
		if err := json.Unmarshal([]byte(r.Header.Get("X-Principal")), &p); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"Authorization", "Cookie", "Origin"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s is passed on", name)
			}
		}
		if !r.Close || r.Host != "127.0.0.1:8080" {
			t.Errorf("the connection is kept: %t; the host is %q", !r.Close, r.Host)
		}
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+p.Owner+" "+string(message))
	})
	h := handlerOf(t, hello().service(), withTokens(t), plugin)
	ann := []string{"Authorization", "Bearer ann-token", "Cookie", "a=b", "Origin", "http://127.0.0.1:8080", "X-Principal", `{"Owner":"root"}`}
	if w := do(t, h, http.MethodPost, "/mcp", strings.NewReader("hello"), ann...); w.Code != http.StatusTeapot || w.Body.String() != "POST /mcp ann hello" ||
		len(w.Header().Values("Cache-Control")) != 1 || len(w.Header().Values("X-Content-Type-Options")) != 1 {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	if w := do(t, h, http.MethodDelete, "/mcp", nil, ann...); w.Body.String() != "DELETE /mcp ann " {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	before := asked.Load()
	wantProblem(t, do(t, h, http.MethodPost, "/mcp", strings.NewReader("hello")), 401, executor.Unauthenticated)
	large := strings.NewReader(strings.Repeat("x", 1001))
	wantProblem(t, do(t, h, http.MethodPost, "/mcp", large, ann...), 413, executor.Exhausted)
	if large.Len() != 0 {
		t.Error("a client that sends everything first does not get to see the answer")
	}
	// One that does not say how long it is.
	wantProblem(t, do(t, h, http.MethodPost, "/mcp", io.MultiReader(strings.NewReader(strings.Repeat("x", 1001))), ann...), 413, executor.Exhausted)
	if asked.Load() != before {
		t.Error("what is refused is passed on")
	}
	gone := handlerOf(t, hello().service(), func(o *Options) {
		o.MCP = &MCP{Path: "/mcp", Socket: func(context.Context) string { return "/nowhere" }}
	})
	wantProblem(t, do(t, gone, http.MethodPost, "/mcp", strings.NewReader("{}")), 503, executor.Unavailable)
}

func TestARequestBeforeMCPIsUpIsAnsweredWhenItIs(t *testing.T) {
	t.Parallel()
	plugin, _ := mcpPlugin(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	asked, up := make(chan struct{}), make(chan struct{})
	h := handlerOf(t, hello().service(), plugin, func(o *Options) {
		socket := o.MCP.Socket
		o.MCP.Socket = func(ctx context.Context) string {
			close(asked)
			<-up
			return socket(ctx)
		}
	})
	status := make(chan int, 1)
	go func() { status <- do(t, h, http.MethodPost, "/mcp", strings.NewReader("{}")).Code }()
	awaittest.Closed(t, "the request waits", asked)
	close(up)
	if got := awaittest.Recv(t, "the call ends", status); got != http.StatusTeapot {
		t.Error(got)
	}
}

func TestARequestDoesNotWaitLongForMCP(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := handlerOf(t, hello().service(), func(o *Options) {
			o.MCP = &MCP{Path: "/mcp", Socket: func(ctx context.Context) string {
				<-ctx.Done()
				return ""
			}}
		})
		began := time.Now()
		w := do(t, h, http.MethodPost, "/mcp", strings.NewReader("{}"))
		if p := wantProblem(t, w, 503, executor.Unavailable); p["detail"] != "the MCP frontend is being started" || w.Header().Get("Retry-After") != "2" {
			t.Error(p, w.Header())
		}
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("a request waits for %s", waited)
		}
	})
}

func TestACallOfMCPGivesItsMessageBack(t *testing.T) {
	t.Parallel()
	passedOn, answer := make(chan struct{}), make(chan struct{})
	plugin, _ := mcpPlugin(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(passedOn)
		<-answer
	})
	const budget = 1 << 20
	h := handlerOf(t, hello().service(), plugin, func(o *Options) { o.MaxBufferedBytes, o.MCP.MaxBodyBytes = budget, budget })
	status := make(chan int, 1)
	go func() { status <- do(t, h, http.MethodPost, "/mcp", strings.NewReader(padded(600<<10))).Code }()
	defer func() {
		close(answer)
		awaittest.Closed(t, "the call ends", status)
	}()
	awaittest.Closed(t, "the message is passed on", passedOn)
	awaittest.UntilNil(t, "the release of the message's memory", func() error {
		all := h.buffers.Open("")
		defer all.Release()
		_, err := all.ReadAll(strings.NewReader(padded(budget)), budget)
		return err
	})
}

func TestThePageOfMCPProposesTheConfiguredPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/mcp": `value="/mcp"`, "/other": `value="/other"`, `/a"b`: `value="/a&#34;b"`} {
		h, err := New(&scriptService{}, Options{MCP: &MCP{Path: path, Socket: func(context.Context) string { return "" }}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/mcp_ui", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `id="endpoint" `+want) {
			t.Errorf("the page with %s: %d %s", path, w.Code, w.Body)
		}
	}
}
