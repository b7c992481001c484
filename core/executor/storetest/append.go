package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func appendCases() []storeCase {
	return []storeCase{
		{"ST-10", "numbers without gaps under concurrency", appendNumbers},
		{"ST-11", "the head is the fold of the log", appendFolds},
		{"ST-12", "all or nothing", appendAllOrNothing},
		{"ST-18", "every kind comes back as it went in", roundTrip},
		{"ST-19", "log bytes are counted", logBytes},
		{"ST-21", "logs do not mix", noCrossTalk},
		{"ST-23", "one finished wins", finishedRace},
		{"ST-42", "create begins the log", createWithEvents},
	}
}

func appendNumbers(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	const workers, rounds = 8, 40
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				pair := []executor.Event{{Seq: 77, Time: time.Unix(0, 0), Body: executor.Progress{Message: "a"}}, {Body: executor.Progress{Message: "b"}}}
				if err := s.Append(awaittest.Context(t), newID(1), pair...); err != nil {
					t.Errorf("Append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
	events := replay(t, s, newID(1), 0)
	if len(events) != 2*workers*rounds+1 {
		t.Errorf("%d events, want %d", len(events), 2*workers*rounds+1)
	}
	gapless(t, events, 0)
	for i := 0; i+1 < len(events)-1; i += 2 {
		a, _ := events[i].Body.(executor.Progress)
		b, _ := events[i+1].Body.(executor.Progress)
		if a.Message != "a" || b.Message != "b" {
			t.Fatalf("the events of one Append are not together at Seq %d", events[i].Seq)
		}
	}
}

func appendFolds(t *testing.T, s executor.Store) {
	r := newRecord(1)
	create(t, s, r)
	steps := [][]executor.Body{
		{executor.Queued{Position: 3}},
		{executor.Progress{Phase: executor.PhasePrepare, Message: "install", Done: 1, Total: 2, Unit: "packages"}},
		{executor.Started{PID: 12, PythonVersion: "3.12.1", Requirements: []string{"a==1"}, Start: executor.StartExec, Handle: []byte{0, 1}}},
		{output(0, "abc"), executor.Output{Stream: executor.Stderr, Offset: 0, Data: []byte("err")}},
		{output(3, "def"), executor.Display{Data: map[string][]byte{"text/html": []byte("<b>")}}},
		{executor.Started{PID: 13}},
		{finished(executor.StatusTimedOut)},
	}
	want := r.Clone()
	for _, bodies := range steps {
		appendAll(t, s, r.ID, bodies...)
		got := get(t, s, r.ID)
		for i, e := range head(t, s, r.ID, int(got.LastSeq)) { //nolint:gosec // a small number
			if uint64(i) >= want.LastSeq { //nolint:gosec // a small index
				want.Apply(e)
			}
		}
		want.LogBytes = got.LogBytes
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("after %v the head is %+v\nwant %+v", bodies, got, want)
		}
	}
	if want.Status != executor.StatusTimedOut || want.StdoutBytes != 6 || want.StderrBytes != 3 || want.FinishedAt.IsZero() {
		t.Errorf("the fold is %+v", want)
	}
}

func appendAllOrNothing(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	appendAll(t, s, newID(1), executor.Queued{})
	done, more := executor.Event{Body: finished(executor.StatusSucceeded)}, executor.Event{Body: executor.Progress{}}
	refused := func(name string, want executor.Code, events ...executor.Event) {
		t.Helper()
		before := get(t, s, newID(1))
		wantCode(t, name, s.Append(awaittest.Context(t), newID(1), events...), want)
		if after := get(t, s, newID(1)); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the head changed to %+v", name, after)
		}
	}
	refused("an event behind Finished", executor.Conflict, more, done, more)
	refused("two Finished", executor.Conflict, done, done)
	refused("no body", executor.Invalid, more, executor.Event{})
	refused("a Finished that is not terminal", executor.Invalid, more, executor.Event{Body: executor.Finished{}})
	refused("no events", "")
	if err := s.Append(awaittest.Context(t), newID(1), more, done); err != nil {
		t.Fatal(err)
	}
	refused("after Finished", executor.Conflict, more)
	refused("a second Finished", executor.Conflict, done)
	events := replay(t, s, newID(1), 0)
	if len(events) != 3 {
		t.Errorf("%d events, want 3", len(events))
	}
	gapless(t, events, 0)
}

func roundTrip(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	binary := make([]byte, executor.MaxOutputData)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	code := 3
	bodies := []executor.Body{
		executor.Queued{Position: 1},
		executor.Progress{Phase: executor.PhasePrepare, Message: "späße \u2028", Done: 1, Total: 9, Unit: "bytes"},
		executor.Started{PID: 4, PythonVersion: "3.12.1", Requirements: []string{"a==1"}, Start: executor.StartFork, Handle: binary[:4096]},
		executor.Output{Stream: executor.Stdout, Offset: 0, Data: binary},
		executor.Output{Stream: executor.Stderr, Offset: 1 << 40, Data: []byte{0xff, 0, '\n'}},
		executor.Output{Stream: executor.Stdout, Offset: 1 << 18, Data: []byte("x"), Earlier: true},
		executor.Display{Data: map[string][]byte{"image/png": binary[:3], "text/plain": []byte("x")}, Value: true, Truncated: true},
		executor.Unknown{Name: "future", Raw: json.RawMessage(`{"a":[1,2]}`)},
		executor.Finished{Result: executor.Result{
			Status: executor.StatusFailed, ExitCode: &code, Signal: "SIGKILL",
			Failure: &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Message: "m"},
			Wall:    time.Second, CPU: -1, PeakMemoryBytes: 5, PeakResidentBytes: 6, Phases: executor.Phases{Queue: 1, Prepare: 2, Run: 3, Collect: 4},
			StdoutBytes: 6, StderrBytes: 7, StdoutTruncated: true, StderrTruncated: true, PythonVersion: "3.12.1",
			Requirements: []string{"a==1"}, ImageDigest: "sha256:1", MemorySamples: []executor.MemorySample{{Offset: 1, Bytes: 2}},
			Artifacts: []executor.Artifact{{Path: "a/b", SizeBytes: 8}}, SessionState: executor.SessionStateLost, DisplaysDropped: 9,
			FilesChanged: []executor.Artifact{{Path: "a/c", SizeBytes: 10}}, FilesOmitted: 11,
		}},
	}
	appendAll(t, s, newID(1), bodies...)
	events := replay(t, s, newID(1), 0)
	gapless(t, events, 0)
	if len(events) != len(bodies) {
		t.Fatalf("%d events, want %d", len(events), len(bodies))
	}
	for i, e := range events {
		if !reflect.DeepEqual(e.Body, bodies[i]) {
			t.Errorf("%s came back as %.200s\nwant %.200s", e.Body.Kind(), fmt.Sprint(e.Body), fmt.Sprint(bodies[i]))
		}
	}
}

