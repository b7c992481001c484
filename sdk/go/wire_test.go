package pyexec_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// vectors calls check with each vector of a folder of testdata/wire, which the server's tests read too.
func vectors[T any](t *testing.T, folder string, check func(t *testing.T, name string, v T)) {
	t.Helper()
	dir := filepath.Join("..", "..", "testdata", "wire", folder)
	count := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path) //nolint:gosec // a fixture
		if err != nil {
			return err
		}
		count++
		t.Run(strings.TrimSuffix(entry.Name(), ".json"), func(t *testing.T) {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			check(t, strings.TrimSuffix(entry.Name(), ".json"), v)
		})
		return nil
	})
	if os.IsNotExist(err) {
		t.Skipf("the vectors are not here (a module outside its repository): %v", err)
	}
	if err != nil || count == 0 {
		t.Fatalf("%d vectors in %s, error %v", count, dir, err)
	}
}

// compact makes JSON comparable by value.
func compact(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

// dropNulls removes what is null, and what a Go value spells as a zero instead of null.
func dropNulls(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for key, value := range m {
		switch value := dropNulls(value).(type) {
		case nil:
			delete(m, key)
		case string:
			if value == "" || value == "0001-01-01T00:00:00Z" {
				delete(m, key)
			}
		case map[string]any:
			if len(value) == 0 {
				delete(m, key)
			}
		}
	}
	return m
}

func TestResultsOfTheVectorsAreReadWhole(t *testing.T) {
	t.Parallel()
	type vector struct {
		Stdout []byte          `json:"stdout_base64"`
		Stderr []byte          `json:"stderr_base64"`
		Wire   json.RawMessage `json:"wire"`
	}
	vectors(t, "result", func(t *testing.T, _ string, v vector) {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answerJSON(t, w, string(v.Wire)) })
		e, err := c.Get(t.Context(), "exe_1")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(e.StdoutData(), v.Stdout) || !bytes.Equal(e.StderrData(), v.Stderr) {
			t.Errorf("output %q and %q, want %q and %q", e.StdoutData(), e.StderrData(), v.Stdout, v.Stderr)
		}
		// Every value of the wire is in the Go value: written again it is the same, but for null and zero.
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := dropNulls(compact(t, again)), dropNulls(compact(t, v.Wire)); !reflect.DeepEqual(got, want) {
			t.Errorf("read as %v\nwant    %v", got, want)
		}
		if e.Finished() != !e.FinishedAt.IsZero() {
			t.Errorf("Finished is %t for status %s", e.Finished(), e.Status)
		}
	})
}

func TestEventsOfTheVectorsAreReadWhole(t *testing.T) {
	t.Parallel()
	type vector struct {
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Data  json.RawMessage `json:"data"`
		Event struct {
			Body json.RawMessage `json:"body"`
		} `json:"event"`
	}
	vectors(t, "event", func(t *testing.T, name string, v vector) {
		var seq uint64
		if _, err := fmt.Sscan(v.ID, &seq); err != nil {
			t.Fatal(err)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, v.Data); err != nil {
			t.Fatal(err)
		}
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			answer(t, w, http.StatusOK, "text/event-stream", fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", v.ID, v.Name, line.Bytes()))
		})
		for e, err := range c.Events(t.Context(), "exe_1", seq-1) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq != seq || e.Body.Kind() != v.Name {
				t.Errorf("event %d %s, want %d %s", e.Seq, e.Body.Kind(), seq, v.Name)
			}
			var got, want any
			switch b := e.Body.(type) {
			case pyexec.Output:
				want = compact(t, v.Event.Body)
				m := map[string]any{"stream": b.Stream, "offset": float64(b.Offset), "data": base64.StdEncoding.EncodeToString(b.Data)}
				if b.Earlier {
					m["earlier"] = true
				}
				got = m
			case pyexec.Display:
				want = compact(t, v.Event.Body)
				data := map[string]any{}
				for name, form := range b.Data {
					data[name] = base64.StdEncoding.EncodeToString(form)
				}
				m := map[string]any{"data": data}
				if b.Value {
					m["value"] = true
				}
				if b.Truncated {
					m["truncated"] = true
				}
				got = m
			case pyexec.UnknownEvent:
				got, want = compact(t, b.Raw), compact(t, v.Data)
			case pyexec.Finished:
				raw, err := json.Marshal(b.Execution)
				if err != nil {
					t.Fatal(err)
				}
				// It has no output, so nothing is missing in it.
				whole, _ := compact(t, raw).(map[string]any)
				delete(whole, "displays_truncated")
				got, want = dropNulls(whole), dropNulls(compact(t, v.Data))
			default:
				raw, err := json.Marshal(b)
				if err != nil {
					t.Fatal(err)
				}
				got, want = dropNulls(compact(t, raw)), dropNulls(compact(t, v.Data))
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s was read as %v\nwant %v", name, got, want)
			}
			break
		}
	})
}

