package httpfrontend

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const testID = "exe_01j9zq3k5h8v6t2m4n7p0r1s3w"

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// stub is a Service whose answers a test writes; its Sessions are in memory. What it does not write panics.
type stub struct {
	*memorySessions
	submit    func(context.Context, executor.Spec, executor.Input) (executor.Execution, error)
	get       func(context.Context, string) (executor.Execution, error)
	list      func(context.Context, executor.Filter) ([]executor.Execution, error)
	cancel    func(context.Context, string) (executor.Execution, error)
	events    func(context.Context, string, uint64) iter.Seq2[executor.Event, error]
	artifacts func(context.Context, string) (io.ReadCloser, error)
	backends  func(context.Context) ([]executor.Info, error)
}

func (s *stub) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	return s.submit(ctx, spec, in)
}
func (s *stub) Get(ctx context.Context, id string) (executor.Execution, error) { return s.get(ctx, id) }
func (s *stub) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	return s.list(ctx, f)
}
func (s *stub) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	return s.cancel(ctx, id)
}
func (s *stub) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return s.events(ctx, id, after)
}
func (s *stub) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	return s.artifacts(ctx, id)
}
func (s *stub) Backends(ctx context.Context) ([]executor.Info, error) { return s.backends(ctx) }
func (s *stub) Scripts(context.Context) ([]executor.Script, error) {
	return nil, executor.Errorf(executor.Unimplemented, "no scripts")
}

// admitting is a stub that is also an Admitter.
type admitting struct {
	*stub
	admit func(context.Context) error
}

func (a admitting) Admit(ctx context.Context) error { return a.admit(ctx) }

// run is an Execution in memory: what a stub's Submit starts.
type run struct {
	mu     sync.Mutex
	rec    executor.Record
	log    []executor.Event
	change chan struct{}
}

func newRun() *run {
	return &run{change: make(chan struct{}), rec: executor.Record{Execution: executor.Execution{ID: testID, Owner: executor.LocalOwner,
		Status: executor.StatusQueued, Backend: "fake", CreatedAt: t0}}}
}

// add appends Events as a Store does.
func (r *run) add(bodies ...executor.Body) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range bodies {
		e := executor.Event{Seq: uint64(len(r.log)) + 1, Time: t0.Add(time.Duration(len(r.log)+1) * time.Second), Body: b}
		if _, ok := b.(executor.Started); ok {
			r.rec.Attempts++
		}
		r.log = append(r.log, e)
		r.rec.Apply(e)
	}
	close(r.change)
	r.change = make(chan struct{})
	return r
}

func (r *run) state() executor.Execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rec.Execution
}

func (r *run) next(after uint64) (events []executor.Event, ended bool, change chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if after < uint64(len(r.log)) {
		events = r.log[after:]
	}
	return events, r.rec.Status.Terminal(), r.change
}

// follow is Events over the run.
func (r *run) follow(ctx context.Context, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		for {
			events, ended, change := r.next(after)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if ended {
				return
			}
			select {
			case <-ctx.Done():
				yield(executor.Event{}, context.Cause(ctx))
				return
			case <-change:
			}
		}
	}
}

// service is a stub that has this run and no other.
func (r *run) service() *stub {
	one := func(id string) error {
		if id != testID {
			return executor.Errorf(executor.NotFound, "execution %s", id)
		}
		return nil
	}
	return &stub{
		memorySessions: newMemorySessions(),
		submit: func(_ context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
			r.mu.Lock()
			r.rec.Spec = spec
			r.mu.Unlock()
			if err := consume(in); err != nil {
				return executor.Execution{}, err
			}
			return r.state(), nil
		},
		get:    func(_ context.Context, id string) (executor.Execution, error) { return r.state(), one(id) },
		cancel: func(_ context.Context, id string) (executor.Execution, error) { return r.state(), one(id) },
		list: func(context.Context, executor.Filter) ([]executor.Execution, error) {
			return []executor.Execution{r.state()}, nil
		},
		events: func(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
			if err := one(id); err != nil {
				return func(yield func(executor.Event, error) bool) { yield(executor.Event{}, err) }
			}
			return r.follow(ctx, after)
		},
		artifacts: func(_ context.Context, id string) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(tarOf("out/a.html", "<b>a</b>", "b.txt", "bb"))), one(id)
		},
		backends: func(context.Context) ([]executor.Info, error) {
			return []executor.Info{{Name: "uv", Type: "uv", Healthy: true}}, nil
		},
	}
}

// consume reads an Input as a backend does: the workspace, then stdin.
func consume(in executor.Input) error {
	for _, s := range []*executor.Source{in.Workspace, in.Stdin} {
		if _, err := readSource(s); err != nil {
			return err
		}
	}
	return nil
}

