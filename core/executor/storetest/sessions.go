package storetest

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func sessionCases() []storeCase {
	return []storeCase{
		{"ST-24", "create a session then get it", sessionCreate},
		{"ST-25", "unknown and deleted sessions", sessionUnknown},
		{"ST-26", "sessions are listed newest first", sessionList},
		{"ST-27", "an update of a session keeps what is fixed", sessionUpdateFixed},
		{"ST-27", "updates of a session are atomic", sessionUpdateAtomic},
		{"ST-28", "sessions are copied in and out", sessionCopies},
		{"ST-29", "sessions and executions do not mix", sessionsApart},
		{"ST-29", "closed for sessions too", sessionClosed},
	}
}

// newSession returns the n-th SessionRecord of a test, with every kind of field set.
func newSession(n int) executor.SessionRecord {
	at := time.Date(2026, 11, 21, 20, 0, n, 123456789, time.UTC)
	return executor.SessionRecord{
		Session: executor.Session{
			ID: sessionID(n), Owner: "ann", Name: "späße \u2028", Description: "d", Language: executor.LanguagePython, Backend: "fake",
			Generation: 3, Status: executor.SessionActive, Reason: "r", CreatedAt: at, LastUsed: at.Add(1), ExpiresAt: at.Add(time.Hour),
			IdleTimeout: time.Hour, MaxLife: 24 * time.Hour,
			Spec:          executor.Spec{Env: map[string]string{"K": "v"}, PreCommands: []string{"true"}, Requirements: "attrs\n"},
			Limits:        executor.Limits{MemoryBytes: 1 << 20, Timeout: time.Minute},
			PythonVersion: "3.12.1", Requirements: []string{"attrs==1"}, ImageDigest: "sha256:1",
			Restarts: 2, Running: "exe_1", Waiting: 4,
		},
		Handle:  []byte{0, 0xff, '\n'},
		EndedAt: at.Add(time.Minute),
	}
}

func sessionID(n int) string { return fmt.Sprintf("ctx-%08d-0000-4000-8000-000000000000", n) }

func openSession(t *testing.T, s executor.Store, r executor.SessionRecord) {
	t.Helper()
	if err := s.CreateSession(awaittest.Context(t), r); err != nil {
		t.Fatalf("CreateSession(%s): %v", r.ID, err)
	}
}

func getSession(t *testing.T, s executor.Store, id string) executor.SessionRecord {
	t.Helper()
	r, err := s.GetSessionRecord(awaittest.Context(t), id)
	if err != nil {
		t.Fatalf("GetSessionRecord(%s): %v", id, err)
	}
	return r
}

func listSessions(t *testing.T, s executor.Store, owner string) []string {
	t.Helper()
	list, err := s.ListSessionRecords(awaittest.Context(t), owner)
	if err != nil {
		t.Fatalf("ListSessionRecords(%q): %v", owner, err)
	}
	ids := make([]string, len(list))
	for i, r := range list {
		ids[i] = r.ID
	}
	return ids
}

func sessionCreate(t *testing.T, s executor.Store) {
	for _, r := range []executor.SessionRecord{newSession(1), {Session: executor.Session{ID: sessionID(2), Owner: "ann"}}} {
		openSession(t, s, r)
		if got := getSession(t, s, r.ID); !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v\nwant %+v", got, r)
		}
	}
	other := newSession(1)
	other.Owner = "eve"
	wantCode(t, "CreateSession of an id that exists", s.CreateSession(awaittest.Context(t), other), executor.Conflict)
	if got := getSession(t, s, sessionID(1)); got.Owner != "ann" {
		t.Error("a create that was refused has changed the session")
	}
	wantCode(t, "CreateSession without an id", s.CreateSession(awaittest.Context(t), executor.SessionRecord{}), executor.Invalid)
	if ids := listSessions(t, s, ""); len(ids) != 2 {
		t.Errorf("there are %q", ids)
	}
}

