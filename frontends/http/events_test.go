package httpfrontend

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const one = "/api/v1/executions/" + testID

func TestEventsAreTheLog(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{Position: 2}, executor.Progress{Phase: executor.PhasePrepare, Message: "installing", Done: 1, Total: 2, Unit: "packages"},
		executor.Started{PID: 42, PythonVersion: "3.12.1", Requirements: []string{"a==1"}, Start: executor.StartExec, Handle: []byte("secret")},
		out(executor.Stdout, 0, "line\nnext"), out(executor.Stderr, 0, "\xff"), executor.Display{Data: map[string][]byte{"text/plain": []byte("x")}},
		executor.Unknown{Name: "New\nkind", Raw: json.RawMessage("{\n\"a\": 1}")}, done(0))
	w := do(t, handlerOf(t, r.service()), http.MethodGet, one+"/events", nil)
	want := "id: 1\nevent: queued\ndata: {\"position\":2}\n\n" +
		"id: 2\nevent: progress\ndata: {\"phase\":\"prepare\",\"message\":\"installing\",\"done\":1,\"total\":2,\"unit\":\"packages\"}\n\n" +
		"id: 3\nevent: started\ndata: {\"pid\":42,\"python_version\":\"3.12.1\",\"requirements\":[\"a==1\"],\"start\":\"exec\"}\n\n" +
		"id: 4\nevent: output\ndata: {\"stream\":\"stdout\",\"offset\":0,\"data\":\"line\\nnext\"}\n\n" +
		"id: 5\nevent: output\ndata: {\"stream\":\"stderr\",\"offset\":0,\"data_base64\":\"/w==\"}\n\n" +
		"id: 6\nevent: display\ndata: {\"data\":{\"text/plain\":\"x\"},\"value\":false}\n\n" +
		"id: 7\nevent: newkind\ndata: {\"a\":1}\n\n" +
		"id: 8\nevent: finished\ndata: "
	got, finished, ok := strings.Cut(w.Body.String(), want)
	if h := w.Header(); h.Get("Cache-Control") != "no-store, no-transform" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("a proxy may hold the stream back: %v", h)
	}
	if !ok || got != "" || w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v\n%s", w.Code, w.Header(), w.Body)
	}
	m := decode(t, []byte(finished))
	if m["status"] != "succeeded" || m["execution_id"] != testID || m["finished_at"] == nil {
		t.Fatalf("%v", m)
	}
	for _, key := range []string{"stdout", "stderr", "stdout_base64", "stderr_base64"} {
		if _, there := m[key]; there {
			t.Errorf("finished has %s", key)
		}
	}
	if len(m) != len(summarySchema().Required) {
		t.Errorf("finished has %d members", len(m))
	}
}

func TestEventsResume(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	for _, tt := range []struct {
		name, query, header, first string
	}{
		{"from the beginning", "", "", "id: 1\n"},
		{"after zero", "?after=0", "", "id: 1\n"},
		{"after a number", "?after=3", "", "id: 4\n"},
		{"behind a header", "", "3", "id: 4\n"},
		{"behind the header where both are there", "?after=1", "4", "id: 5\n"},
		{"behind the end", "?after=5", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var header []string
			if tt.header != "" {
				header = []string{"Last-Event-ID", tt.header}
			}
			w := do(t, h, http.MethodGet, one+"/events"+tt.query, nil, header...)
			if w.Code != 200 || !strings.HasPrefix(w.Body.String(), tt.first) || tt.first == "" && w.Body.Len() > 0 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		})
	}
	wantProblem(t, do(t, h, http.MethodGet, one+"/events?after=x", nil), 422, executor.Invalid, "after")
	wantProblem(t, do(t, h, http.MethodGet, one+"/events?after=-1", nil), 422, executor.Invalid, "after")
	wantProblem(t, do(t, h, http.MethodGet, one+"/events?after=9223372036854775808", nil), 422, executor.Invalid, "after")
	wantProblem(t, do(t, h, http.MethodGet, one+"/events", nil, "Last-Event-ID", "1.5"), 422, executor.Invalid, "Last-Event-ID")
}

func TestAStreamThatCannotBeginIsAnError(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	h := handlerOf(t, svc)
	for _, p := range []string{"/events", "/logs", "/logs?follow=true", "/artifacts", "/artifacts/a", ""} {
		wantProblem(t, do(t, h, http.MethodGet, "/api/v1/executions/exe_unknown"+p, nil), 404, executor.NotFound)
		wantProblem(t, do(t, h, http.MethodGet, "/api/v1/executions/%00"+p, nil), 404, executor.NotFound)
	}
	wantProblem(t, do(t, h, http.MethodDelete, "/api/v1/executions/exe_unknown", nil), 404, executor.NotFound)
	svc.events = func(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
		return func(yield func(executor.Event, error) bool) {
			yield(executor.Event{}, executor.Errorf(executor.Purged, "retention"))
		}
	}
	wantProblem(t, do(t, h, http.MethodGet, one+"/events", nil), 410, executor.Purged)
	wantProblem(t, do(t, h, http.MethodGet, one+"/logs", nil), 410, executor.Purged)
}