func readSource(s *executor.Source) (string, error) {
	if s == nil {
		return "", nil
	}
	r, err := s.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// done is a Finished with a program's exit code.
func done(code int, change ...func(*executor.Result)) executor.Finished {
	r := executor.Result{Status: executor.StatusSucceeded, ExitCode: &code, Wall: 25 * time.Millisecond, CPU: 10 * time.Millisecond, PeakMemoryBytes: 9 << 20, PeakResidentBytes: 14 << 20, PythonVersion: "3.12.1"}
	if code != 0 {
		r.Status = executor.StatusFailed
	}
	for _, c := range change {
		c(&r)
	}
	return executor.Finished{Result: r}
}

func failed(phase executor.Phase, code executor.Code, field string) executor.Finished {
	return executor.Finished{Result: executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: code, Phase: phase, Message: "it is bad", Field: field}}}
}

func out(s executor.Stream, offset int64, data string) executor.Output {
	return executor.Output{Stream: s, Offset: offset, Data: []byte(data)}
}

// hello is a run that has printed and ended.
func hello() *run {
	return newRun().add(executor.Queued{}, executor.Started{PID: 42, PythonVersion: "3.12.1", Handle: []byte("secret")},
		out(executor.Stdout, 0, "hello\n"), out(executor.Stderr, 0, "warn\n"), done(0, func(r *executor.Result) { r.StdoutBytes, r.StderrBytes = 6, 5 }))
}

// tarOf makes a tar of name, content pairs.
func tarOf(pairs ...string) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(pairs); i += 2 {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1]))})
		_, _ = io.WriteString(w, pairs[i+1])
	}
	_ = w.Close()
	return buf.Bytes()
}

// part is one part of a multipart body.
type part struct {
	name, data string
	header     textproto.MIMEHeader
}

// form makes a multipart body.
func form(parts ...part) (body []byte, contentType string) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		for k, v := range p.header {
			h[k] = v
		}
		h.Set("Content-Disposition", `form-data; name="`+p.name+`"; filename="f"`)
		if p.name == "metadata" {
			h.Set("Content-Disposition", `form-data; name="metadata"`)
		}
		pw, _ := w.CreatePart(h)
		_, _ = io.WriteString(pw, p.data)
	}
	_ = w.Close()
	return buf.Bytes(), w.FormDataContentType()
}

func handlerOf(t *testing.T, svc executor.Service, change ...func(*Options)) *frontend {
	t.Helper()
	o := Options{Version: "1.2.3", SpoolDir: t.TempDir()}
	for _, c := range change {
		c(&o)
	}
	f, err := newFrontend(svc, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// do sends a request to a handler without a network.
func do(t *testing.T, h http.Handler, method, target string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	r.Host = "127.0.0.1:8080"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func postForm(t *testing.T, h http.Handler, target string, parts ...part) *httptest.ResponseRecorder {
	t.Helper()
	body, contentType := form(parts...)
	return do(t, h, http.MethodPost, target, bytes.NewReader(body), "Content-Type", contentType)
}

func postJSON(t *testing.T, h http.Handler, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	return do(t, h, http.MethodPost, target, strings.NewReader(body), "Content-Type", "application/json")
}

func decode(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %.200q", err, data)
	}
	return v
}

// wantProblem checks an error's form and that it names fields.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code executor.Code, fields ...string) map[string]any {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("content type %q: %s", got, w.Body)
	}
	p := decode(t, w.Body.Bytes())
	if p["code"] != string(code) || p["status"] != float64(status) || p["type"] != "about:blank" || p["title"] != http.StatusText(status) || p["detail"] == "" {
		t.Fatalf("problem %v", p)
	}
	if p["request_id"] != w.Header().Get("X-Request-Id") || p["request_id"] == "" {
		t.Fatalf("request id %v, header %q", p["request_id"], w.Header().Get("X-Request-Id"))
	}
	if retry := w.Header().Get("Retry-After"); (status == 429 || status == 503) != (retry != "") {
		t.Fatalf("status %d with Retry-After %q", status, retry)
	}
	if status == http.StatusRequestEntityTooLarge || status == http.StatusRequestTimeout {
		if w.Header().Get("Connection") != "close" {
			t.Errorf("status %d without Connection: close: the rest of the body would be read", status)
		}
	}
	if len(fields) == 0 {
		return p
	}
	errs, _ := p["errors"].([]any)
	named := map[string]bool{}
	for _, e := range errs {
		m, _ := e.(map[string]any)
		name, _ := m["field"].(string)
		named[name] = true
		if loc, _ := m["location"].(string); !strings.HasSuffix("."+loc, "."+name) || m["message"] == "" {
			t.Errorf("field error %v", m)
		}
	}
	for _, f := range fields {
		if !named[f] {
			t.Errorf("field %s is not named: %s", f, w.Body)
		}
	}
	if len(named) != len(fields) {
		t.Errorf("named %v, want %v", named, fields)
	}
	return p
}

// countingReader counts what is read of it.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func newPost(t *testing.T, target string, body io.Reader, contentType string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, body)
	r.Host = "127.0.0.1:8080"
	r.Header.Set("Content-Type", contentType)
	return r
}

func record(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
