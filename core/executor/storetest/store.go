package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

type storeCase struct {
	id   string
	name string
	run  func(t *testing.T, s executor.Store)
}

func storeCases() []storeCase {
	return slices.Concat(recordCases(), appendCases(), followCases(), sessionCases(), specCases())
}

// Run checks the rules of a Store. open returns an empty Store and registers its cleanup.
func Run(t *testing.T, open func(t *testing.T) executor.Store) {
	t.Helper()
	for _, c := range storeCases() {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

// newID returns the n-th id of a test, with the form and order of real ids.
func newID(n int) string { return fmt.Sprintf("exe_%026d", n) }

func newRecord(n int) executor.Record {
	r := executor.Record{Execution: executor.Execution{
		ID: newID(n), Owner: "ann", Status: executor.StatusQueued, Backend: "fake", Attempts: 1,
		CreatedAt: time.Date(2026, 11, 21, 20, 0, n, 123456789, time.UTC),
		Spec: executor.Spec{
			Code: "print(1)", Args: []string{"a", "b"}, Env: map[string]string{"K": "v"},
			Limits: executor.Limits{Timeout: time.Second, MemoryBytes: 1 << 20},
		},
	}, SpecDigest: "sha256:00", WorkspaceBlob: "work/x"}
	r.SpecBytes = r.Spec.Size()
	return r
}

func create(t *testing.T, s executor.Store, r executor.Record) executor.Record {
	t.Helper()
	got, created, err := s.Create(awaittest.Context(t), r)
	if err != nil || !created {
		t.Fatalf("Create(%s) = created %t, error %v", r.ID, created, err)
	}
	return got
}

func get(t *testing.T, s executor.Store, id string) executor.Record {
	t.Helper()
	r, err := s.Get(awaittest.Context(t), id)
	if err != nil {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return r
}

func appendAll(t *testing.T, s executor.Store, id string, bodies ...executor.Body) {
	t.Helper()
	events := make([]executor.Event, len(bodies))
	for i, b := range bodies {
		events[i].Body = b
	}
	if err := s.Append(awaittest.Context(t), id, events...); err != nil {
		t.Fatalf("Append(%s): %v", id, err)
	}
}

// replay returns a finished log.
func replay(t *testing.T, s executor.Store, id string, after uint64) []executor.Event {
	t.Helper()
	var events []executor.Event
	for e, err := range s.Events(awaittest.Context(t), id, after) {
		if err != nil {
			t.Fatalf("Events(%s): %v", id, err)
		}
		events = append(events, e)
	}
	return events
}

// head returns the first n Events of a log, which need not be finished.
func head(t *testing.T, s executor.Store, id string, n int) []executor.Event {
	t.Helper()
	events := make([]executor.Event, 0, n)
	for e, err := range s.Events(awaittest.Context(t), id, 0) {
		if err != nil {
			t.Fatalf("Events(%s): %v", id, err)
		}
		if events = append(events, e); len(events) == n {
			break
		}
	}
	return events
}

func wantCode(t *testing.T, what string, err error, want executor.Code) {
	t.Helper()
	if executor.CodeOf(err) != want {
		t.Errorf("%s: %v, want code %q", what, err, want)
	}
}

// gapless checks that seqs run from after+1 on and that times do not go back.
func gapless(t *testing.T, events []executor.Event, after uint64) {
	t.Helper()
	var last time.Time
	for i, e := range events {
		if want := after + 1 + uint64(i); e.Seq != want { //nolint:gosec // a small index
			t.Fatalf("event %d has Seq %d, want %d", i, e.Seq, want)
		}
		if e.Time.IsZero() || e.Time.Before(last) {
			t.Fatalf("event %d has time %s, after %s", e.Seq, e.Time, last)
		}
		last = e.Time
	}
}

func finished(s executor.Status) executor.Finished {
	code := 0
	return executor.Finished{Result: executor.Result{Status: s, ExitCode: &code, Wall: time.Second, StdoutBytes: 3}}
}

func output(offset int64, data string) executor.Output {
	return executor.Output{Stream: executor.Stdout, Offset: offset, Data: []byte(data)}
}