func TestSessionsOfTheVectorsAreReadWhole(t *testing.T) {
	t.Parallel()
	vectors(t, "session", func(t *testing.T, _ string, v struct {
		Wire json.RawMessage `json:"wire"`
	}) {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answerJSON(t, w, string(v.Wire)) })
		s, err := c.Session(t.Context(), "ctx-1")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, want := dropNulls(compact(t, raw)), dropNulls(compact(t, v.Wire))
		for _, zero := range []string{"generation", "idle_timeout_seconds", "max_life_seconds"} {
			if m, _ := got.(map[string]any); m[zero] == 0.0 {
				delete(m, zero)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read as %v\nwant    %v", got, want)
		}
	})
}

func TestAValueIsWrittenAsTheServerWritesIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  string
	}{
		{pyexec.Failure{Code: "internal", Message: "<b>"}, `{"code":"internal","phase":null,"message":"<b>"}`},
		{pyexec.Started{Requirements: []string{}}, `{"pid":0,"python_version":null,"requirements":[],"start":null}`},
		{pyexec.File{Path: "a"}, `{"path":"a","directory":false,"size_bytes":0,"mode":0,"mod_time":null}`},
		{pyexec.Output{Stream: "stdout", Data: []byte("a")}, `{"stream":"stdout","offset":0,"data":"a"}`},
		{pyexec.Output{Stream: "stdout", Data: []byte{0xff}, Earlier: true}, `{"stream":"stdout","offset":0,"data_base64":"/w==","earlier":true}`},
		{pyexec.Page{}, `{"executions":[],"next":null}`},
	} {
		if raw, err := c.value.(json.Marshaler).MarshalJSON(); err != nil || string(raw) != c.want {
			t.Errorf("got  %s, %v\nwant %s", raw, err, c.want)
		}
	}
	// In a Page and in Finished an Execution has no output.
	e := pyexec.Execution{ExecutionID: "exe_1", Stdout: "x"}
	for _, v := range []any{pyexec.Page{Executions: []pyexec.Execution{e}}, pyexec.Finished{Execution: e}} {
		raw, err := json.Marshal(v)
		if err != nil || strings.Contains(string(raw), `"stdout"`) || !strings.Contains(string(raw), `"session_id":null`) || !strings.Contains(string(raw), "exe_1") {
			t.Errorf("%s, %v", raw, err)
		}
	}
	raw, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(raw), `"stdout":"x"`) || !strings.Contains(string(raw), `"created_at":null`) || strings.Contains(string(raw), "image_digest") {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestProblemsOfTheVectorsAreTypedErrors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Error struct {
			Code        string              `json:"code"`
			Fields      []pyexec.FieldError `json:"fields"`
			ExecutionID string              `json:"execution_id"`
			RetryAfter  int                 `json:"retry_after_seconds"`
		} `json:"error"`
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
	}
	vectors(t, "problem", func(t *testing.T, _ string, v vector) {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for key, value := range v.Headers {
				w.Header().Set(key, value)
			}
			answer(t, w, v.Status, "application/problem+json", string(v.Body))
		}, pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1}))
		_, err := c.Get(t.Context(), "exe_1")
		e, ok := err.(*pyexec.Error) //nolint:errorlint // its very type is the point
		if !ok {
			t.Fatalf("the error is %T: %v", err, err)
		}
		var body struct{ Detail string }
		if err := json.Unmarshal(v.Body, &body); err != nil {
			t.Fatal(err)
		}
		want := pyexec.Error{Code: v.Error.Code, Status: v.Status, Message: body.Detail, Fields: v.Error.Fields,
			ExecutionID: v.Error.ExecutionID, RequestID: "req_1", RetryAfter: time.Duration(v.Error.RetryAfter) * time.Second}
		if !reflect.DeepEqual(*e, want) {
			t.Errorf("the error is %+v\nwant %+v", *e, want)
		}
	})
}

func TestSpecsAreSentAsTheVectorsSay(t *testing.T) {
	t.Parallel()
	type vector struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	vectors(t, "metadata", func(t *testing.T, _ string, v vector) {
		var spec pyexec.Spec
		read := json.NewDecoder(bytes.NewReader(v.Metadata))
		read.DisallowUnknownFields()
		if err := read.Decode(&spec); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := compact(t, raw), compact(t, v.Metadata); !reflect.DeepEqual(got, want) {
			t.Errorf("sent as %v\nwant    %v", got, want)
		}
	})
}
