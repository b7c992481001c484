package storetest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

type durableCase struct {
	id   string
	name string
	run  func(t *testing.T, open func() (executor.Store, error))
}

func durableCases() []durableCase {
	return []durableCase{
		{"ST-30", "everything is there after reopening", reopenKeeps},
		{"ST-31", "deleted stays deleted after reopening", reopenPurged},
		{"ST-32", "a log goes on after reopening", reopenGoesOn},
		{"ST-33", "keys, order and filters hold after reopening", reopenIndexes},
		{"ST-34", "a second opening is refused", openTwice},
		{"ST-35", "sessions are there after reopening", reopenSessions},
		{"ST-36", "a large spec is whole after reopening", reopenLargeSpec},
	}
}

// RunDurable checks the rules of a Store that outlives its process. prepare makes an empty data folder and returns a function
// that opens the Store in that folder. Each Store is closed before the next is opened.
func RunDurable(t *testing.T, prepare func(t *testing.T) (open func() (executor.Store, error))) {
	t.Helper()
	for _, c := range durableCases() {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, prepare(t))
		})
	}
}

// largeCases measure allocations, so no other test may run at the same time.
func largeCases() []durableCase {
	return []durableCase{{"ST-37", "large specs are not read", largeSpecsUnread}}
}

// RunLarge checks the rules about memory of a Store that outlives its process. prepare is as for RunDurable. The caller must
// not be a parallel test.
func RunLarge(t *testing.T, prepare func(t *testing.T) (open func() (executor.Store, error))) {
	t.Helper()
	for _, c := range largeCases() {
		t.Run(c.id+" "+c.name, func(t *testing.T) { c.run(t, prepare(t)) })
	}
}

// session runs f on an open Store and closes it.
func session(t *testing.T, open func() (executor.Store, error), f func(s executor.Store)) {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	f(s)
}

func reopenKeeps(t *testing.T, open func() (executor.Store, error)) {
	var wantHead executor.Record
	var wantLog []executor.Event
	session(t, open, func(s executor.Store) {
		roundTrip(t, s)
		if _, err := s.Update(awaittest.Context(t), newID(1), func(u *executor.Record) { u.ArtifactsBlob, u.Attempts = "a", 2 }); err != nil {
			t.Fatal(err)
		}
		wantHead, wantLog = get(t, s, newID(1)), replay(t, s, newID(1), 0)
	})
	for range 2 {
		session(t, open, func(s executor.Store) {
			if got := get(t, s, newID(1)); !reflect.DeepEqual(got, wantHead) {
				t.Errorf("the head is %+v\nwant %+v", got, wantHead)
			}
			if got := replay(t, s, newID(1), 0); !reflect.DeepEqual(got, wantLog) {
				t.Errorf("the log has %d events that differ from the %d before", len(got), len(wantLog))
			}
		})
	}
}

func reopenPurged(t *testing.T, open func() (executor.Store, error)) {
	r := newRecord(1)
	r.Spec.IdempotencyKey = "k"
	session(t, open, func(s executor.Store) {
		create(t, s, r)
		appendAll(t, s, r.ID, executor.Queued{}, finished(executor.StatusSucceeded))
	})
	session(t, open, func(s executor.Store) {
		if err := s.Delete(awaittest.Context(t), r.ID); err != nil {
			t.Fatal(err)
		}
	})
	session(t, open, func(s executor.Store) {
		_, err := s.Get(awaittest.Context(t), r.ID)
		wantCode(t, "Get", err, executor.Purged)
		r.ID = newID(2)
		create(t, s, r)
		page, err := s.List(awaittest.Context(t), executor.Filter{})
		if err != nil || len(page) != 1 || page[0].ID != newID(2) {
			t.Errorf("List has %d records, error %v", len(page), err)
		}
	})
}

func reopenGoesOn(t *testing.T, open func() (executor.Store, error)) {
	const sessions = 4
	session(t, open, func(s executor.Store) { create(t, s, newRecord(1)) })
	last := int64(0)
	for i := range sessions {
		session(t, open, func(s executor.Store) {
			if got := get(t, s, newID(1)).LogBytes; got != last {
				t.Errorf("LogBytes is %d after reopening, was %d", got, last)
			}
			for j := range 10 {
				appendAll(t, s, newID(1), output(int64(i*10+j), "x"))
			}
			gapless(t, head(t, s, newID(1), (i+1)*10), 0)
			last = get(t, s, newID(1)).LogBytes
		})
	}
	session(t, open, func(s executor.Store) {
		appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
		events := replay(t, s, newID(1), 0)
		gapless(t, events, 0)
		if len(events) != sessions*10+1 {
			t.Errorf("%d events, want %d", len(events), sessions*10+1)
		}
		wantCode(t, "Append after Finished", s.Append(awaittest.Context(t), newID(1), executor.Event{Body: executor.Queued{}}), executor.Conflict)
	})
	session(t, open, func(s executor.Store) {
		wantCode(t, "Append after Finished", s.Append(awaittest.Context(t), newID(1), executor.Event{Body: executor.Queued{}}), executor.Conflict)
	})
}

func reopenIndexes(t *testing.T, open func() (executor.Store, error)) {
	session(t, open, func(s executor.Store) { listFilters(t, s) })
	session(t, open, func(s executor.Store) {
		page, err := s.List(awaittest.Context(t), executor.Filter{Owner: "ann", Statuses: []executor.Status{executor.StatusRunning}})
		if err != nil || len(page) != 2 || page[0].ID != newID(8) || page[1].ID != newID(2) {
			t.Errorf("List has %d records, error %v", len(page), err)
		}
		r := newRecord(20)
		r.Spec.IdempotencyKey = "k"
		create(t, s, r)
		appendAll(t, s, newID(2), finished(executor.StatusKilled))
	})
	session(t, open, func(s executor.Store) {
		r := newRecord(21)
		r.Spec.IdempotencyKey = "k"
		got, created, err := s.Create(awaittest.Context(t), r)
		if err != nil || created || got.ID != newID(20) {
			t.Errorf("Create with a known key gave %s, created %t, error %v", got.ID, created, err)
		}
		page, err := s.List(awaittest.Context(t), executor.Filter{Statuses: []executor.Status{executor.StatusKilled}})
		if err != nil || len(page) != 1 || page[0].ID != newID(2) {
			t.Errorf("List has %d records, error %v", len(page), err)
		}
	})
}

func openTwice(t *testing.T, open func() (executor.Store, error)) {
	session(t, open, func(s executor.Store) {
		second, err := open()
		if err == nil {
			t.Error("the second opening succeeded")
			_ = second.Close()
		}
		wantCode(t, "the second opening", err, executor.Unavailable)
		if err != nil && !strings.Contains(err.Error(), "/") {
			t.Errorf("the error names no path: %v", err)
		}
		create(t, s, newRecord(1))
	})
}
