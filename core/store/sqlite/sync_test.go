package sqlitestore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// withoutDisk calls do while no fsync of the log succeeds.
func withoutDisk(t *testing.T, s *Store, do func()) {
	t.Helper()
	broken, err := os.Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Close(); err != nil { // so that its fsync fails
		t.Fatal(err)
	}
	s.wal.mu.Lock()
	whole := s.wal.file
	s.wal.file = broken
	s.wal.mu.Unlock()
	do()
	s.wal.mu.Lock()
	s.wal.file, s.wal.broken = whole, nil
	s.wal.mu.Unlock()
}

func TestWhatIsDurableWaitsForItsFsyncAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	s.mu.Lock()
	s.flushing = true // no fsync by time
	s.mu.Unlock()
	of := func(id string, durable bool) executor.Record {
		return executor.Record{Execution: executor.Execution{ID: id, Status: executor.StatusQueued, Spec: executor.Spec{Durable: durable}}}
	}
	add := func(id string, durable bool) error {
		_, _, err := s.Create(t.Context(), of(id, durable))
		return err
	}
	update := func(id string) error {
		_, err := s.Update(t.Context(), id, func(r *executor.Record) { r.Attempts++ })
		return err
	}
	session := func(change func(*executor.SessionRecord)) error {
		_, err := s.UpdateSession(t.Context(), "session", change)
		return err
	}
	for id, durable := range map[string]bool{"durable": true, "other": false} {
		if err := add(id, durable); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CreateSession(t.Context(), executor.SessionRecord{Session: executor.Session{ID: "session", Status: executor.SessionActive}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		do      func() error
		durable bool
	}{
		{"Create of a durable execution", func() error { return add("durable too", true) }, true},
		{"Create", func() error { return add("other too", false) }, false},
		{"Update of a durable execution", func() error { return update("durable") }, true},
		{"Update", func() error { return update("other") }, false},
		{"Append to a durable execution", func() error { return s.Append(t.Context(), "durable", executor.Event{Body: executor.Started{}}) }, false},
		{"the end of a durable execution", func() error { return s.Append(t.Context(), "durable", executor.Event{Body: done}) }, true},
		{"the end of an execution", func() error { return s.Append(t.Context(), "other", executor.Event{Body: done}) }, false},
		{"CreateSession", func() error {
			return s.CreateSession(t.Context(), executor.SessionRecord{Session: executor.Session{ID: "new", Status: executor.SessionActive}})
		}, true},
		{"the end of a session", func() error {
			return session(func(r *executor.SessionRecord) { r.Status = executor.SessionClosed })
		}, true},
		{"the use of a session", func() error {
			return session(func(r *executor.SessionRecord) {
				r.LastUsed, r.ExpiresAt, r.Running, r.Waiting = time.Now(), time.Now(), "other", 1
			})
		}, false},
	} {
		withoutDisk(t, s, func() {
			want := executor.Code("")
			if c.durable {
				want = executor.Unavailable
			}
			if err := c.do(); executor.CodeOf(err) != want {
				t.Errorf("%s without a disk: %v", c.name, err)
			}
		})
	}
}
