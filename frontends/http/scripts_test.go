package httpfrontend

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// scriptService runs one script by what a test says.
type scriptService struct {
	executor.Service
	spec   executor.Spec
	tool   string
	refuse error
	events []executor.Body
	// waiting, unless nil, is closed when all events are taken. Then nothing comes until the caller goes.
	waiting  chan struct{}
	canceled chan struct{}
}

func (s *scriptService) Scripts(context.Context) ([]executor.Script, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	return []executor.Script{{Path: "/srv/run.sh", AllowedArgs: []string{"--port"}}}, nil
}

func (s *scriptService) Submit(ctx context.Context, spec executor.Spec, _ executor.Input) (executor.Execution, error) {
	s.spec, s.tool = spec, executor.ToolFrom(ctx)
	return executor.Execution{ID: testID}, s.refuse
}

func (s *scriptService) Cancel(ctx context.Context, _ string) (executor.Execution, error) {
	if ctx.Err() == nil {
		close(s.canceled)
	}
	return executor.Execution{}, ctx.Err()
}

func (s *scriptService) Events(ctx context.Context, _ string, _ uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		for i, b := range s.events {
			if !yield(executor.Event{Seq: uint64(i) + 1, Body: b}, nil) {
				return
			}
		}
		if s.waiting != nil {
			close(s.waiting)
			<-ctx.Done()
			yield(executor.Event{}, context.Cause(ctx))
		}
	}
}

func outputs(stream executor.Stream, texts ...string) []executor.Body {
	var list []executor.Body
	offset := int64(0)
	for _, text := range texts {
		list = append(list, executor.Output{Stream: stream, Offset: offset, Data: []byte(text)})
		offset += int64(len(text))
	}
	return list
}

func scriptEnded(r executor.Result) executor.Body {
	if r.Status == executor.StatusTimedOut {
		r.Failure = r.TimedOut(executor.FieldTimeout, executor.Limits{Timeout: time.Second}) // as the engine does
	}
	return executor.Finished{Result: r}
}

func runScriptRequest(t *testing.T, s *scriptService, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	h, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAScriptIsRunWithWhatWasAsked(t *testing.T) {
	t.Parallel()
	code := 4
	s := &scriptService{events: append(append([]executor.Body{executor.Started{}}, outputs(executor.Stdout, "a\n", "b\xff")...),
		scriptEnded(executor.Result{Status: executor.StatusFailed, ExitCode: &code, Wall: 1500 * time.Millisecond, StdoutTruncated: true, LogPath: "/logs/1"}))}
	w := runScriptRequest(t, s, http.MethodPost, "/actions/run_script", `{"path":"/srv/run.sh","args":["--port",8080],"env":{"A":"b"},"timeout_ms":2500}`)
	if want := `{"exitCode":4,"duration_ms":1500,"stdout":"a\nb�","stderr":"","truncated":true,"logPath":"/logs/1"}`; w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("run_script answered %d %s, want 200 %s", w.Code, w.Body, want)
	}
	if s.spec.Script != "/srv/run.sh" || strings.Join(s.spec.Args, " ") != "--port 8080" || s.spec.Env["A"] != "b" || s.spec.Limits.Timeout != 2500*time.Millisecond {
		t.Errorf("the service was asked to run %q with %q, %q for %s, want what the request says", s.spec.Script, s.spec.Args, s.spec.Env, s.spec.Limits.Timeout)
	}
	w = runScriptRequest(t, s, http.MethodPost, "/actions/list_allowed", "")
	if want := `{"scripts":[{"path":"/srv/run.sh","allowedArgs":["--port"]}]}`; strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("list_allowed answered %d %s, want %s", w.Code, w.Body, want)
	}
}

