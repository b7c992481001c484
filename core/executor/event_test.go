package executor

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestEventsKeepTheirStoredForm(t *testing.T) {
	at := time.Date(2026, 11, 21, 20, 0, 0, 123, time.UTC)
	code := 3
	for _, body := range []Body{
		Queued{Position: 2},
		Progress{Phase: PhasePrepare, Message: "install", Done: 1, Total: 3, Unit: "packages"},
		Started{PID: 7, PythonVersion: "3.12.1", Requirements: []string{"six==1.16.0"}, Start: StartExec, Handle: []byte{0, 255}},
		Output{Stream: Stderr, Offset: 9, Data: []byte("a\xff\x00")},
		Display{Data: map[string][]byte{"image/png": {1, 2}}},
		Finished{Result: Result{Status: StatusFailed, ExitCode: &code, Failure: &Failure{Code: Invalid, Phase: PhaseStart, Message: "m", Field: "command"}}},
		Unknown{Name: "later", Raw: json.RawMessage(`{"x":1}`)},
	} {
		before := Event{Seq: 4, Time: at, Body: body}
		raw, err := json.Marshal(before)
		if err != nil {
			t.Fatalf("%s: %v", body.Kind(), err)
		}
		var after Event
		if err := json.Unmarshal(raw, &after); err != nil {
			t.Fatalf("%s: %v", body.Kind(), err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: %+v became %+v", body.Kind(), before, after)
		}
	}
}

func TestAnEventThatIsNoneIsAnError(t *testing.T) {
	if _, err := json.Marshal(Event{Seq: 1}); err == nil {
		t.Error("an event without a body was written")
	}
	for _, raw := range []string{`{`, `{"kind":"output","body":{"offset":"x"}}`, `{"seq":"one"}`} {
		var e Event
		if err := json.Unmarshal([]byte(raw), &e); err == nil {
			t.Errorf("%s was read as %+v", raw, e)
		}
	}
	if raw, err := json.Marshal(Event{Seq: 1, Body: Unknown{Name: "later"}}); err != nil || string(raw) != `{"seq":1,"kind":"later","body":null}` {
		t.Errorf("%s %v", raw, err)
	}
}

func TestTheHeadIsAFoldOverTheLog(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	r := Record{Execution: Execution{ID: "exe_1", Status: StatusQueued}}
	for i, body := range []Body{
		Queued{}, Progress{}, Started{PID: 5}, Output{Stream: Stdout, Data: []byte("abc")}, Output{Stream: Stdout, Offset: 3, Data: []byte("d")},
		Output{Stream: Stderr, Data: []byte("e")}, Display{}, Unknown{Name: "later"},
	} {
		r.Apply(Event{Seq: uint64(i + 1), Time: at(i), Body: body})
	}
	if r.Status != StatusRunning || !r.StartedAt.Equal(at(2)) || r.Started.PID != 5 || r.StdoutBytes != 4 || r.StderrBytes != 1 || r.LastSeq != 8 || r.Result != nil {
		t.Errorf("%+v", r)
	}
	r.Apply(Event{Seq: 9, Time: at(9), Body: Finished{Result: Result{Status: StatusTimedOut, Signal: "SIGTERM"}}})
	if r.Status != StatusTimedOut || !r.FinishedAt.Equal(at(9)) || r.Result.Signal != "SIGTERM" {
		t.Errorf("%+v", r)
	}
}

func TestAnUpdateCannotBreakTheFold(t *testing.T) {
	before := Record{Execution: Execution{ID: "exe_1", Owner: "a", Status: StatusRunning, LastSeq: 3, StdoutBytes: 5}, LogBytes: 7}
	after := Record{Execution: Execution{ID: "exe_2", Owner: "b", Status: StatusSucceeded, Backend: "uv", Attempts: 2}, Cancelled: true}
	after.KeepFolded(before)
	want := before
	want.Backend, want.Attempts, want.Cancelled = "uv", 2, true
	if !reflect.DeepEqual(after, want) {
		t.Errorf("got %+v, want %+v", after, want)
	}
}

func TestOnlyWholeEventsAreTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		event Event
		ok    bool
	}{
		"output":                         {Event{Body: Output{}}, true},
		"no body":                        {Event{}, false},
		"finished":                       {Event{Body: Finished{Result: Result{Status: StatusLost}}}, true},
		"finished without a status":      {Event{Body: Finished{}}, false},
		"finished that is still running": {Event{Body: Finished{Result: Result{Status: StatusRunning}}}, false},
	} {
		if err := tt.event.Check(); (err == nil) != tt.ok || err != nil && CodeOf(err) != Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