func sessionUnknown(t *testing.T, s executor.Store) {
	openSession(t, s, newSession(1))
	for range 2 {
		if err := s.DeleteSession(awaittest.Context(t), sessionID(1)); err != nil {
			t.Errorf("DeleteSession: %v", err)
		}
	}
	for _, id := range []string{sessionID(1), sessionID(2), ""} {
		_, err := s.GetSessionRecord(awaittest.Context(t), id)
		wantCode(t, "GetSessionRecord", err, executor.NotFound)
		_, err = s.UpdateSession(awaittest.Context(t), id, func(*executor.SessionRecord) { t.Error("change was called") })
		wantCode(t, "UpdateSession", err, executor.NotFound)
		if err := s.DeleteSession(awaittest.Context(t), id); err != nil {
			t.Errorf("DeleteSession of an unknown id: %v", err)
		}
	}
	if ids := listSessions(t, s, ""); len(ids) != 0 {
		t.Errorf("after its deletion there are %q", ids)
	}
	openSession(t, s, newSession(1))
	if got := getSession(t, s, sessionID(1)); !reflect.DeepEqual(got, newSession(1)) {
		t.Errorf("a new session under a deleted id is %+v", got)
	}
}

func sessionList(t *testing.T, s executor.Store) {
	list, err := s.ListSessionRecords(awaittest.Context(t), "")
	if err != nil || len(list) != 0 {
		t.Errorf("an empty Store lists %d sessions, error %v", len(list), err)
	}
	for _, n := range []int{3, 1, 5, 2, 4} {
		r := newSession(n)
		switch n {
		case 2:
			r.Owner = "bob"
		case 4: // as old as 5
			r.CreatedAt = newSession(5).CreatedAt
		}
		openSession(t, s, r)
	}
	for owner, want := range map[string][]int{"": {5, 4, 3, 2, 1}, "ann": {5, 4, 3, 1}, "bob": {2}, "eve": {}} {
		wantIDs := make([]string, len(want))
		for i, n := range want {
			wantIDs[i] = sessionID(n)
		}
		if got := listSessions(t, s, owner); !reflect.DeepEqual(got, wantIDs) {
			t.Errorf("owner %q: got %q, want %q", owner, got, wantIDs)
		}
	}
}

func sessionUpdateFixed(t *testing.T, s executor.Store) {
	openSession(t, s, newSession(1))
	want := newSession(7)
	got, err := s.UpdateSession(awaittest.Context(t), sessionID(1), func(r *executor.SessionRecord) {
		*r = want
		r.Owner = "eve"
		r.Name = "new"
	})
	if err != nil {
		t.Fatal(err)
	}
	before := newSession(1)
	want.ID, want.CreatedAt, want.Name = before.ID, before.CreatedAt, "new"
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(getSession(t, s, sessionID(1)), want) {
		t.Errorf("UpdateSession made %+v\nwant %+v", got, want)
	}
	if ids := listSessions(t, s, "eve"); len(ids) != 0 {
		t.Errorf("another owner has %q", ids)
	}
}

