package sqlitestore

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func mustOpen(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{})
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

func checkpoint(t *testing.T, s *Store) {
	t.Helper()
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	if err := s.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
}

func countPurged(t *testing.T, s *Store) (n int) {
	t.Helper()
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	if _, err := s.one("SELECT count(*) FROM purged", nil, []any{&n}); err != nil {
		t.Fatal(err)
	}
	return n
}

// crashed copies a store's files as a crash at this moment leaves them.
func crashed(t *testing.T, s *Store) map[string][]byte {
	t.Helper()
	s.dbLock.Lock() // nothing is moved between them meanwhile
	defer s.dbLock.Unlock()
	dir := filepath.Dir(s.path)
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			files[name], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// restored writes files into a folder of its own and opens the store there.
func restored(t *testing.T, files map[string][]byte) *Store {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(outputDir(filepath.Join(dir, "store.db")), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mustOpen(t, filepath.Join(dir, "store.db"))
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
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	checkpoint(t, s) // the schema
	create(t, s, "x")
	for i := 1; i <= 11; i++ {
		emit(t, s, "x", text(i, fmt.Sprint(i)))
	}
	emit(t, s, "x", done)
	files := crashed(t, s)
	const name = "store.db-wal"
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

func TestCheckpointsLoseNothingWhileOthersWriteAndRead(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
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
			if got := prefixOf(t, restored(t, crashed(t, s)), "x"); got != n+1 {
				t.Errorf("%d events after a crash, want %d", got, n+1)
			}
			return
		default:
			checkpoint(t, s)
			if got := prefixOf(t, s, "x"); got < 0 {
				t.Fatal("the execution is gone")
			}
		}
	}
}

func TestMemoryHoldsNoMoreThanItsBounds(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	const n = 3 * maxRecent
	check := func() {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.entries {
			if e.refs > 0 || len(e.tail) > 0 || !e.head.Status.Terminal() {
				t.Errorf("%s has %d users and %d events in memory", e.id, e.refs, len(e.tail))
			}
		}
		if len(s.entries) != maxRecent {
			t.Errorf("%d executions are in memory", len(s.entries))
		}
	}
	for i := range n {
		id := fmt.Sprintf("exe_%06d", i)
		create(t, s, id)
		emit(t, s, id, text(0, strings.Repeat("x", 3000)), done)
	}
	check()
	for i := range n {
		if _, err := s.Get(t.Context(), fmt.Sprintf("exe_%06d", i)); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Get(t.Context(), "unknown")
	}
	check()
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
	if bound := int64(4 * pieces * executor.MaxOutputData); info.Size() > bound {
		t.Errorf("the file has %d bytes after logs were written and deleted, want at most %d", info.Size(), bound)
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
		if n := countPurged(t, s); n != maxPurged {
			t.Errorf("%d ids are remembered", n)
		}
	}
	for i, want := range map[int]executor.Code{extra - 1: executor.NotFound, extra: executor.Purged} {
		if _, err := s.Get(t.Context(), fmt.Sprintf("exe_%06d", i)); executor.CodeOf(err) != want {
			t.Errorf("id %d: %v, want %s", i, err, want)
		}
	}
}
