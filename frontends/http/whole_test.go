package httpfrontend_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/auth"
	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	memorystore "github.com/python-executor/python-executor/core/store/memory"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
)

// whole is the frontend over a real engine on the fake backend.
type whole struct {
	t       *testing.T
	backend *fake.Backend
	// started gets the ids of what the backend is given.
	started chan string
	url     string
	client  *http.Client
}

func newWhole(t *testing.T, change func(*engine.Options, *httpfrontend.Options)) *whole {
	t.Helper()
	blobs, err := dirblobs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := memorystore.New(memorystore.Options{})
	started := make(chan string, 100)
	backend := fake.New(fake.Options{Hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		started <- job.ID
		return run(ctx, job, sink)
	}})
	eo := engine.Options{Store: store, Blobs: blobs, Backends: map[string]executor.Backend{"fake": backend}, Engine: config.Engine{MaxConcurrent: 2, MaxQueued: 2}}
	fo := httpfrontend.Options{SpoolDir: t.TempDir()}
	if change != nil {
		change(&eo, &fo)
	}
	e, err := engine.New(eo)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, err := httpfrontend.New(e, fo)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		// Some tests leave a program that hangs: nothing is waited for.
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(nil)
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &whole{t, backend, started, server.URL, server.Client()}
}

// call sends a request and returns its status and JSON.
func (w *whole) call(method, path, contentType string, body io.Reader, header ...string) (int, map[string]any, *http.Response) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var v map[string]any
	if kind := res.Header.Get("Content-Type"); strings.HasSuffix(kind, "json") && kind != "application/x-ndjson" {
		if err := json.Unmarshal(raw, &v); err != nil {
			w.t.Fatalf("%v: %s", err, raw)
		}
	} else {
		v = map[string]any{"raw": string(raw)}
	}
	return res.StatusCode, v, res
}

func (w *whole) json(path, body string, header ...string) (int, map[string]any) {
	w.t.Helper()
	status, v, _ := w.call(http.MethodPost, path, "application/json", strings.NewReader(body), header...)
	return status, v
}

func (w *whole) tar(path, metadata string, archive []byte, header ...string) (int, map[string]any) {
	w.t.Helper()
	var buf bytes.Buffer
	m := multipart.NewWriter(&buf)
	_ = m.WriteField("metadata", metadata)
	p, _ := m.CreateFormFile("tar", "w.tar")
	_, _ = p.Write(archive)
	_ = m.Close()
	status, v, _ := w.call(http.MethodPost, path, m.FormDataContentType(), &buf, header...)
	return status, v
}

func archive(pairs ...string) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(pairs); i += 2 {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1]))})
		_, _ = io.WriteString(w, pairs[i+1])
	}
	_ = w.Close()
	return buf.Bytes()
}

const (
	sync  = "/api/v1/exec/sync"
	async = "/api/v1/exec/async"
	execs = "/api/v1/executions"
)

func TestARealEngineBehindTheAPI(t *testing.T) {
	t.Parallel()
	w := newWhole(t, nil)
	status, v := w.tar(sync, `{"args":["x"],"stdin":"typed"}`, archive("main.py", "print hello\nread-stdin\nprint-err warn\nexit 3\n"))
	if status != 200 || v["status"] != "failed" || v["exit_code"] != 3.0 || v["stdout"] != "hello\ntyped" || v["stderr"] != "warn\n" || v["attempts"] != 1.0 {
		t.Fatalf("%d %v", status, v)
	}
	if status, v = w.json(sync, `{"files":{"main.py":"cat data.txt\nhex stdout ff\n","data.txt":"data"}}`); status != 200 || v["stdout"] != "data\uFFFD" || v["stdout_base64"] == nil {
		t.Fatalf("%d %v", status, v)
	}
	if status, v = w.tar(sync, `{}`, []byte(strings.Repeat("garbage ", 200))); status != 422 || v["execution_id"] == nil || v["code"] != "invalid" {
		t.Fatalf("a broken tar: %d %v", status, v)
	}
	if status, v = w.json(sync, `{"code":"exit 0","config":{"memory_mb":99999999,"pids":5000}}`); status != 422 || len(v["errors"].([]any)) != 2 {
		t.Fatalf("above the maximum: %d %v", status, v)
	}
	if status, v = w.json(sync, `{"code":"exit 0","host_directory":"/"}`); status != 403 {
		t.Fatalf("a host directory: %d %v", status, v)
	}
	if status, v = w.json(sync, `{"code":"exit 0","command":["x"]}`); status != 422 {
		t.Fatalf("code and command: %d %v", status, v)
	}
	if status, v = w.json(sync, `{"code":"exit 0","backend":"none"}`); status/100 != 4 {
		t.Fatalf("an unknown backend: %d %v", status, v)
	}
}

