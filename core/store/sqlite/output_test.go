package sqlitestore

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

var large = strings.Repeat("x", 2*maxInlineBytes)

// withOutput returns the files of a store whose Execution x has a small Output and two large ones.
func withOutput(t *testing.T, more ...executor.Body) map[string][]byte {
	t.Helper()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	emit(t, s, "x", executor.Started{}, text(0, "x"), text(1, large), text(1+len(large), large))
	emit(t, s, "x", more...)
	files := crashed(t, s)
	if len(files[filepath.Join("store.db.output", "1")]) != 2*len(large) {
		t.Fatalf("no file has the large outputs: %d files", len(files))
	}
	return files
}

func read(t *testing.T, s *Store, id string, last uint64) (text string, err error) {
	t.Helper()
	for e, err := range s.Events(t.Context(), id, 0) {
		if err != nil {
			return text, err
		}
		if o, ok := e.Body.(executor.Output); ok {
			text += string(o.Data)
		}
		if e.Seq == last {
			break
		}
	}
	return text, nil
}

func TestOutputThatAPowerFailureTookEndsTheLogOfWhatRuns(t *testing.T) {
	t.Parallel()
	files := withOutput(t, text(1+2*len(large), "y"))
	name := filepath.Join("store.db.output", "1")
	files[name] = files[name][:len(files[name])-1]
	s := restored(t, files)
	if r, err := s.Get(t.Context(), "x"); err != nil || r.LastSeq != 3 || r.StdoutBytes != int64(1+len(large)) {
		t.Fatalf("%d events and %d bytes are left, error %v", r.LastSeq, r.StdoutBytes, err)
	}
	emit(t, s, "x", text(1+len(large), strings.ToUpper(large)), done)
	if got, err := read(t, s, "x", 0); err != nil || got != "x"+large+strings.ToUpper(large) {
		t.Errorf("the log has %d bytes, error %v", len(got), err)
	}
	if got, err := read(t, restored(t, crashed(t, s)), "x", 0); err != nil || got != "x"+large+strings.ToUpper(large) {
		t.Errorf("the log has %d bytes after another crash, error %v", len(got), err)
	}
}

func TestTheHeadOfWhatRunsIsTheSameAfterAKill(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	emit(t, s, "x", executor.Started{}, text(0, "x"), text(1, large), text(1+len(large), "y"))
	before, err := s.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	after, err := restored(t, crashed(t, s)).Get(t.Context(), "x")
	if err != nil || after.LogBytes != before.LogBytes || after.StdoutBytes != before.StdoutBytes || after.LastSeq != before.LastSeq {
		t.Errorf("%+v became %+v, error %v", before, after, err)
	}
}

func TestFilesOfDeletedExecutionsAreRemoved(t *testing.T) {
	t.Parallel()
	files := withOutput(t)
	orphan := filepath.Join("store.db.output", "2")
	files[orphan] = []byte("as a crash within Delete leaves it")
	s := restored(t, files)
	if _, err := os.Stat(outputPath(s.path, 2)); !os.IsNotExist(err) {
		t.Errorf("a file without an execution: %v", err)
	}
	if got, err := read(t, s, "x", 4); err != nil || got != "x"+large+large {
		t.Errorf("%d bytes were read, error %v", len(got), err)
	}
	if err := s.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(outputDir(s.path)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, error %v", left, err)
	}
}

func TestLargeOutputIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	const pieces = 8
	for i := range pieces {
		emit(t, s, "x", text(i*executor.MaxOutputData, strings.Repeat("x", executor.MaxOutputData)))
	}
	size := 0
	for _, content := range crashed(t, s) {
		size += len(content)
	}
	if bound := (pieces + 1) * executor.MaxOutputData; size > bound {
		t.Errorf("%d bytes of output take %d bytes on disk", pieces*executor.MaxOutputData, size)
	}
}

func TestNothingIsPromisedAfterAnFsyncThatFailed(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	withoutDisk(t, s, func() {
		_, _, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: "y", Spec: executor.Spec{Durable: true}}})
		if executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a durable record that cannot be synced: %v", err)
		}
		if err := s.Append(t.Context(), "x", executor.Event{Body: text(0, "x")}); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("after it: %v", err)
		}
	})
}