func sessionUpdateAtomic(t *testing.T, s executor.Store) {
	openSession(t, s, newSession(1))
	const workers, rounds = 8, 25
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				if _, err := s.UpdateSession(awaittest.Context(t), sessionID(1), func(r *executor.SessionRecord) { r.Restarts++ }); err != nil {
					t.Errorf("UpdateSession: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := getSession(t, s, sessionID(1)).Restarts; got != newSession(1).Restarts+workers*rounds {
		t.Errorf("%d restarts of %d were counted", got-newSession(1).Restarts, workers*rounds)
	}
}

func sessionCopies(t *testing.T, s executor.Store) {
	spoil := func(r *executor.SessionRecord) {
		r.Handle[0], r.Requirements[0], r.Spec.Env["K"], r.Spec.PreCommands[0] = 'X', "changed", "changed", "changed"
	}
	given := newSession(1)
	openSession(t, s, given)
	spoil(&given)
	got := getSession(t, s, sessionID(1))
	spoil(&got)
	list, err := s.ListSessionRecords(awaittest.Context(t), "")
	if err != nil || len(list) != 1 {
		t.Fatalf("%d sessions, error %v", len(list), err)
	}
	spoil(&list[0])
	var leaked *executor.SessionRecord
	updated, err := s.UpdateSession(awaittest.Context(t), sessionID(1), func(r *executor.SessionRecord) { leaked = r })
	if err != nil {
		t.Fatal(err)
	}
	spoil(&updated)
	spoil(leaked)
	if got := getSession(t, s, sessionID(1)); !reflect.DeepEqual(got, newSession(1)) {
		t.Errorf("the session was changed from outside: %+v", got)
	}
}

func sessionsApart(t *testing.T, s executor.Store) {
	session := newSession(1)
	session.ID = newID(1)
	openSession(t, s, session)
	create(t, s, newRecord(1))
	if err := s.DeleteSession(awaittest.Context(t), newID(1)); err != nil {
		t.Fatal(err)
	}
	get(t, s, newID(1))
	openSession(t, s, session)
	if err := s.Delete(awaittest.Context(t), newID(1)); err != nil {
		t.Fatal(err)
	}
	getSession(t, s, newID(1))
	page, err := s.List(awaittest.Context(t), executor.Filter{})
	if err != nil || len(page) != 0 {
		t.Errorf("List has %d records, error %v", len(page), err)
	}
}

func sessionClosed(t *testing.T, s executor.Store) {
	openSession(t, s, newSession(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := awaittest.Context(t)
	for name, call := range map[string]func(context.Context) error{
		"CreateSession":      func(ctx context.Context) error { return s.CreateSession(ctx, newSession(2)) },
		"GetSessionRecord":   func(ctx context.Context) error { _, err := s.GetSessionRecord(ctx, sessionID(1)); return err },
		"ListSessionRecords": func(ctx context.Context) error { _, err := s.ListSessionRecords(ctx, ""); return err },
		"UpdateSession": func(ctx context.Context) error {
			_, err := s.UpdateSession(ctx, sessionID(1), func(*executor.SessionRecord) { t.Error("change was called") })
			return err
		},
		"DeleteSession": func(ctx context.Context) error { return s.DeleteSession(ctx, sessionID(1)) },
	} {
		wantCode(t, name+" after Close", call(ctx), executor.Unavailable)
	}
}

func reopenSessions(t *testing.T, open func() (executor.Store, error)) {
	want := newSession(2)
	session(t, open, func(s executor.Store) {
		for n := range 4 {
			openSession(t, s, newSession(n))
		}
		if err := s.DeleteSession(awaittest.Context(t), sessionID(0)); err != nil {
			t.Fatal(err)
		}
		got, err := s.UpdateSession(awaittest.Context(t), sessionID(2), func(r *executor.SessionRecord) { r.Status, r.Handle = executor.SessionLost, nil })
		if err != nil {
			t.Fatal(err)
		}
		want.Status, want.Handle = executor.SessionLost, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("UpdateSession made %+v", got)
		}
	})
	session(t, open, func(s executor.Store) {
		if err := s.DeleteSession(awaittest.Context(t), sessionID(3)); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 {
		session(t, open, func(s executor.Store) {
			if ids := listSessions(t, s, ""); !reflect.DeepEqual(ids, []string{sessionID(2), sessionID(1)}) {
				t.Errorf("after reopening there are %q", ids)
			}
			if got := getSession(t, s, sessionID(1)); !reflect.DeepEqual(got, newSession(1)) {
				t.Errorf("after reopening it is %+v", got)
			}
			if got := getSession(t, s, sessionID(2)); !reflect.DeepEqual(got, want) {
				t.Errorf("after reopening the updated one is %+v", got)
			}
		})
	}
}