func TestTheEntrypointThatIsChosenIsNamed(t *testing.T) {
	t.Parallel()
	w := newWhole(t, nil)
	const line = "b.py runs: the first of several .py files, none called main.py or __main__.py (entrypoint names another)\n"
	files := archive("notes.txt", "", "b.py", "print ran\nprint-err warn\n", "a.py", "exit 1\n")
	if status, v := w.tar(sync, `{}`, files); status != 200 || v["stdout"] != "ran\n" || v["stderr"] != line+"warn\n" {
		t.Errorf("%d %v", status, v)
	}
	if status, v := w.tar(sync, `{"entrypoint":"b.py"}`, files); status != 200 || v["stderr"] != "warn\n" {
		t.Errorf("named by the client: %d %v", status, v)
	}
	_, v := w.tar(async, `{}`, files)
	one := execs + "/" + v["execution_id"].(string)
	if _, v, _ := w.call(http.MethodGet, one+"/logs?follow=true&stream=stderr", "", nil); v["raw"] != line+"warn\n" {
		t.Errorf("the log: %v", v)
	}
	if status, v := w.json(sync, `{"files":{"a.py":"exit 1","b.py":"exit 2"}}`); status != 200 || v["exit_code"] != 1.0 || v["stderr"] != "a"+line[1:] {
		t.Errorf("files: %d %v", status, v)
	}
}

func TestAFileThatIsNoProgramIsRefusedWithAHint(t *testing.T) {
	t.Parallel()
	w := newWhole(t, nil)
	for name, hint := range map[string]string{
		"book.ipynb": "must be a program, not a notebook: export it first (jupyter nbconvert --to script)",
		"notes.txt":  "must be a program, not text (.txt): name the .py file that runs",
	} {
		for _, answer := range []func() (int, map[string]any){
			func() (int, map[string]any) {
				return w.tar(sync, `{"entrypoint":"`+name+`"}`, archive(name, "{}", "main.py", "exit 0\n"))
			},
			func() (int, map[string]any) { return w.tar(async, `{"entrypoint":"`+name+`"}`, archive(name, "{}")) },
			func() (int, map[string]any) {
				return w.json(sync, `{"entrypoint":"`+name+`","files":{"`+name+`":"{}"}}`)
			},
		} {
			status, v := answer()
			errs, _ := v["errors"].([]any)
			if status != 422 || v["code"] != "invalid" || len(errs) != 1 || !strings.HasSuffix(errs[0].(map[string]any)["location"].(string), "entrypoint") ||
				!strings.Contains(errs[0].(map[string]any)["message"].(string), hint) {
				t.Errorf("%s: %d %v", name, status, v)
			}
		}
	}
}

func TestTheLifeOfAnAsyncExecution(t *testing.T) {
	t.Parallel()
	w := newWhole(t, nil)
	status, v := w.tar(async, `{"outputs":["*.txt"]}`, archive("main.py", "print one\nwrite-file a.txt kept\nwait go\nprint two\n"))
	id, _ := v["execution_id"].(string)
	if status != 202 || !strings.HasPrefix(id, "exe_") || len(v) != 1 {
		t.Fatalf("%d %v", status, v)
	}
	one := execs + "/" + id
	if status, v, _ = w.call(http.MethodGet, one+"/artifacts", "", nil); status != 409 {
		t.Fatalf("artifacts of what runs: %d %v", status, v)
	}
	w.backend.Release("go")
	status, v, _ = w.call(http.MethodGet, one+"/events", "", nil)
	stream := v["raw"].(string)
	if status != 200 || !strings.HasPrefix(stream, "id: 1\nevent: queued\n") || strings.Count(stream, "event: finished\n") != 1 || !strings.Contains(stream, `"data":"two\n"`) {
		t.Fatalf("%d %s", status, stream)
	}
	if _, v, _ = w.call(http.MethodGet, one+"/events?after=2", "", nil); !strings.HasPrefix(v["raw"].(string), "id: 3\n") {
		t.Fatalf("%v", v)
	}
	if _, v, _ = w.call(http.MethodGet, one+"/logs?follow=true&stream=stdout", "", nil); v["raw"] != "one\ntwo\n" {
		t.Fatalf("%v", v)
	}
	if _, v, _ = w.call(http.MethodGet, one+"/artifacts/a.txt", "", nil); v["raw"] != "kept" {
		t.Fatalf("%v", v)
	}
	if status, v, _ = w.call(http.MethodGet, one, "", nil); status != 200 || v["status"] != "succeeded" || v["stdout"] != "one\ntwo\n" || len(v["artifacts"].([]any)) != 1 {
		t.Fatalf("%d %v", status, v)
	}
	if status, v, _ = w.call(http.MethodDelete, one, "", nil); status != 200 || v["status"] != "succeeded" || v["message"] != "the execution had ended before it could be killed" {
		t.Fatalf("%d %v", status, v)
	}
	if _, v, _ = w.call(http.MethodGet, execs+"?status=succeeded&limit=1", "", nil); len(v["executions"].([]any)) != 1 || v["next"] != nil {
		t.Fatalf("%v", v)
	}
	_, v = w.json(async, `{"code":"hang"}`)
	id = v["execution_id"].(string)
	if status, v, _ = w.call(http.MethodDelete, execs+"/"+id, "", nil); status != 200 || v["status"] != "killed" || v["message"] != nil {
		t.Fatalf("%d %v", status, v)
	}
}

