package httpfrontend

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The vectors of testdata/wire are the server's and the SDKs' one truth; see the README there.
const wireDir = "../../testdata/wire"

func forVectors[T any](t *testing.T, folder string, check func(t *testing.T, v T)) {
	t.Helper()
	n := 0
	err := fs.WalkDir(os.DirFS(wireDir), folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		raw, err := os.ReadFile(filepath.Join(wireDir, path))
		if err != nil {
			return err
		}
		t.Run(strings.TrimSuffix(d.Name(), ".json"), func(t *testing.T) {
			t.Parallel()
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			check(t, v)
		})
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%d vectors in %s: %v", n, folder, err)
	}
}

// sameJSON compares by value.
func sameJSON(t *testing.T, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Fatalf("got\n%s, want\n%s", got, want)
	}
}

func TestMetadataVectors(t *testing.T) {
	t.Parallel()
	forVectors(t, "metadata", func(t *testing.T, v struct {
		Metadata json.RawMessage
		Stdin    string
		Spec     executor.Spec
	}) {
		s, err := decodeMetadata(string(v.Metadata), false)
		if err != nil {
			t.Fatal(err)
		}
		stdin := ""
		if s.stdin != nil {
			stdin = *s.stdin
		}
		if !reflect.DeepEqual(s.spec, v.Spec) || stdin != v.Stdin {
			t.Fatalf("got %+v, %q", s.spec, stdin)
		}
	})
}

// TestTheVectorsHaveEveryField finds a field of the contract that cannot be reached from metadata, or that no vector tries.
func TestTheVectorsHaveEveryField(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(wireDir + "/metadata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	note := func(v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
		}
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v struct{ Metadata json.RawMessage }
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		s, err := decodeMetadata(string(v.Metadata), false)
		if err != nil {
			t.Fatal(file, err)
		}
		note(reflect.ValueOf(s.spec))
		note(reflect.ValueOf(s.spec.Limits))
	}
	for name, ok := range set {
		if !ok {
			t.Errorf("no vector of testdata/wire/metadata sets %s", name)
		}
	}
}

func TestResultVectors(t *testing.T) {
	t.Parallel()
	forVectors(t, "result", func(t *testing.T, v struct {
		Execution executor.Execution
		Stdout    []byte `json:"stdout_base64"`
		Stderr    []byte `json:"stderr_base64"`
		Displays  []executor.Display
		Wire      json.RawMessage
	}) {
		w := httptest.NewRecorder()
		log := &capture{stdout: v.Stdout, stderr: v.Stderr, shown: v.Displays}
		if err := handlerOf(t, hello().service()).writeResult(w, v.Execution, log); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, w.Body.Bytes(), v.Wire)
	})
}

func TestEventVectors(t *testing.T) {
	t.Parallel()
	forVectors(t, "event", func(t *testing.T, v struct {
		Execution executor.Execution
		Event     executor.Event
		ID, Name  string
		Data      json.RawMessage
	}) {
		r := newRun()
		r.rec.Execution = v.Execution
		svc := r.service()
		svc.get = func(context.Context, string) (executor.Execution, error) { return v.Execution, nil }
		data, err := handlerOf(t, svc).eventData(t.Context(), v.Execution, v.Event)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if err := newEventStream(w).send(v.Event, data); err != nil {
			t.Fatal(err)
		}
		rest, ok := strings.CutPrefix(w.Body.String(), "id: "+v.ID+"\nevent: "+v.Name+"\ndata: ")
		if !ok || strings.Count(rest, "\n") != 2 {
			t.Fatal(w.Body)
		}
		sameJSON(t, []byte(rest), v.Data)
	})
}

func TestProblemVectors(t *testing.T) {
	t.Parallel()
	forVectors(t, "problem", func(t *testing.T, v struct {
		Error struct {
			Code              executor.Code
			Message           string
			Fields            []executor.FieldError
			ExecutionID       string  `json:"execution_id"`
			RetryAfterSeconds float64 `json:"retry_after_seconds"`
		}
		Where   string
		Status  int
		Headers map[string]string
		Body    json.RawMessage
	}) {
		e := &executor.Error{Code: v.Error.Code, Message: v.Error.Message, Fields: v.Error.Fields, ExecutionID: v.Error.ExecutionID,
			RetryAfter: time.Duration(v.Error.RetryAfterSeconds * float64(time.Second))}
		p, headers := problemOf(in(v.Where, e), "req_1")
		body, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, body, v.Body)
		if p.Status != v.Status {
			t.Fatalf("status %d", p.Status)
		}
		for k := range v.Headers {
			if headers.Get(k) != v.Headers[k] {
				t.Fatalf("%s: %q, want %q", k, headers.Get(k), v.Headers[k])
			}
		}
	})
}
