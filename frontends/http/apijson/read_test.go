package apijson

import (
	"cmp"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func TestASpecBecomesTheMetadataOfTheVectors(t *testing.T) {
	vectors(t, "metadata", func(t *testing.T, v struct {
		Spec     executor.Spec  `json:"spec"`
		Stdin    string         `json:"stdin"`
		Metadata map[string]any `json:"metadata"`
	}) {
		spec := SpecOf(v.Spec)
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

func TestAnExecutionSurvivesTheWire(t *testing.T) {
	vectors(t, "result", func(t *testing.T, v struct {
		Execution executor.Execution `json:"execution"`
		Wire      pyexec.Execution   `json:"wire"`
	}) {
		got, want := ToExecution(v.Wire), v.Execution
		// What the API does not say.
		want.Owner, want.Spec, want.LastSeq = "", executor.Spec{Session: want.Spec.Session}, 0
		if want.Started != nil {
			want.Started = &executor.Started{PythonVersion: want.Started.PythonVersion, Start: want.Started.Start, Requirements: want.Started.Requirements}
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
		if got := ToBody(test.in); !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %#v, want %#v", got, test.want)
		}
	}
}

func TestASessionSurvivesTheWire(t *testing.T) {
	vectors(t, "session", func(t *testing.T, v struct {
		Session executor.Session `json:"session"`
		Wire    pyexec.Session   `json:"wire"`
	}) {
		got, want := ToSession(v.Wire), v.Session
		want.Owner, want.Spec = "", executor.Spec{} // what the API does not say
		want.Language = cmp.Or(want.Language, executor.LanguagePython)
		if len(got.Requirements) == 0 {
			got.Requirements = want.Requirements
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("got  %s\nwant %s", a, b)
		}
	})
}