func TestAFullEngineIs429(t *testing.T) {
	t.Parallel()
	w := newWhole(t, func(o *engine.Options, _ *httpfrontend.Options) {
		o.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 1}
	})
	for range 2 {
		if status, v := w.json(async, `{"code":"hang"}`); status != 202 {
			t.Fatalf("%d %v", status, v)
		}
	}
	for _, path := range []string{sync, async} {
		status, v, res := w.call(http.MethodPost, path, "multipart/form-data; boundary=b", strings.NewReader("--b--"))
		if status != 429 || v["code"] != "exhausted" || res.Header.Get("Retry-After") == "" {
			t.Fatalf("%d %v", status, v)
		}
	}
}

func TestIdempotencyThroughTheAPI(t *testing.T) {
	t.Parallel()
	w := newWhole(t, nil)
	_, first := w.json(async, `{"code":"print 1","idempotency_key":"k"}`)
	status, again := w.json(async, `{"code":"print 1","idempotency_key":"k"}`)
	if status != 202 || again["execution_id"] != first["execution_id"] {
		t.Fatalf("%d %v, first %v", status, again, first)
	}
	if status, v := w.json(sync, `{"code":"print 2","idempotency_key":"k"}`); status != 409 || v["code"] != "conflict" {
		t.Fatalf("%d %v", status, v)
	}
}

func TestOwnersDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	var tokens []auth.Token
	for owner, scopes := range map[string][]executor.Scope{"ann": nil, "bob": nil, "eve": {executor.ScopeRead}, "max": {executor.ScopeExec}, "root": {executor.ScopeAdmin}} {
		sum := sha256.Sum256([]byte(owner))
		tokens = append(tokens, auth.Token{Owner: owner, SHA256: hex.EncodeToString(sum[:]), Scopes: scopes})
	}
	a, err := auth.New(tokens)
	if err != nil {
		t.Fatal(err)
	}
	w := newWhole(t, func(_ *engine.Options, o *httpfrontend.Options) { o.Auth = a })
	as := func(owner string) []string { return []string{"Authorization", "Bearer " + owner} }
	_, v := w.json(async, `{"code":"print 1"}`, as("ann")...)
	id := v["execution_id"].(string)
	for owner, want := range map[string]int{"ann": 200, "bob": 404, "eve": 404, "root": 200, "nobody": 401} {
		for _, path := range []string{"", "/events", "/logs?follow=true", "/artifacts"} {
			if status, v, _ := w.call(http.MethodGet, execs+"/"+id+path, "", nil, as(owner)...); status != want {
				t.Errorf("%s%s: %d %v", owner, path, status, v)
			}
		}
	}
	// Who may only execute gets the result of what it executes, and nothing else.
	if status, v := w.json(sync, `{"code":"print 1"}`, as("max")...); status != 200 || v["stdout"] != "1\n" {
		t.Fatalf("%d %v", status, v)
	}
	if status, v, _ := w.call(http.MethodGet, execs, "", nil, as("max")...); status != 403 {
		t.Fatalf("%d %v", status, v)
	}
	if status, v := w.json(sync, `{"code":"print 1"}`, as("eve")...); status != 403 || v["code"] != "denied" {
		t.Fatalf("%d %v", status, v)
	}
}

func TestALostClientOfARealEngineKills(t *testing.T) {
	t.Parallel()
	w := newWhole(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+sync, strings.NewReader(`{"code":"print up\nhang"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	returned := make(chan error, 1)
	go func() {
		res, err := w.client.Do(req)
		if err == nil {
			res.Body.Close()
		}
		returned <- err
	}()
	id := <-w.started
	cancel(nil)
	<-returned
	// Following to the end waits for it.
	w.client.Timeout = 20 * time.Second
	_, v, _ := w.call(http.MethodGet, execs+"/"+id+"/events", "", nil)
	if !strings.Contains(v["raw"].(string), `"status":"killed"`) {
		t.Fatalf("%v", v)
	}
}