func TestLostOutputLeavesTheRestOfAnEndedExecution(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"a missing file": os.Remove,
		"a short file":   func(path string) error { return os.Truncate(path, int64(len(large))-1) },
	} {
		s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
		create(t, s, "x")
		emit(t, s, "x", text(0, large), text(len(large), "!"), done)
		if err := damage(outputPath(s.path, 1)); err != nil {
			t.Fatal(err)
		}
		s = restored(t, crashed(t, s))
		if got, err := read(t, s, "x", 0); err != nil || got != "!" {
			t.Errorf("%s: read %.20q, error %v", name, got, err)
		}
		var events []executor.Event
		for event, err := range s.Events(t.Context(), "x", 0) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, event)
		}
		want := fmt.Sprintf("%d bytes of stdout are lost: the server's disk does not have them", len(large))
		if len(events) != 3 || events[0].Body != (executor.Progress{Phase: executor.PhaseRun, Message: want}) {
			t.Errorf("%s: the log is %+v", name, events)
		}
	}
}

// A follower may be behind a batch whose large outputs lie in a file that is gone.
func TestAFollowerOfADeletedExecutionIsToldSo(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	for _, ends := range []bool{false, true} {
		create(t, s, "x")
		emit(t, s, "x", text(0, large), text(len(large), large))
		if ends {
			emit(t, s, "x", done)
		}
		next, stop := iter.Pull2(s.Events(t.Context(), "x", 0))
		defer stop()
		if _, err, ok := next(); err != nil || !ok {
			t.Fatalf("no event: %v", err)
		}
		for i := range 2 * maxRecent { // so that x is not among the last ones
			id := fmt.Sprintf("%t %d", ends, i)
			create(t, s, id)
			emit(t, s, id, done)
		}
		if err := s.Delete(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if e, err, _ := next(); executor.CodeOf(err) != executor.Purged {
			t.Errorf("ended %t: got %+v, error %v", ends, e.Body, err)
		}
	}
}

func TestTheEndOfADurableRecordWaitsForItsOutput(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	r := executor.Record{Execution: executor.Execution{ID: "x", Status: executor.StatusQueued, Spec: executor.Spec{Durable: true}}}
	if _, _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	emit(t, s, "x", text(0, large))
	path := outputPath(s.path, 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path); err != nil { // so that it cannot be synced
		t.Fatal(err)
	}
	emit(t, s, "x", text(len(large), "!")) // only the end waits
	if err := s.Append(t.Context(), "x", executor.Event{Body: done}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("an end without its output: %v", err)
	}
	if r, err := s.Get(t.Context(), "x"); err != nil || r.Status.Terminal() {
		t.Errorf("it is %s, error %v", r.Status, err)
	}
}

// A file is on disk when its content is, and then its name in the folder.
func TestTheEndOfADurableRecordWaitsForTheNameOfItsOutput(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	var synced []string
	broken := false
	s, err := Open(path, Options{sync: func(name string) error {
		synced = append(synced, name)
		if broken && name == outputDir(path) {
			return syscall.EIO
		}
		return syncPath(name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !slices.Equal(synced, []string{filepath.Dir(path)}) {
		t.Errorf("a new store has synced %q, want the folder of its files", synced)
	}
	for _, durable := range []bool{false, true} {
		id := strconv.FormatBool(durable)
		r := executor.Record{Execution: executor.Execution{ID: id, Status: executor.StatusQueued, Spec: executor.Spec{Durable: durable}}}
		if _, _, err := s.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		emit(t, s, id, text(0, large))
		synced, broken = nil, true
		code, want := executor.Code(""), []string(nil)
		if durable {
			code, want = executor.Unavailable, []string{outputPath(path, 2), outputDir(path)}
		}
		if err := s.Append(t.Context(), id, executor.Event{Body: done}); executor.CodeOf(err) != code || !slices.Equal(synced, want) {
			t.Errorf("durable %t: the end says %v, and has synced %q", durable, err, synced)
		}
		broken = false
	}
	emit(t, s, "true", done)
}

func TestATransactionThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	emit(t, s, "x", text(0, "x"))
	session := executor.SessionRecord{Session: executor.Session{ID: "session", Owner: "local", Status: executor.SessionActive}}
	unavailable := func(what string, err error) {
		t.Helper()
		if executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	withKey := executor.Record{Execution: executor.Execution{ID: "y", Spec: executor.Spec{Code: strings.Repeat("#", 2*executor.BriefBytes), IdempotencyKey: "k"}}}
	withoutCommit(t, s, func() {
		unavailable("Append", s.Append(t.Context(), "x", executor.Event{Body: text(1, large)}, executor.Event{Body: done}))
		unavailable("Delete", s.Delete(t.Context(), "x"))
		_, _, err := s.Create(t.Context(), withKey)
		unavailable("Create", err)
	})
	if _, err := s.Get(t.Context(), "y"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("what was not created: %v", err)
	}
	withKey.ID = "z"
	if r, created, err := s.Create(t.Context(), withKey); err != nil || !created {
		t.Errorf("the key of what was not created: %+v, %t, %v", r.ID, created, err)
	}
	if err := s.CreateSession(t.Context(), session); err != nil {
		t.Error(err)
	}
	emit(t, s, "x", text(1, strings.ToUpper(large)), done)
	if size, err := s.outputSize(1); err != nil || size != int64(len(large)) {
		t.Errorf("the file has %d bytes, want %d, error %v", size, len(large), err)
	}
	for _, s := range []*Store{s, restored(t, crashed(t, s))} {
		if got, err := read(t, s, "x", 0); err != nil || got != "x"+strings.ToUpper(large) {
			t.Errorf("the log has %d bytes, error %v", len(got), err)
		}
		if n := countPurged(t, s); n != 0 {
			t.Errorf("%d ids are remembered as deleted", n)
		}
	}
}

// withoutCommit calls do while no transaction succeeds.
func withoutCommit(t *testing.T, s *Store, do func()) {
	t.Helper()
	s.dbLock.Lock()
	commit := s.prepared["COMMIT"]
	bad, err := s.db.PrepareContext(t.Context(), "SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Close(); err != nil {
		t.Fatal(err)
	}
	s.prepared["COMMIT"] = bad
	s.dbLock.Unlock()
	do()
	s.dbLock.Lock()
	if s.prepared["COMMIT"] = commit; commit == nil {
		delete(s.prepared, "COMMIT")
	}
	s.dbLock.Unlock()
}

// flood appends 10 MiB of output, in pieces with different bytes, and ends the Execution.
func flood(t *testing.T, s *Store) (pieces int) {
	t.Helper()
	create(t, s, "x")
	pieces = 10 << 20 / executor.MaxOutputData
	for i := range pieces {
		emit(t, s, "x", text(i*executor.MaxOutputData, strings.Repeat(string(rune('A'+i)), executor.MaxOutputData)))
	}
	emit(t, s, "x", done)
	return pieces
}

// Not parallel, because it counts the bytes that this process allocates.
func TestAFollowerThatBorrowsDataNeedsOneBuffer(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	pieces := flood(t, s)
	for range 2 { // from the database, and with the file open
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		seen := 0
		for e, err := range s.Events(executor.WithBorrowedData(t.Context()), "x", 0) {
			if err != nil {
				t.Fatal(err)
			}
			if o, ok := e.Body.(executor.Output); ok {
				if len(o.Data) != executor.MaxOutputData || bytes.Count(o.Data, []byte{byte('A' + seen)}) != len(o.Data) {
					t.Fatalf("piece %d has other bytes", seen)
				}
				seen++
			}
		}
		runtime.ReadMemStats(&after)
		if seen != pieces {
			t.Errorf("%d pieces, want %d", seen, pieces)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
			t.Errorf("a follower of 10 MiB allocated %d bytes", n)
		}
	}
}

func TestDataThatIsNotBorrowedStays(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	pieces := flood(t, s)
	var kept [][]byte
	for e, err := range s.Events(t.Context(), "x", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := e.Body.(executor.Output); ok {
			kept = append(kept, o.Data)
		}
	}
	if len(kept) != pieces {
		t.Fatalf("%d pieces, want %d", len(kept), pieces)
	}
	for i, data := range kept {
		if data[0] != byte('A'+i) {
			t.Fatalf("piece %d was overwritten with %c", i, data[0])
		}
	}
}

func TestTheFileOfAnExecutionIsClosedWhenNobodyUsesIt(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	open := func() (n int) {
		t.Helper()
		links, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if to, err := os.Readlink("/proc/self/fd/" + link.Name()); err == nil && strings.HasPrefix(to, outputDir(s.path)) {
				n++
			}
		}
		return n
	}
	for _, id := range []string{"x", "y", "z"} {
		create(t, s, id)
		emit(t, s, id, text(0, large))
	}
	if n := open(); n != 3 {
		t.Errorf("%d files are open for three executions that run", n)
	}
	emit(t, s, "x", done)
	if err := s.Delete(t.Context(), "y"); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 1 {
		t.Errorf("%d files are open for one execution that runs", n)
	}
	if _, err := read(t, s, "x", 0); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 1 {
		t.Errorf("%d files are open behind a follower", n)
	}
	create(t, s, "followed")
	emit(t, s, "followed", text(0, large))
	next, stop := iter.Pull2(s.Events(t.Context(), "followed", 0))
	defer stop()
	if _, err, ok := next(); err != nil || !ok {
		t.Fatalf("no event: %v", err)
	}
	if err := s.Delete(t.Context(), "followed"); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 1 {
		t.Errorf("%d files are open while a follower looks at what is deleted", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 0 {
		t.Errorf("%d files are open behind Close", n)
	}
}