// pipeWriter is a ResponseWriter whose reader sees every write.
type pipeWriter struct {
	*io.PipeWriter
	header http.Header
}

func (p pipeWriter) Header() http.Header { return p.header }
func (p pipeWriter) WriteHeader(int)     {}

func TestASilentStreamHasHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun().add(executor.Queued{})
		f, err := newFrontend(r.service(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		pr, pw := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, one+"/events", nil)
		req.Host = "localhost"
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.ServeHTTP(pipeWriter{pw, http.Header{}}, req)
			pw.Close()
		}()
		lines := bufio.NewScanner(pr)
		began := time.Now()
		for comments := 0; comments < 3 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), ":") {
				comments++
				if silent := time.Since(began); silent > 15*time.Second {
					t.Errorf("silent for %v", silent)
				}
				began = time.Now()
			}
		}
		r.add(executor.Started{}, done(0))
		rest, _ := io.ReadAll(pr)
		if !strings.Contains(string(rest)+lines.Text(), "event: finished") && !scanFor(lines, "event: finished") {
			t.Errorf("no end in %s", rest)
		}
		<-ended
	})
}

func scanFor(lines *bufio.Scanner, want string) bool {
	for lines.Scan() {
		if lines.Text() == want {
			return true
		}
	}
	return false
}

func TestEventsFollowLive(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}, executor.Started{})
	server := httptest.NewServer(handlerOf(t, r.service()))
	defer server.Close()
	res := get(t, server, one+"/events?after=2")
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	r.add(out(executor.Stdout, 0, "now"))
	for _, want := range []string{"id: 3", "event: output", `data: {"stream":"stdout","offset":0,"data":"now"}`, ""} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
	r.add(done(0))
	if !scanFor(lines, "event: finished") {
		t.Fatal("no end")
	}
}

func get(t *testing.T, server *httptest.Server, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestLogs(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Started{}, out(executor.Stdout, 0, "a\xff"), out(executor.Stderr, 0, "b"), out(executor.Stdout, 2, "c"), done(0))
	h := handlerOf(t, r.service())
	for query, want := range map[string]string{"": "a\xffbc", "?stream=both": "a\xffbc", "?stream=stdout": "a\xffc", "?stream=stderr": "b", "?follow=true": "a\xffbc", "?follow=false&stream=stderr": "b",
		"?stream=&follow=": "a\xffbc", "?stream=stdout&stream=stderr": "a\xffc"} {
		w := do(t, h, http.MethodGet, one+"/logs"+query, nil)
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/octet-stream" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %q %v", query, w.Code, w.Body, w.Header())
		}
	}
	wantProblem(t, do(t, h, http.MethodGet, one+"/logs?stream=all&follow=maybe", nil), 422, executor.Invalid, "stream", "follow")
}

// TestLogsBeforeTheFirstEventAreEmpty because a log without an event would be followed until the first one.
func TestLogsBeforeTheFirstEventAreEmpty(t *testing.T) {
	t.Parallel()
	svc := newRun().service()
	svc.events = func(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
		t.Error("an empty log is followed")
		return func(func(executor.Event, error) bool) {}
	}
	if w := do(t, handlerOf(t, svc), http.MethodGet, one+"/logs", nil); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestLogsOfARunningExecutionEndUnlessFollowed(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Started{}, out(executor.Stdout, 0, "so far"))
	server := httptest.NewServer(handlerOf(t, r.service()))
	defer server.Close()
	res := get(t, server, one+"/logs")
	if data, err := io.ReadAll(res.Body); err != nil || string(data) != "so far" {
		t.Fatalf("%q %v", data, err)
	}
	res.Body.Close()
	res = get(t, server, one+"/logs?follow=true")
	defer res.Body.Close()
	buf := make([]byte, 6)
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "so far" {
		t.Fatalf("%q %v", buf, err)
	}
	r.add(out(executor.Stderr, 0, ", then"), done(0))
	if data, err := io.ReadAll(res.Body); err != nil || string(data) != ", then" {
		t.Fatalf("%q %v", data, err)
	}
}

func TestALogThatBreaksIsCut(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	svc.events = func(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
		return func(yield func(executor.Event, error) bool) {
			if yield(executor.Event{Seq: 1, Body: out(executor.Stdout, 0, strings.Repeat("x", 2*textBytes))}, nil) {
				yield(executor.Event{}, executor.Errorf(executor.Unavailable, "gone"))
			}
		}
	}
	server := httptest.NewServer(handlerOf(t, svc))
	defer server.Close()
	for _, path := range []string{"/events", "/logs", ""} {
		res := get(t, server, one+path)
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("%q: a part looks like the whole", path)
		}
		res.Body.Close()
	}
}
