package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// never keeps the checkpointer from its work, so that a test knows what is where.
const never = time.Hour

func mustOpen(t testing.TB, path string) *Store {
	t.Helper()
	return mustOpenDelayed(t, path, checkpointDelay)
}

func mustOpenDelayed(t testing.TB, path string, delay time.Duration) *Store {
	t.Helper()
	s, err := openDelayed(path, Options{}, delay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func create(t testing.TB, s *Store, id string) {
	t.Helper()
	r := executor.Record{Execution: executor.Execution{ID: id, Owner: "local", Status: executor.StatusQueued}}
	if _, _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func emit(t testing.TB, s *Store, id string, bodies ...executor.Body) {
	t.Helper()
	for _, b := range bodies {
		if err := s.Append(t.Context(), id, executor.Event{Body: b}); err != nil {
			t.Fatal(err)
		}
	}
}

func text(offset int, data string) executor.Output {
	return executor.Output{Stream: executor.Stdout, Offset: int64(offset), Data: []byte(data)}
}

var done = executor.Finished{Result: executor.Result{Status: executor.StatusSucceeded}}

// crashed copies a store's files as a crash at this moment leaves them.
func crashed(t *testing.T, path string) map[string][]byte {
	t.Helper()
	for range 100 {
		files, err := copied(filepath.Dir(path))
		if err == nil {
			return files
		}
		if !errors.Is(err, fs.ErrNotExist) { // else its log was moved meanwhile: what was copied is of no one moment
			t.Fatal(err)
		}
	}
	t.Fatal("the log is moved again and again")
	return nil
}

func copied(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		files[entry.Name()] = raw
	}
	return files, nil
}

// restored writes files into a folder of its own and opens the store there.
func restored(t *testing.T, files map[string][]byte) *Store {
	t.Helper()
	dir := t.TempDir()
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mustOpen(t, filepath.Join(dir, "store.db"))
}

func wal(files map[string][]byte, n int) string {
	for name := range files {
		if strings.HasSuffix(name, fmt.Sprintf(".wal.%016x", n)) {
			return name
		}
	}
	return ""
}

// prefixOf checks that a log is a beginning of twelve events and returns how many.
func prefixOf(t *testing.T, s *Store, id string) int {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	if executor.CodeOf(err) == executor.NotFound {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.LastSeq == 0 {
		return 0
	}
	n := 0
	for e, err := range s.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if o, ok := e.Body.(executor.Output); e.Seq != uint64(n) || (ok && string(o.Data) != fmt.Sprint(n)) { //nolint:gosec // small
			t.Fatalf("event %d is %+v", n, e)
		}
		if e.Seq == r.LastSeq {
			break
		}
	}
	return n
}

func TestALogThatWasCutOrDamagedAnywhereIsABeginningOfItself(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpenDelayed(t, path, never)
	create(t, s, "x")
	for i := 1; i <= 11; i++ {
		emit(t, s, "x", text(i, fmt.Sprint(i)))
	}
	emit(t, s, "x", done)
	files := crashed(t, path)
	name := wal(files, 1)
	whole := files[name]
	last := -1
	for cut := 0; cut <= len(whole); cut += 1 + len(whole)/25 {
		files[name] = whole[:cut]
		n := prefixOf(t, restored(t, files), "x")
		if n < last {
			t.Errorf("cut at %d of %d: %d events, a shorter one had %d", cut, len(whole), n, last)
		}
		last = n
		damaged := bytes.Clone(whole)
		if cut < len(damaged) {
			damaged[cut] ^= 0x40
			files[name] = damaged
			if got := prefixOf(t, restored(t, files), "x"); got > 12 {
				t.Errorf("damaged at %d: %d events", cut, got)
			}
		}
	}
	files[name] = whole
	if n := prefixOf(t, restored(t, files), "x"); n != 12 {
		t.Errorf("the whole log has %d events, want 12", n)
	}
}

func TestALostSegmentEndsTheLogBeforeIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpenDelayed(t, path, never)
	create(t, s, "x")
	emit(t, s, "x", text(1, "1"), text(2, "2"), text(3, "3"))
	before := crashed(t, path)
	if err := s.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	emit(t, s, "x", text(4, "4"), text(5, "5"))
	after := crashed(t, path)
	if wal(after, 1) != "" || wal(after, 2) == "" {
		t.Fatal("a checkpoint keeps the old segment or makes no new one")
	}
	// A crash after the new segment was begun and before bbolt had the old one: both are there, bbolt is old.
	both := map[string][]byte{"store.db": before["store.db"], wal(before, 1): before[wal(before, 1)], wal(after, 2): after[wal(after, 2)]}
	if n := prefixOf(t, restored(t, both), "x"); n != 5 {
		t.Errorf("both segments: %d events, want 5", n)
	}
	// A crash after bbolt had it and before the old segment was removed: nothing comes twice.
	both["store.db"] = after["store.db"]
	if n := prefixOf(t, restored(t, both), "x"); n != 5 {
		t.Errorf("both segments and a new bbolt: %d events, want 5", n)
	}
	// A power failure that took the end of the old segment and left the new one: what is behind the gap is dropped.
	both["store.db"] = before["store.db"]
	both[wal(before, 1)] = before[wal(before, 1)][:len(before[wal(before, 1)])-3]
	if n := prefixOf(t, restored(t, both), "x"); n != 2 {
		t.Errorf("a gap: %d events, want 2", n)
	}
}

func TestCheckpointsLoseNothingWhileOthersWriteAndRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpenDelayed(t, path, time.Microsecond)
	create(t, s, "x")
	const n = 400
	finished := make(chan error)
	go func() {
		for i := 1; i <= n; i++ {
			if err := s.Append(t.Context(), "x", executor.Event{Body: text(i, fmt.Sprint(i))}); err != nil {
				finished <- err
				return
			}
			if i%40 == 0 {
				create(t, s, fmt.Sprintf("y%d", i))
				if err := s.Delete(t.Context(), fmt.Sprintf("y%d", i-40)); err != nil {
					finished <- err
					return
				}
			}
		}
		finished <- s.Append(t.Context(), "x", executor.Event{Body: done})
	}()
	for i := 0; ; i++ {
		select {
		case err := <-finished:
			if err != nil {
				t.Fatal(err)
			}
			if got := prefixOf(t, s, "x"); got != n+1 {
				t.Errorf("%d events, want %d", got, n+1)
			}
			if got := prefixOf(t, restored(t, crashed(t, path)), "x"); got != n+1 {
				t.Errorf("%d events after a crash, want %d", got, n+1)
			}
			return
		default:
			if got := prefixOf(t, s, "x"); got < 0 {
				t.Fatal("the execution is gone")
			}
		}
	}
}

