package httpfrontend

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// padded is a JSON body of n bytes.
func padded(n int) string { return `{"code":"x"}` + strings.Repeat(" ", n-len(`{"code":"x"}`)) }

// unannounced hides how long a body is.
func unannounced(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }

func TestTheBoundOfAJSONBody(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	asJSON := []string{"Content-Type", "application/json"}
	for _, path := range []string{"/api/v1/exec/sync", "/api/v1/exec/async"} {
		if w := do(t, h, http.MethodPost, path, strings.NewReader(padded(jsonMax)), asJSON...); w.Code >= 300 {
			t.Errorf("%s: a body at the bound: %d %s", path, w.Code, w.Body)
		}
		unread := strings.NewReader(padded(jsonMax + 1))
		wantProblem(t, do(t, h, http.MethodPost, path, unread, asJSON...), 413, executor.Exhausted)
		if unread.Len() != jsonMax+1 {
			t.Errorf("%s: a body that is announced as too large was read", path)
		}
		wantProblem(t, do(t, h, http.MethodPost, path, unannounced(padded(jsonMax+1)), asJSON...), 413, executor.Exhausted)
	}
	small := handlerOf(t, hello().service(), func(o *Options) { o.MaxBodyBytes = 100 })
	wantProblem(t, do(t, small, http.MethodPost, "/api/v1/exec/sync", unannounced(padded(101)), asJSON...), 413, executor.Exhausted)
}

// useUp takes the whole budget of h and returns what gives it back.
func useUp(t *testing.T, h *frontend) (release func()) {
	t.Helper()
	share := h.buffers.Open("")
	if _, err := share.ReadAll(bytes.NewReader(make([]byte, h.opts.MaxBufferedBytes)), h.opts.MaxBufferedBytes); err != nil {
		t.Fatal(err)
	}
	return share.Release
}

func TestBodiesInMemoryShareABudget(t *testing.T) {
	t.Parallel()
	plugin, _ := mcpPlugin(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h := handlerOf(t, hello().service(), plugin, func(o *Options) { o.MaxBufferedBytes, o.MCP.MaxBodyBytes = 1<<20, 1<<20 })
	large := padded(600 << 10)
	script := `{"path":"/x"}` + strings.Repeat(" ", 600<<10)
	session := `{}` + strings.Repeat(" ", 600<<10)
	meta, metaType := form(part{"metadata", large, nil})
	for _, test := range []struct {
		path, contentType, body string
		small                   string
	}{
		{"/api/v1/exec/sync", "application/json", large, padded(100)},
		{"/api/v1/exec/async", "application/json", large, padded(100)},
		{"/api/v1/exec/sync", metaType, string(meta), ""},
		{"/api/v1/sessions", "application/json", session, "{}"},
		{"/actions/run_script", "application/json", script, `{"path":"/x"}`},
		{"/mcp", "application/json", large, "{}"},
	} {
		release := useUp(t, h)
		post := func(body io.Reader, header ...string) (int, http.Header) {
			w := do(t, h, http.MethodPost, test.path, body, append([]string{"Content-Type", test.contentType}, header...)...)
			return w.Code, w.Header()
		}
		status, header := post(unannounced(test.body))
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Errorf("%s, %s: %d, Retry-After %q", test.path, test.contentType, status, header.Get("Retry-After"))
		}
		if test.contentType == "application/json" {
			unread := strings.NewReader(test.body)
			if status, _ := post(unread, "Expect", "100-continue"); status != http.StatusServiceUnavailable || unread.Len() != len(test.body) {
				t.Errorf("%s: %d, %d bytes unread", test.path, status, unread.Len())
			}
		}
		if test.small != "" {
			if status, _ := post(strings.NewReader(test.small)); status >= 400 {
				t.Errorf("%s: a small request: %d", test.path, status)
			}
		}
		release()
		for range 5 { // each gives back what it held
			if status, _ := post(strings.NewReader(test.body)); status >= 400 {
				t.Errorf("%s, %s after a release: %d", test.path, test.contentType, status)
			}
			if test.path != "/mcp" {
				if status, _ := post(strings.NewReader(test.body[:len(test.body)-1] + "}")); status != 400 && status != 422 {
					t.Errorf("%s, %s broken: %d", test.path, test.contentType, status)
				}
			}
		}
	}
	release := useUp(t, h) // nothing is held any more
	release()
}

// What runs holds no memory of its request.
func TestARunningProgramGivesItsBodyBack(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}, executor.Started{PID: 1})
	svc := r.service()
	submitted := make(chan struct{}, 3)
	inner := svc.events
	svc.events = func(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
		submitted <- struct{}{}
		return inner(ctx, id, after)
	}
	h := handlerOf(t, svc, func(o *Options) { o.MaxBufferedBytes = 1 << 20 })
	answers := make(chan int, 3)
	for range 3 {
		go func() {
			w := do(t, h, http.MethodPost, "/api/v1/exec/sync", strings.NewReader(padded(900<<10)), "Content-Type", "application/json")
			answers <- w.Code
		}()
		select {
		case <-submitted:
		case status := <-answers:
			t.Fatalf("refused with %d while others run", status)
		}
	}
	r.add(done(0))
	for range 3 {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
}

// A body that is held in memory must come faster than one that is streamed.
func TestASlowSenderDoesNotHoldMemoryForLong(t *testing.T) {
	t.Parallel()
	b := &body{idle: uploadIdle, minRate: minRate, share: handlerOf(t, hello().service()).buffers.Open(""), announced: -1,
		rc: http.NewResponseController(nil), r: strings.NewReader("rest")}
	b.got, b.waited = 10<<20, 10*uploadIdle
	if _, err := b.whole(b, -1); err == nil {
		t.Error("it may go on")
	}
	b.waited = uploadIdle
	if _, err := b.whole(b, -1); err != nil {
		t.Error(err)
	}
}
