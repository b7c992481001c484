package apijson

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// vectors calls check with each vector of a folder of testdata/wire.
func vectors[T any](t *testing.T, folder string, check func(t *testing.T, v T)) {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/wire/" + folder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			check(t, v)
		})
	}
}

func same(t *testing.T, v, want any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestResultVectors(t *testing.T) {
	t.Parallel()
	vectors(t, "result", func(t *testing.T, v struct {
		Execution executor.Execution
		Stdout    []byte `json:"stdout_base64"`
		Stderr    []byte `json:"stderr_base64"`
		Displays  []executor.Display
		Wire      map[string]any
	}) {
		same(t, ResultOf(v.Execution, v.Stdout, v.Stderr, v.Displays), v.Wire)
		for _, name := range []string{"stdout", "stderr", "stdout_base64", "stderr_base64", "displays", "displays_truncated"} {
			delete(v.Wire, name)
		}
		same(t, pyexec.Finished{Execution: ExecutionOf(v.Execution)}, v.Wire)
	})
}

func TestSessionVectors(t *testing.T) {
	t.Parallel()
	vectors(t, "session", func(t *testing.T, v struct {
		Session executor.Session
		Wire    any
	}) {
		same(t, SessionOf(v.Session), v.Wire)
	})
}

func TestHowLongALostProgramRanIsNotSaidIfNobodyKnows(t *testing.T) {
	t.Parallel()
	e := executor.Execution{StartedAt: time.Now(), Status: executor.StatusLost, Result: &executor.Result{Status: executor.StatusLost}}
	if d := ExecutionOf(e).DurationSeconds; d != nil {
		t.Errorf("%v seconds", *d)
	}
	e.Result.Wall = time.Second
	if d := ExecutionOf(e).DurationSeconds; d == nil || *d != 1 {
		t.Errorf("%v", d)
	}
}

func TestAnInternalFailureSaysNothing(t *testing.T) {
	t.Parallel()
	e := executor.Execution{Status: executor.StatusFailed, Result: &executor.Result{Failure: &executor.Failure{Code: executor.Internal, Message: "password is hunter2"}}}
	if got := ExecutionOf(e).Failure; got.Message != "internal error" || got.Phase != "" {
		t.Errorf("%+v", got)
	}
}

func TestWhatASessionsExecutionDidIsSaidOnlyAtItsEnd(t *testing.T) {
	t.Parallel()
	e := executor.Execution{Spec: executor.Spec{Session: "ctx-1"}, Status: executor.StatusRunning}
	if got := ExecutionOf(e).SessionState; got != "" {
		t.Errorf("running says %q", got)
	}
	for state, want := range map[executor.SessionState]string{executor.SessionStateKept: "kept", executor.SessionStateRestarted: "restarted", executor.SessionStateLost: "lost"} {
		e.Result = &executor.Result{SessionState: state}
		if got := ExecutionOf(e).SessionState; got != want {
			t.Errorf("%q says %v", state, got)
		}
	}
	e.Spec.Session = ""
	if got := ExecutionOf(e).SessionState; got != "" {
		t.Errorf("without a session it says %q", got)
	}
}

func TestDisplaysAreCappedTogetherAndSmallFormsStillFit(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte{0xff}, MaxDisplayBytes-10)
	var c Collector
	first := c.Add(executor.Display{Data: map[string][]byte{"image/png": big, "text/plain": []byte("<plot>")}})
	if len(first) != 2 || first[0].MIME != "image/png" || len(first[0].Data) != len(big) || string(first[1].Data) != "<plot>" || c.Truncated {
		t.Fatalf("%d forms, truncated %t", len(first), c.Truncated)
	}
	second := c.Add(executor.Display{Value: true, Data: map[string][]byte{"image/png": []byte("12345"), "text/html": []byte("<b>"), "text/plain": []byte("12")}})
	if len(second) != 1 || second[0].MIME != "text/html" || second[0].Display != 1 || !second[0].Value || !c.Truncated {
		t.Fatalf("%+v, truncated %t", second, c.Truncated)
	}
	if third := c.Add(executor.Display{}); len(third) != 0 {
		t.Fatalf("%+v", third)
	}
	if c.bytes > MaxDisplayBytes {
		t.Fatalf("%d bytes", c.bytes)
	}
}

func TestTheFormsOfAResultMayFillTheirBound(t *testing.T) {
	t.Parallel()
	var c Collector
	if forms := c.Add(executor.Display{Data: map[string][]byte{"image/png": make([]byte, MaxDisplayBytes)}}); len(forms) != 1 || c.Truncated {
		t.Errorf("%d forms, truncated %t", len(forms), c.Truncated)
	}
	if forms := c.Add(executor.Display{Data: map[string][]byte{"image/png": {1}}}); len(forms) != 0 || !c.Truncated {
		t.Errorf("one byte more: %d forms, truncated %t", len(forms), c.Truncated)
	}
	same(t, BodyOf(executor.Display{Truncated: true}), map[string]any{"data": map[string]any{}, "value": false, "truncated": true})
}

