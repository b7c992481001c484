package sqlitestore

import (
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// withoutDisk calls do while no fsync of the log succeeds.
func withoutDisk(t *testing.T, s *Store, do func()) {
	t.Helper()
	set := func(fsync func() error) (before func() error) {
		s.wal.mu.Lock()
		defer s.wal.mu.Unlock()
		before, s.wal.fsync, s.wal.broken = s.wal.fsync, fsync, nil
		return before
	}
	before := set(func() error { return syscall.EIO })
	do()
	set(before)
}

// TestAnFsyncIsForAllThatWaitAndForNothingLater: one fsync serves all who wait for it, but not a commit that comes meanwhile.
func TestAnFsyncIsForAllThatWaitAndForNothingLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{})
		fsyncs := 0
		w := &wal{fsync: func() error {
			fsyncs++
			<-running
			return nil
		}}
		w.done = sync.NewCond(&w.mu)
		first := w.wrote()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := w.sync(first); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		second := w.wrote()
		close(running)
		wg.Wait()
		if fsyncs != 1 {
			t.Errorf("%d fsyncs for one commit", fsyncs)
		}
		for range 2 {
			if err := w.sync(second); err != nil || fsyncs != 2 {
				t.Errorf("%d fsyncs for two commits, error %v", fsyncs, err)
			}
		}
	})
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

func TestTheNameOfTheLogIsOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var synced []string
	w, err := newWAL(filepath.Join(dir, "store"), func(path string) error {
		synced = append(synced, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(synced, []string{dir}) {
		t.Errorf("%v was brought to disk, want %s", synced, dir)
	}
}