func createWithEvents(t *testing.T, s executor.Store) {
	refused := []executor.Event{{Body: executor.Queued{}}, {Body: finished(executor.StatusSucceeded)}, {Body: executor.Progress{}}}
	_, _, err := s.Create(awaittest.Context(t), newRecord(1), refused...)
	wantCode(t, "Create with an event behind Finished", err, executor.Conflict)
	_, err = s.Get(awaittest.Context(t), newID(1))
	wantCode(t, "Get of what was not created", err, executor.NotFound)

	r := newRecord(1)
	data := []byte("abc")
	got, created, err := s.Create(awaittest.Context(t), r, executor.Event{Seq: 7, Body: executor.Queued{Position: 2}},
		executor.Event{Body: executor.Output{Stream: executor.Stdout, Data: data}})
	if err != nil || !created {
		t.Fatalf("Create = created %t, error %v", created, err)
	}
	data[0] = 'X'
	want := newRecord(1)
	want.LastSeq, want.StdoutBytes = 2, 3
	for name, r := range map[string]executor.Record{"Create": got, "Get": get(t, s, r.ID)} {
		r.LogBytes = 0
		if !reflect.DeepEqual(r, want) {
			t.Errorf("%s returned %+v\nwant %+v", name, r, want)
		}
	}
	appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
	events := replay(t, s, newID(1), 0)
	gapless(t, events, 0)
	if len(events) != 3 || !reflect.DeepEqual(events[0].Body, executor.Queued{Position: 2}) || !reflect.DeepEqual(events[1].Body, output(0, "abc")) {
		t.Errorf("the log is %+v", events)
	}
}

func logBytes(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	last := int64(0)
	for i := range 5 {
		appendAll(t, s, newID(1), output(int64(i)*100, string(bytes.Repeat([]byte("x"), 100))))
		r := get(t, s, newID(1))
		if r.LogBytes < last+100 || r.LogBytes > last+1000 {
			t.Errorf("LogBytes went from %d to %d for 100 bytes of output", last, r.LogBytes)
		}
		last = r.LogBytes
	}
	page, err := s.List(awaittest.Context(t), executor.Filter{})
	if err != nil || page[0].LogBytes != last {
		t.Errorf("List says %d bytes, Get %d, error %v", page[0].LogBytes, last, err)
	}
	updated, err := s.Update(awaittest.Context(t), newID(1), func(u *executor.Record) { u.LogBytes = 0 })
	if err != nil || updated.LogBytes != last {
		t.Errorf("Update made it %d bytes, want %d, error %v", updated.LogBytes, last, err)
	}
}

func noCrossTalk(t *testing.T, s executor.Store) {
	const n, rounds = 12, 30
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := newRecord(i)
			if _, _, err := s.Create(awaittest.Context(t), r); err != nil {
				t.Errorf("Create: %v", err)
				return
			}
			for j := range rounds {
				if err := s.Append(awaittest.Context(t), r.ID, executor.Event{Body: output(int64(j)*32, r.ID)}); err != nil {
					t.Errorf("Append: %v", err)
				}
			}
			if err := s.Append(awaittest.Context(t), r.ID, executor.Event{Body: finished(executor.StatusSucceeded)}); err != nil {
				t.Errorf("Append: %v", err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		events := replay(t, s, newID(i), 0)
		gapless(t, events, 0)
		if len(events) != rounds+1 {
			t.Errorf("%s has %d events, want %d", newID(i), len(events), rounds+1)
		}
		for _, e := range events {
			if o, ok := e.Body.(executor.Output); ok && string(o.Data) != newID(i) {
				t.Fatalf("%s has an event of %s", newID(i), o.Data)
			}
		}
	}
}

func finishedRace(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	var wg sync.WaitGroup
	var wins atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for {
				err := s.Append(awaittest.Context(t), newID(1), executor.Event{Body: executor.Progress{}})
				if i%2 == 0 && err == nil {
					err = s.Append(awaittest.Context(t), newID(1), executor.Event{Body: finished(executor.StatusKilled)})
					if err == nil {
						wins.Add(1)
					}
				}
				if err != nil {
					wantCode(t, "the loser's Append", err, executor.Conflict)
					return
				}
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d Appends of Finished succeeded", wins.Load())
	}
	events := replay(t, s, newID(1), 0)
	gapless(t, events, 0)
	for i, e := range events {
		if _, ok := e.Body.(executor.Finished); ok != (i == len(events)-1) {
			t.Errorf("event %d of %d is %s", e.Seq, len(events), e.Body.Kind())
		}
	}
}