func TestRequirementsAreKnownOnceItStartedOrThereAreSome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		started time.Time
		r       executor.Result
		want    []string
	}{
		{"it did not start", time.Time{}, executor.Result{}, nil},
		{"it started without any", time.Now(), executor.Result{}, []string{}},
		{"they were resolved before it could start", time.Time{}, executor.Result{Requirements: []string{"six==1.17.0"}}, []string{"six==1.17.0"}},
	} {
		if got := ExecutionOf(executor.Execution{StartedAt: c.started, Result: &c.r}).ResolvedRequirements; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.name, got, c.want)
		}
	}
}

func TestAFormIsTextOnlyIfItsTypeAndItsBytesAre(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mime, data string
		want       bool
	}{
		{"text/plain", "x", true}, {"text/html; charset=utf-8", "é", true}, {"TEXT/Plain", "", true}, {"application/json", "{}", true},
		{"application/vnd.vega.v5+json", "{}", true}, {"image/svg+xml", "<svg/>", true}, {"application/javascript", "1", true},
		{"text/plain", "\xff", false}, {"image/png", "text", false}, {"application/octet-stream", "x", false}, {"json", "x", false}, {"", "x", false},
		{"text/", "x", true}, {"TEXT/Plain; =", "x", true},
	} {
		raw, err := json.Marshal(pyexec.DisplayForm{MIME: test.mime, Data: []byte(test.data)})
		if err != nil || strings.Contains(string(raw), `"data":`) != test.want {
			t.Errorf("%q %q: %s, %v", test.mime, test.data, raw, err)
		}
	}
}

func TestNoBytesAreEmptyNotNull(t *testing.T) {
	t.Parallel()
	d := executor.Display{Data: map[string][]byte{"image/png": nil, "text/plain": nil}}
	same(t, BodyOf(d), map[string]any{"data": map[string]any{"image/png": map[string]any{"base64": ""}, "text/plain": ""}, "value": false})
	var c Collector
	same(t, c.Add(d), []any{map[string]any{"mime": "image/png", "base64": "", "value": false, "display": 0.0}, map[string]any{"mime": "text/plain", "data": "", "value": false, "display": 0.0}})
}

func TestFilesAndVariables(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 21, 0, 0, 0, time.FixedZone("", 3600))
	same(t, FileOf(executor.File{Path: "a b/é", SizeBytes: 3, Mode: 0o644, ModTime: at}),
		map[string]any{"path": "a b/é", "directory": false, "size_bytes": 3.0, "mode": 420.0, "mod_time": "2026-11-21T20:00:00Z"})
	same(t, FileOf(executor.File{Path: "d", Directory: true}), map[string]any{"path": "d", "directory": true, "size_bytes": 0.0, "mode": 0.0, "mod_time": nil})
	same(t, VariablesOf([]executor.Variable{{Name: "x", Type: "int"}}).Variables[0], map[string]any{"name": "x", "type": "int", "preview": ""})
}

// TestEveryWordIsThere finds a field of the contract that was forgotten here.
func TestEveryWordIsThere(t *testing.T) {
	t.Parallel()
	left := map[string]string{
		// What a Session's JSON leaves out on purpose, or calls by another name.
		"ID": "session_id", "Owner": "", "Spec": "", "Preload": "", "Requirements": "resolved_requirements", "IdleTimeout": "idle_timeout_seconds", "MaxLife": "max_life_seconds",
	}
	have := map[string]bool{}
	for i := range reflect.TypeFor[pyexec.Session]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[pyexec.Session]().Field(i).Tag.Get("json"), ",")
		have[name] = true
	}
	for i := range reflect.TypeFor[executor.Session]().NumField() {
		f := reflect.TypeFor[executor.Session]().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if other, ok := left[f.Name]; ok {
			name = other
		}
		if name != "" && !have[name] {
			t.Errorf("Session.%s is not in the JSON", f.Name)
		}
	}
}

func TestADisplayWithoutFormsIsCounted(t *testing.T) {
	t.Parallel()
	var c Collector
	none := c.Add(executor.Display{Truncated: true})
	if forms := c.Add(executor.Display{Data: map[string][]byte{"text/plain": []byte("x")}}); len(none) != 0 || len(forms) != 1 || forms[0].Display != 1 {
		t.Errorf("%+v, then %+v", none, forms)
	}
}