func TestMemoryHoldsNoMoreThanItsBounds(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	const n = 3 * cacheEntries
	for i := range n {
		id := fmt.Sprintf("exe_%06d", i)
		create(t, s, id)
		emit(t, s, id, text(0, strings.Repeat("x", 3000)), done)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, s.path)
	for i := range n {
		if _, err := s.Get(t.Context(), fmt.Sprintf("exe_%06d", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, e := range s.entries {
		size += e.headBytes
		if len(e.pending) > 0 || e.refs > 0 {
			t.Errorf("%s is in use", e.id)
		}
	}
	if len(s.entries) > cacheEntries || len(s.entries) != s.cache.Len() || size != s.cacheSize {
		t.Errorf("%d heads of %d bytes in memory, the cache says %d of %d", len(s.entries), size, s.cache.Len(), s.cacheSize)
	}
}

func TestDeletedLogsGiveTheirSpaceBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	const rounds, pieces = 10, 40 // 100 MiB in all, never more than 10 at a time
	for round := range rounds {
		s := mustOpen(t, path)
		id := fmt.Sprintf("exe_%d", round)
		create(t, s, id)
		for i := range pieces {
			emit(t, s, id, text(i, strings.Repeat("x", executor.MaxOutputData)))
		}
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(4 * pieces * executor.MaxOutputData); info.Size() > most {
		t.Errorf("the file has %d bytes after logs were written and deleted, want at most %d", info.Size(), most)
	}
}

func TestOldDeletedIdsAreForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpen(t, path)
	const extra = 5
	for i := range maxPurged + extra {
		id := fmt.Sprintf("exe_%06d", i)
		create(t, s, id)
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, path)
		if s.purged != maxPurged {
			t.Errorf("%d ids are remembered", s.purged)
		}
	}
	for i, want := range map[int]executor.Code{extra - 1: executor.NotFound, extra: executor.Purged} {
		if _, err := s.Get(t.Context(), fmt.Sprintf("exe_%06d", i)); executor.CodeOf(err) != want {
			t.Errorf("id %d: %v, want %s", i, err, want)
		}
	}
}

func TestAFullSegmentThatHoldsNothingNewStopsNobody(t *testing.T) {
	t.Parallel()
	s := mustOpenDelayed(t, filepath.Join(t.TempDir(), "store"), never)
	create(t, s, "exe_1")
	emit(t, s, "exe_1", executor.Started{}, text(0, strings.Repeat("x", maxWaitingBytes)))
	// As after a checkpoint that failed when it had made its segment, and the next one found that segment empty.
	if err := s.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(nil) // an Append that has to wait fails at once
	if err := s.Append(ended, "exe_1", executor.Event{Body: text(maxWaitingBytes, "y")}); err != nil {
		t.Errorf("a writer waits although nothing is to be written: %v", err)
	}
}