func TestScriptErrorsHaveTheSpecificationsCodesAndAStatus(t *testing.T) {
	t.Parallel()
	failed := func(code executor.Code, phase executor.Phase, field string) []executor.Body {
		return []executor.Body{scriptEnded(executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: code, Phase: phase, Field: field, Message: "why"}})}
	}
	for name, test := range map[string]struct {
		service scriptService
		body    string
		status  int
		code    string
	}{
		"a body that is none":        {scriptService{}, `{`, 400, "E_BAD_ARG"},
		"an unknown member":          {scriptService{}, `{"path":"/x","shell":true}`, 400, "E_BAD_ARG"},
		"an argument that is a list": {scriptService{}, `{"path":"/x","args":[[]]}`, 400, "E_BAD_ARG"},
		"no path":                    {scriptService{}, `{}`, 400, "E_BAD_ARG"},
		"a negative time":            {scriptService{}, `{"path":"/x","timeout_ms":-1}`, 400, "E_BAD_ARG"},
		"a time beyond all times":    {scriptService{}, `{"path":"/x","timeout_ms":9223372036854775807}`, 400, "E_BAD_ARG"},
		"a scope that is missing":    {scriptService{refuse: executor.FieldErrorf(executor.Denied, "script", "needs the scope")}, `{"path":"/x"}`, 403, "E_FORBIDDEN"},
		"a script not on the list":   {scriptService{events: failed(executor.Denied, executor.PhasePrepare, "script")}, `{"path":"/x"}`, 403, "E_FORBIDDEN"},
		"a script out of the root":   {scriptService{events: failed(executor.Invalid, executor.PhasePrepare, "script")}, `{"path":"/x"}`, 403, "E_POLICY"},
		"a flag not on the list":     {scriptService{events: failed(executor.Invalid, executor.PhasePrepare, "args[0]")}, `{"path":"/x"}`, 400, "E_BAD_ARG"},
		"a file that is no program":  {scriptService{events: failed(executor.Invalid, executor.PhaseStart, "")}, `{"path":"/x"}`, 422, "E_EXEC"},
		"a timeout":                  {scriptService{events: []executor.Body{executor.Started{}, scriptEnded(executor.Result{Status: executor.StatusTimedOut})}}, `{"path":"/x"}`, 408, "E_TIMEOUT"},
	} {
		w := runScriptRequest(t, &test.service, http.MethodPost, "/actions/run_script", test.body)
		if w.Code != test.status || !strings.Contains(w.Body.String(), `{"error":{"code":"`+test.code+`","message":"`) {
			t.Errorf("%s: the answer is %d %s, want %d with the code %s", name, w.Code, w.Body, test.status, test.code)
		}
	}
	for body, says := range map[string]string{
		`[]`:                               "the body must be an object (got array)",
		`{"path":5}`:                       "path must be text (got number)",
		`{"path":"/x","args":"--port"}`:    "the body: args must be a list of texts or numbers (got a string)",
		`{"path":"/x","env":{"A":5}}`:      "env must be an object of texts (got number)",
		`{"path":"/x","timeout_ms":"5"}`:   "the body: timeout_ms must be a whole number, at most 4294967296000 (got a string)",
		`{"path":"/x","timeout_ms":1.5}`:   "the body: timeout_ms must be a whole number, at most 4294967296000 (got a number)",
		`{"path":"/x","timeout_ms":1e300}`: "the body: timeout_ms must be a whole number, at most 4294967296000 (got a number)",
		`{"path":"/x"}{}`:                  "the body: must end after the value",
		`{"path":"/x","x":1}`:              "the body: x: unknown field: must be one of path, args, env, timeout_ms",
		`{"path":"/x","timeout":1}`:        "the body: timeout: unknown field: did you mean timeout_ms?",
		`{"path":"/\ud800"}`:               "path: must not have half of a surrogate pair",
		`{"path":"/x","args":["\udc00"]}`:  "args: must not have half of a surrogate pair",
		"{\"path\":\"/x\xe9\"}":            "path: must be UTF-8",
	} {
		if w := runScriptRequest(t, &scriptService{}, http.MethodPost, "/actions/run_script", body); w.Code != 400 || !strings.Contains(w.Body.String(), `"message":"`+says+`"`) {
			t.Errorf("the body %s: the answer is %d %s, want 400 with the message %s", body, w.Code, w.Body, says)
		}
	}
	slow := &scriptService{events: append(append(append([]executor.Body{executor.Started{}}, outputs(executor.Stdout, "begun\n")...), outputs(executor.Stderr, "oh\n")...),
		scriptEnded(executor.Result{Status: executor.StatusTimedOut, Signal: "SIGTERM", Wall: time.Second, LogPath: "/logs/1"}))}
	w := runScriptRequest(t, slow, http.MethodPost, "/actions/run_script", `{"path":"/x"}`)
	if want := `{"error":{"code":"E_TIMEOUT","message":"the script was killed after 1000 ms"},"exitCode":-15,"duration_ms":1000,"stdout":"begun\n","stderr":"oh\n","truncated":false,"logPath":"/logs/1"}`; w.Code != 408 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("a timeout answers %d %s, want 408 %s", w.Code, w.Body, want)
	}
	w = runScriptRequest(t, slow, http.MethodGet, "/sse/run_script_stream?path=/x", "")
	if want := `event: error
data: {"code":"E_TIMEOUT","duration_ms":1000,"exitCode":-15,"logPath":"/logs/1","message":"the script was killed after 1000 ms","truncated":false}
`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("a timeout ends a stream with %s, want %s", w.Body, want)
	}
	long := &scriptService{refuse: executor.FieldErrorf(executor.Invalid, "config.timeout_seconds", "must be at most 60 s (got 90 s)")}
	if w := runScriptRequest(t, long, http.MethodPost, "/actions/run_script", `{"path":"/x","timeout_ms":90000.0}`); !strings.Contains(w.Body.String(), `"timeout_ms: must be at most 60 s (got 90 s)"`) {
		t.Errorf("a field that the service refuses has the name of the request: %d %s, want timeout_ms", w.Code, w.Body)
	}
	killed := &scriptService{events: []executor.Body{executor.Started{}, scriptEnded(executor.Result{Status: executor.StatusFailed, Signal: "SIGKILL"})}}
	if w := runScriptRequest(t, killed, http.MethodPost, "/actions/run_script", `{"path":"/x"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"exitCode":-9,`) {
		t.Errorf("a script that SIGKILL ended: %d %s, want 200 with the exit code -9", w.Code, w.Body)
	}
	full := &scriptService{refuse: executor.Errorf(executor.Exhausted, "full")}
	if w := runScriptRequest(t, full, http.MethodPost, "/actions/run_script", `{"path":"/x"}`); w.Code != 429 || !strings.Contains(w.Header().Get("Content-Type"), "problem+json") {
		t.Errorf("an error without a code in the specification: %d %s, want 429 as a problem", w.Code, w.Body)
	}
}

