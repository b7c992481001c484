package boltstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// failOnce makes the next checkpoints fail, as a full disk does, until the function that it returns is called.
func failOnce(s *Store) (mend func()) {
	bad := &entry{head: &storedHead{}} // bbolt takes no empty key
	s.mu.Lock()
	s.dirty[bad] = struct{}{}
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		delete(s.dirty, bad)
		s.mu.Unlock()
	}
}

func TestACheckpointThatFailsForgetsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpenDelayed(t, path, never)
	create(t, s, "gone")
	if err := s.CreateSession(t.Context(), sessionRecord("gone")); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	create(t, s, "x")
	emit(t, s, "x", text(0, "1"))
	if err := s.CreateSession(t.Context(), sessionRecord("kept")); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Delete(t.Context(), "gone"), s.DeleteSession(t.Context(), "gone")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mend := failOnce(s)
	if err := s.checkpoint(true); err == nil {
		t.Fatal("the checkpoint did not fail")
	}
	mend()
	emit(t, s, "x", text(1, "2"))
	// This one moves all to bbolt, and drops the segments that the one before had to leave.
	if err := s.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	next := restored(t, crashed(t, path))
	if r, err := next.Get(t.Context(), "x"); err != nil || r.LastSeq != 2 {
		t.Errorf("it has %d events, error %v", r.LastSeq, err)
	}
	if _, err := next.GetSessionRecord(t.Context(), "kept"); err != nil {
		t.Errorf("the session: %v", err)
	}
	if _, err := next.Get(t.Context(), "gone"); executor.CodeOf(err) != executor.Purged {
		t.Errorf("the deleted execution: %v", err)
	}
	if _, err := next.GetSessionRecord(t.Context(), "gone"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("the deleted session: %v", err)
	}
}

func sessionRecord(id string) executor.SessionRecord {
	return executor.SessionRecord{Session: executor.Session{ID: id, Owner: "local", Status: executor.SessionActive}}
}

// A crash drops what follows the first record that is missing. So what was promised to be on disk is there only if all that
// was written before it is, in older segments too.
func TestASyncIncludesTheSegmentsBefore(t *testing.T) {
	t.Parallel()
	s := mustOpenDelayed(t, filepath.Join(t.TempDir(), "store.db"), never)
	create(t, s, "not synced")
	number := s.current().number + 1
	fresh, err := createSegment(s.path, number)
	if err != nil {
		t.Fatal(err)
	}
	s.beginCheckpoint(fresh)
	old := s.segments[0]
	whole := old.file
	if old.file, err = os.Open(old.file.Name()); err != nil {
		t.Fatal(err)
	}
	if err := old.file.Close(); err != nil { // so that its fsync fails
		t.Fatal(err)
	}
	_, _, err = s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: "durable", Spec: executor.Spec{Durable: true}}})
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a durable record behind one that cannot be synced: %v", err)
	}
	// Nothing is promised after an fsync that failed.
	if err := s.Append(t.Context(), "not synced", executor.Event{Body: text(0, "x")}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("after it: %v", err)
	}
	s.mu.Lock()
	old.file, s.broken = whole, nil
	s.mu.Unlock()
}

func TestALogWhoseEndIsNotKnownTakesNothingMore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpenDelayed(t, path, never)
	create(t, s, "x")
	emit(t, s, "x", text(0, "1"))
	whole := s.current().file
	broken, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = broken.Close() // neither a write nor a truncation works on it
	s.current().file = broken
	unavailable := func(when string) {
		t.Helper()
		if err := s.Append(t.Context(), "x", executor.Event{Body: text(1, "2")}); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s: %v", when, err)
		}
	}
	unavailable("a write that fails")
	s.current().file = whole
	unavailable("a write after one whose end is not known")
	if r, err := s.Get(t.Context(), "x"); err != nil || r.LastSeq != 1 {
		t.Errorf("it has %d events, error %v", r.LastSeq, err)
	}
	if next := restored(t, crashed(t, path)); prefixOf(t, next, "x") != 1 {
		t.Error("after a restart the log is another")
	}
}

func TestALargeRecordLeavesNoLargeBuffer(t *testing.T) {
	t.Parallel()
	s := mustOpenDelayed(t, filepath.Join(t.TempDir(), "store.db"), never)
	r := executor.Record{Execution: executor.Execution{ID: "x", Spec: executor.Spec{Code: strings.Repeat("#", 2*checkpointBytes)}}}
	if _, _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n := cap(s.buffer); n > checkpointBytes {
		t.Errorf("a buffer of %d bytes is kept", n)
	}
	if err := s.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries["x"]; e != nil && e.spec != nil {
		t.Error("a spec that is on disk is kept in memory")
	}
}
