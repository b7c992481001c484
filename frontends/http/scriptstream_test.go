package httpfrontend

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestEitherStreamOfAScriptMayBeTruncated(t *testing.T) {
	t.Parallel()
	for _, r := range []executor.Result{{StdoutTruncated: true}, {StderrTruncated: true}, {}} {
		want := r.StdoutTruncated || r.StderrTruncated
		if got, err := scriptEnd(r, 0); err != nil || got.Truncated != want {
			t.Errorf("%+v: truncated is %t, %v, want %t", r, got.Truncated, err, want)
		}
	}
}

func TestTheBoundOfAScriptsBody(t *testing.T) {
	t.Parallel()
	for size, status := range map[int]int{maxScriptBody: 200, maxScriptBody + 1: 400} {
		s := &scriptService{events: []executor.Body{executor.Started{}, scriptEnded(executor.Result{Status: executor.StatusSucceeded})}}
		body := `{"path":"/x"}`
		h, err := New(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := do(t, h, http.MethodPost, "/actions/run_script", unannounced(body+strings.Repeat(" ", size-len(body))))
		if w.Code != status {
			t.Errorf("a body of %d bytes: status %d, want %d: %s", size, w.Code, status, w.Body)
		}
	}
}

func TestAConnectionWhoseBodyIsNotReadIsClosed(t *testing.T) {
	t.Parallel()
	h, err := New(&scriptService{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	// The specification's 400, and not our 413, which asks for the end of the connection by itself.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/actions/run_script", unannounced(strings.Repeat(" ", maxScriptBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || !res.Close {
		t.Errorf("status %d, the connection is closed: %t", res.StatusCode, res.Close)
	}
}

func TestWhatAScriptHasWrittenComesBeforeItsError(t *testing.T) {
	t.Parallel()
	s := &scriptService{events: append(append([]executor.Body{executor.Started{}}, outputs(executor.Stdout, "no line break")...),
		scriptEnded(executor.Result{Status: executor.StatusTimedOut}))}
	w := runScriptRequest(t, s, http.MethodGet, "/sse/run_script_stream?path=/x", "")
	if _, rest, ok := strings.Cut(w.Body.String(), "event: stdout\ndata: {\"line\":\"no line break\"}\n\n"); !ok || !strings.HasPrefix(rest, "event: error\n") {
		t.Errorf("the last line and then the error are missing: %s", w.Body)
	}
}

func TestALineOfAScriptThatDoesNotEndIsCut(t *testing.T) {
	t.Parallel()
	var lines int
	s := &scriptStream{eventStream: newEventStream(httptest.NewRecorder())}
	for range 10 {
		if err := s.lines(out(executor.Stdout, 0, strings.Repeat("x", maxPartLine/4))); err != nil {
			t.Fatal(err)
		}
		if held := len(s.part[executor.Stdout]); held >= maxPartLine {
			t.Fatalf("%d bytes are held", held)
		}
	}
	w, _ := s.w.(*httptest.ResponseRecorder)
	if lines = strings.Count(w.Body.String(), "event: stdout"); lines != 2 {
		t.Errorf("%d lines, want 2", lines)
	}
}

func TestAScriptThatWaitsForLongCanStillBeRefusedWithAStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := streaming(t, func(_ context.Context, yield func(executor.Body) bool) error {
			time.Sleep(10 * heartbeat)
			refused := executor.Failure{Code: executor.Denied, Phase: executor.PhasePrepare, Field: "script", Message: "no"}
			yield(scriptEnded(executor.Result{Status: executor.StatusFailed, Failure: &refused}))
			return nil
		})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newGet(t, t.Context(), "/sse/run_script_stream?path=/x"))
		if w.Code != http.StatusForbidden {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func TestTheOutputThatIsCapturedIsBounded(t *testing.T) {
	t.Parallel()
	shown := func(n int) executor.Body {
		return executor.Display{Data: map[string][]byte{"text/plain": make([]byte, n)}}
	}
	for name, tt := range map[string]struct {
		events []executor.Body
		over   bool
	}{
		"as much as it may be of each": {[]executor.Body{out(executor.Stdout, 0, strings.Repeat("x", captureMax)), out(executor.Stderr, 0, strings.Repeat("x", captureMax)), shown(captureMax)}, false},
		"more stdout":                  {[]executor.Body{out(executor.Stdout, 0, strings.Repeat("x", captureMax)), out(executor.Stdout, captureMax, "x")}, true},
		"more stderr, and then little": {[]executor.Body{out(executor.Stderr, 0, strings.Repeat("x", captureMax+1)), out(executor.Stderr, 0, "x")}, true},
		"more displays":                {[]executor.Body{shown(captureMax), shown(1), shown(1)}, true},
	} {
		var c capture
		for i, b := range tt.events {
			c.add(executor.Event{Seq: uint64(i) + 1, Body: b})
		}
		if c.over != tt.over || c.over && len(c.stdout)+len(c.stderr)+len(c.shown) > 0 {
			t.Errorf("%s: over is %t, want %t; %d, %d and %d are kept", name, c.over, tt.over, len(c.stdout), len(c.stderr), len(c.shown))
		}
	}
}

func TestALogThatEndsWithItsReaderIsNotTheWhole(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	h := streaming(t, func(_ context.Context, yield func(executor.Body) bool) error {
		cancel(nil)
		return nil
	})
	w := httptest.NewRecorder()
	if wasCut := ends(h, w, newGet(t, ctx, one)); !wasCut && w.Code == http.StatusOK {
		t.Errorf("it looks whole: %s", w.Body)
	}
}

func TestAValueBeyondTheRealMaximumNamesThatMaximum(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ field, value, says string }{
		{"memory_mb", "4398046511105", "must be at most 65536 (got 4398046511105)"},
		{"memory_mb", "1e300", "must be at most 65536 (got 1e300)"},
		{"memory_mb", "1e999", "must be at most 65536 (got 1e999)"},
		{"memory_mb", "0", "must be at least 1 and at most 65536 (got 0)"},
		{"disk_mb", "9223372036854775807", "must be at most 65536 (got 9223372036854775807)"},
		{"cpu_shares", "9007199254740994.0", "must be at most 262144 (got 9007199254740994.0)"},
		{"pids", "1e300", "must be at most 4096 (got 1e300)"},
		{"pids", "-1e300", "must be at least 1 and at most 4096 (got -1e300)"},
		{"output_bytes", "4398046511105", "must be at most 1073741824 (got 4398046511105)"},
		{"timeout_seconds", "4294967297", "must be at most 86400 (got 4.294967297e+09)"},
		{"timeout_seconds", "-1", "must be at least 0 and at most 86400 (got -1)"},
		{"kill_grace_seconds", "1e999", "must be at most 60 (got 1e999)"},
	} {
		body := fmt.Sprintf(`{"code":"x","config":{%q:%s}}`, c.field, c.value)
		w := postJSON(t, handlerOf(t, hello().service()), "/api/v1/exec/sync", body)
		if wantProblem(t, w, 422, executor.Invalid, "config."+c.field); !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s of %s: %s, want %q", c.field, c.value, w.Body, c.says)
		}
	}
	h, err := New(hello().service(), Options{Limits: LimitRange{Max: executor.Limits{MemoryBytes: 512 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	if w := postJSON(t, h, "/api/v1/exec/sync", `{"code":"x","config":{"memory_mb":4398046511105}}`); !strings.Contains(w.Body.String(), "must be at most 512 (got 4398046511105)") {
		t.Errorf("with a maximum of its own: %s", w.Body)
	}
}