func TestABodyOfAScriptThatDoesNotComeMayBeSentAgain(t *testing.T) {
	t.Parallel()
	h, err := New(&scriptService{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := do(t, h, http.MethodPost, "/actions/run_script", iotest.ErrReader(os.ErrDeadlineExceeded))
	wantProblem(t, w, http.StatusRequestTimeout, executor.Unavailable)
}

func TestAScriptsLinesAreStreamed(t *testing.T) {
	t.Parallel()
	zero := 0
	s := &scriptService{events: append(append(append([]executor.Body{executor.Queued{}, executor.Started{}}, outputs(executor.Stdout, "on", "e\ntwo\r\nthr", "ee")...),
		outputs(executor.Stderr, "oh\n")...), scriptEnded(executor.Result{Status: executor.StatusSucceeded, ExitCode: &zero, Wall: time.Second}))}
	w := runScriptRequest(t, s, http.MethodGet, `/sse/run_script_stream?path=/srv/run.sh&args=--port&args=1&timeout_ms=500`, "")
	got := w.Body.String()
	_, lines, ok := strings.Cut(got, "\n\n")
	want := `event: stdout
data: {"line":"one"}

event: stdout
data: {"line":"two"}

event: stderr
data: {"line":"oh"}

event: stdout
data: {"line":"three"}

event: end
data: {"duration_ms":1000,"exitCode":0,"truncated":false}

`
	if w.Code != 200 || !strings.HasPrefix(got, "event: ping\ndata: {\"t\":") || !ok || lines != want || w.Header().Get("Content-Type") != "text/event-stream" || w.Header().Get("X-Accel-Buffering") != "no" {
		t.Errorf("the stream is %d %s\nwant 200, a ping, and then\n%s", w.Code, got, want)
	}
	if s.tool != "run_script_stream" {
		t.Errorf("the tool is %q, want run_script_stream", s.tool)
	}
	if strings.Join(s.spec.Args, " ") != "--port 1" || s.spec.Limits.Timeout != 500*time.Millisecond {
		t.Errorf("args=--port&args=1&timeout_ms=500 became %q for %s", s.spec.Args, s.spec.Limits.Timeout)
	}
	runScriptRequest(t, s, http.MethodGet, `/sse/run_script_stream?path=/srv/run.sh&args=["--port",2]`, "")
	if strings.Join(s.spec.Args, " ") != "--port 2" {
		t.Errorf(`args=["--port",2] became %q`, s.spec.Args)
	}
	for query, status := range map[string]int{"": 400, "?path=/x&timeout_ms=soon": 400, "?path=/x&timeout_ms=0": 400, "?path=/x&args=[1": 400, `?path=/x&args=["\ud800"]`: 400, `?path=/x&args=["%ff"]`: 400} {
		if w := runScriptRequest(t, s, http.MethodGet, "/sse/run_script_stream"+query, ""); w.Code != status {
			t.Errorf("the query %q: the answer is %d %s, want %d", query, w.Code, w.Body, status)
		}
	}
	s.spec = executor.Spec{}
	for target, says := range map[string]string{
		"GET /sse/run_script_stream?path=/x&tmeout_ms=4": "tmeout_ms: unknown parameter: did you mean timeout_ms?",
		"GET /sse/run_script_stream?path=/x&%zz":         "the query cannot be read",
		"POST /actions/run_script?timeout_ms=4":          "timeout_ms: unknown parameter: there is none here",
		"POST /actions/list_allowed?x=1":                 "x: unknown parameter: there is none here",
	} {
		method, path, _ := strings.Cut(target, " ")
		if w := runScriptRequest(t, s, method, path, `{"path":"/x"}`); w.Code != 400 || !strings.Contains(w.Body.String(), `{"error":{"code":"E_BAD_ARG","message":"`+says) || s.spec.Script != "" {
			t.Errorf("%s: the answer is %d %s, want 400 %s", target, w.Code, w.Body, says)
		}
	}
	// Before it has started an error is a status, behind that an event.
	refused := executor.Failure{Code: executor.Denied, Phase: executor.PhasePrepare, Field: "script", Message: "no"}
	s = &scriptService{events: []executor.Body{scriptEnded(executor.Result{Status: executor.StatusFailed, Failure: &refused})}}
	if w := runScriptRequest(t, s, http.MethodGet, "/sse/run_script_stream?path=/x", ""); w.Code != 403 {
		t.Errorf("a script that is refused before it starts: %d %s, want 403", w.Code, w.Body)
	}
	s = &scriptService{events: []executor.Body{executor.Started{}, scriptEnded(executor.Result{Status: executor.StatusTimedOut})}}
	if w := runScriptRequest(t, s, http.MethodGet, "/sse/run_script_stream?path=/x", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "event: error\ndata: {\"code\":\"E_TIMEOUT\"") {
		t.Errorf("a script that times out after it has started: %d %s, want 200 and the event error with E_TIMEOUT", w.Code, w.Body)
	}
}

func TestACallerOfAScriptThatGoesAwayEndsIt(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/sse/run_script_stream?path=/x", "/actions/run_script"} {
		s := &scriptService{events: []executor.Body{executor.Started{}}, waiting: make(chan struct{}), canceled: make(chan struct{})}
		h, err := New(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(h)
		ctx, cancel := context.WithCancelCause(t.Context())
		method, body := http.MethodGet, ""
		if strings.HasPrefix(target, "/actions") {
			method, body = http.MethodPost, `{"path":"/x"}`
		}
		r, err := http.NewRequestWithContext(ctx, method, server.URL+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if resp, err := server.Client().Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		awaittest.Closed(t, "the script runs", s.waiting)
		cancel(nil)
		awaittest.Closed(t, "the script is cancelled", s.canceled)
		server.Close()
	}
}

// brokenWriter is a client that has gone before its request's ctx knows.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAScriptWhoseLinesNobodyTakesIsEnded(t *testing.T) {
	t.Parallel()
	s := &scriptService{events: append([]executor.Body{executor.Started{}}, outputs(executor.Stdout, "a\n")...), canceled: make(chan struct{})}
	h, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/sse/run_script_stream?path=/x", nil)
	r.Host = "localhost"
	h.ServeHTTP(brokenWriter{httptest.NewRecorder()}, r)
	select {
	case <-s.canceled:
	default:
		t.Error("it runs on for nobody")
	}
}

func TestAPageOfAnotherOriginCannotHaveAScriptRun(t *testing.T) {
	t.Parallel()
	// An image's request has a Sec-Fetch-Site and no Origin.
	for _, test := range []struct {
		site, origin []string
		ok           bool
	}{
		{nil, nil, true},
		{[]string{"same-origin"}, nil, true},
		{[]string{"same-origin"}, []string{"http://localhost"}, true},
		{nil, []string{"http://localhost"}, false},
		{nil, []string{"http://evil.example"}, false},
		{[]string{"same-origin"}, []string{"http://evil.example"}, false},
		{[]string{"cross-site"}, nil, false},
		{[]string{"same-site"}, nil, false},
		{[]string{"none"}, nil, false},
		{[]string{"none"}, []string{"http://localhost"}, false},
		{[]string{"Same-Origin"}, nil, false},
		{[]string{""}, nil, false},
		{[]string{"same-origin", "cross-site"}, nil, false},
		{[]string{"cross-site", "same-origin"}, nil, false},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			s := &scriptService{events: []executor.Body{executor.Started{}, scriptEnded(executor.Result{Status: executor.StatusSucceeded})}}
			h, err := New(s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(method, "/sse/run_script_stream?path=/x", nil)
			r.Host = "localhost"
			r.Header["Sec-Fetch-Site"], r.Header["Origin"] = test.site, test.origin
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if ran := s.spec.Script != ""; ran != test.ok && method == http.MethodGet || ran && !test.ok || (w.Code == http.StatusForbidden) == ran {
				t.Errorf("%s, Sec-Fetch-Site %q, Origin %q: %d, ran: %t", method, test.site, test.origin, w.Code, ran)
			}
		}
	}
}
