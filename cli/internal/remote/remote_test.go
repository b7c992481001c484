package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vectors reads every file of a folder of testdata/wire.
func vectors[T any](t *testing.T, folder string, test func(t *testing.T, v T)) {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/wire/" + folder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			test(t, v)
		})
	}
}

func TestASpecBecomesTheMetadataOfTheVectors(t *testing.T) {
	vectors(t, "metadata", func(t *testing.T, v struct {
		Spec     executor.Spec  `json:"spec"`
		Stdin    string         `json:"stdin"`
		Metadata map[string]any `json:"metadata"`
	}) {
		spec := toSpec(v.Spec)
		spec.Stdin = v.Stdin
		raw, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, v.Metadata) {
			t.Errorf("got  %v\nwant %v", got, v.Metadata)
		}
	})
}

func TestEveryFieldOfASpecIsSent(t *testing.T) {
	var zero executor.Spec
	spec := reflect.TypeOf(zero)
	for i := range spec.NumField() {
		name := spec.Field(i).Name
		s := executor.Spec{}
		fill(reflect.ValueOf(&s).Elem().Field(i))
		if raw, err := json.Marshal(toSpec(s)); err != nil || string(raw) == "{}" {
			t.Errorf("%s is not sent: %s %v", name, raw, err)
		}
	}
	limits := reflect.TypeOf(executor.Limits{})
	for i := range limits.NumField() {
		s := executor.Spec{}
		fill(reflect.ValueOf(&s.Limits).Elem().Field(i))
		if raw, err := json.Marshal(toSpec(s)); err != nil || string(raw) == "{}" {
			t.Errorf("Limits.%s is not sent: %s %v", limits.Field(i).Name, raw, err)
		}
	}
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("off")
	case reflect.Int64, reflect.Int:
		v.SetInt(int64(time.Second))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

func TestAnExecutionSurvivesTheWire(t *testing.T) {
	vectors(t, "result", func(t *testing.T, v struct {
		Execution executor.Execution `json:"execution"`
		Wire      pyexec.Execution   `json:"wire"`
	}) {
		got, want := toExecution(v.Wire), v.Execution
		// What the API does not say.
		want.Owner, want.Spec, want.LastSeq = "", executor.Spec{Session: want.Spec.Session}, 0
		if want.Started != nil {
			want.Started = &executor.Started{PythonVersion: want.Started.PythonVersion, Requirements: want.Started.Requirements}
			if got.Started != nil && len(got.Started.Requirements) == 0 {
				got.Started.Requirements = want.Started.Requirements
			}
		}
		if want.Result != nil {
			// After its end an Execution's byte counts are those of its Result.
			want.StdoutBytes, want.StderrBytes = want.Result.StdoutBytes, want.Result.StderrBytes
			if len(got.Result.Requirements) == 0 {
				got.Result.Requirements = want.Result.Requirements
			}
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("got  %s\nwant %s", a, b)
		}
	})
}

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
}

func TestBodies(t *testing.T) {
	for _, test := range []struct {
		in   pyexec.EventBody
		want executor.Body
	}{
		{pyexec.Queued{Position: 2}, executor.Queued{Position: 2}},
		{pyexec.Progress{Phase: "prepare", Message: "m", Done: 1, Total: 2, Unit: "bytes"}, executor.Progress{Phase: executor.PhasePrepare, Message: "m", Done: 1, Total: 2, Unit: "bytes"}},
		{pyexec.Started{PID: 1, PythonVersion: "3", Requirements: []string{"a"}, Start: "fork"}, executor.Started{PID: 1, PythonVersion: "3", Requirements: []string{"a"}, Start: executor.StartFork}},
		{pyexec.Output{Stream: "stderr", Offset: 3, Data: []byte("x"), Earlier: true}, executor.Output{Stream: executor.Stderr, Offset: 3, Data: []byte("x"), Earlier: true}},
		{pyexec.Display{Data: map[string][]byte{"a": nil}, Value: true, Truncated: true}, executor.Display{Data: map[string][]byte{"a": nil}, Value: true, Truncated: true}},
		{pyexec.UnknownEvent{Name: "n", Raw: json.RawMessage("{}")}, executor.Unknown{Name: "n", Raw: json.RawMessage("{}")}},
		{pyexec.Finished{Execution: pyexec.Execution{Status: "lost"}}, executor.Finished{Result: executor.Result{Status: executor.StatusLost, CPU: -1}}},
	} {
		if got := toBody(test.in); !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %#v, want %#v", got, test.want)
		}
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
		_, _ = w.Write([]byte(`{"backends":[{"name":"uv","healthy":true,"capabilities":{"isolation":"none","memory":true,"python_versions":["3.12"]}}]}`))
	}))
	defer server.Close()
	s, err := New(server.URL, "", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.CloseIdleConnections()
	infos, err := s.Backends(t.Context())
	if err != nil || len(infos) != 1 || !infos[0].Capabilities.Memory || infos[0].Capabilities.PythonVersions[0] != "3.12" {
		t.Errorf("%+v %v", infos, err)
	}
}

// A server that is restarted is away for longer than a request is tried again.
func TestAServerThatComesBackIsFollowedOn(t *testing.T) {
	const away = 8
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
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
	soon := pyexec.RetryPolicy{Attempts: 2, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
	patient, said := soon, 0
	patient.Attempts = restartAttempts
	s, err := newService(server.URL, "", "test", soon, patient, func() { said++ })
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.CloseIdleConnections()
	defer s.patient.CloseIdleConnections()
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
	if said != 1 {
		t.Errorf("said %d times that the server is away", said)
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
}
