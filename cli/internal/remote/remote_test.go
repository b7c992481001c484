package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestErrorsKeepCodeAndFields(t *testing.T) {
	fields := []pyexec.FieldError{{Field: "config.memory_mb", Message: "too much"}}
	err := toError(&pyexec.Error{Code: "invalid", Status: 422, Message: "bad", Fields: fields, ExecutionID: "exe_1", RetryAfter: time.Second})
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || e.Code != executor.Invalid || e.Message != "bad; config.memory_mb: too much" || e.ExecutionID != "exe_1" || e.RetryAfter != time.Second ||
		!reflect.DeepEqual(e.Fields, []executor.FieldError{{Field: "config.memory_mb", Message: "too much"}}) {
		t.Errorf("%#v", err)
	}
	for _, code := range executor.Codes() {
		if got := executor.CodeOf(toError(&pyexec.Error{Code: string(code)})); got != code {
			t.Errorf("%s became %s", code, got)
		}
	}
	gone := &pyexec.Error{Code: "unavailable", Err: context.Canceled}
	if got := toError(gone); !errors.Is(got, context.Canceled) {
		t.Error(got)
	}
	answered := &pyexec.Error{Code: "internal", Status: http.StatusOK, Err: context.Canceled}
	if got := executor.CodeOf(toError(answered)); got != executor.Internal {
		t.Errorf("an answer that cannot be read became %s", got)
	}
}

func TestWhatTheAPIDoesNotHave(t *testing.T) {
	s, err := New("http://127.0.0.1:1", "", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Scripts(t.Context()); executor.CodeOf(err) != executor.Unimplemented {
		t.Error(err)
	}
	if _, err := New("nonsense", "", "", nil); executor.CodeOf(err) != executor.Invalid {
		t.Error(err)
	}
}

func TestCapabilitiesAreRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"backends":[{"name":"uv","type":"u","version":"1","healthy":true,"message":"m","capacity":2,"warnings":["w"],"details":{"d":"e"},"metrics":{"n":3},"capabilities":{"isolation":"none","memory":true,"python_versions":["3.12"]}}]}`))
	}))
	defer server.Close()
	s, err := New(server.URL, "", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.CloseIdleConnections()
	infos, err := s.Backends(t.Context())
	if err != nil || len(infos) != 1 || !infos[0].Capabilities.Memory || infos[0].Capabilities.PythonVersions[0] != "3.12" {
		t.Fatalf("%+v %v", infos, err)
	}
	infos[0].Capabilities = executor.Capabilities{}
	want := executor.Info{Name: "uv", Type: "u", Version: "1", Healthy: true, Message: "m", Capacity: 2, Warnings: []string{"w"},
		Details: map[string]string{"d": "e"}, Metrics: map[string]float64{"n": 3}}
	if !reflect.DeepEqual(infos[0], want) {
		t.Errorf("got %+v", infos[0])
	}
}

// A server that is restarted is away for longer than a request is tried again.
func TestAServerThatComesBackIsFollowedOn(t *testing.T) {
	const away = 8
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		if r.Header.Get("Authorization") != "Bearer s3cret" || !strings.HasPrefix(r.UserAgent(), "mine ") {
			t.Errorf("request %d has Authorization %q and User-Agent %q", n, r.Header.Get("Authorization"), r.UserAgent())
		}
		if n > 1 && n <= 1+away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if n == 1 {
			_, _ = io.WriteString(w, "id: 1\nevent: queued\ndata: {\"position\":0}\n\n")
			return
		}
		if r.Header.Get("Last-Event-ID") != "1" {
			t.Errorf("resumed after %q", r.Header.Get("Last-Event-ID"))
		}
		_, _ = io.WriteString(w, "id: 2\nevent: output\ndata: {\"stream\":\"stdout\",\"offset\":0,\"data\":\"x\"}\n\n"+
			"id: 3\nevent: finished\ndata: {\"status\":\"succeeded\",\"exit_code\":0}\n\n")
	}))
	defer server.Close()
	soon := pyexec.RetryPolicy{Attempts: awayAttempt + 1, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
	said := 0
	s, err := newService(server.URL, "s3cret", "mine", soon, func() { said++ })
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.CloseIdleConnections()
	var seqs []uint64
	for e, err := range s.Events(t.Context(), "exe_1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	if !slices.Equal(seqs, []uint64{1, 2, 3}) {
		t.Errorf("got %v", seqs)
	}
	// One that never answered is not waited for.
	calls.Store(1)
	for _, err := range s.Events(t.Context(), "exe_1", 0) {
		if executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("got %v", err)
		}
	}
	if n := calls.Load(); n != 1+int32(soon.Attempts) {
		t.Errorf("%d calls", n-1)
	}
	if said != 1 {
		t.Errorf("said %d times that the server is away", said)
	}
}
