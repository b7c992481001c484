package sqlitestore

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func createRelaxed(t *testing.T, s *Store, id string) {
	t.Helper()
	r := executor.Record{Execution: executor.Execution{ID: id, Owner: "local", Status: executor.StatusQueued}, Relaxed: true}
	if _, _, err := s.Create(t.Context(), r, executor.Event{Body: executor.Queued{}}); err != nil {
		t.Fatal(err)
	}
}

// inDatabase returns how many rows of Events the database has of an Execution; -1: it has no such Execution.
func inDatabase(t *testing.T, s *Store, id string) (n int) {
	t.Helper()
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	found, err := s.one("SELECT (log IS NOT NULL) + (SELECT count(*) FROM events WHERE n = x.n) FROM executions x WHERE id = ?", []any{id}, []any{&n})
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return -1
	}
	return n
}

// unsaved opens a new Store that saves nothing by time.
func unsaved(t *testing.T) *Store {
	t.Helper()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saving = true
	return s
}

func TestARelaxedExecutionIsOneTransaction(t *testing.T) {
	t.Parallel()
	s := unsaved(t)
	createRelaxed(t, s, "x")
	emit(t, s, "x", executor.Started{}, text(0, "1"), text(1, large))
	if _, err := s.Update(t.Context(), "x", func(r *executor.Record) { r.Attempts = 2 }); err != nil {
		t.Fatal(err)
	}
	if n := inDatabase(t, s, "x"); n != -1 {
		t.Errorf("%d rows are written before its end", n)
	}
	if r, err := s.Get(t.Context(), "x"); err != nil || r.LastSeq != 4 || r.Attempts != 2 {
		t.Errorf("it is %+v, error %v", r, err)
	}
	if _, err := restored(t, crashed(t, s)).Get(t.Context(), "x"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("after a kill: %v", err)
	}
	before := s.wal.committed
	emit(t, s, "x", done)
	if commits := s.wal.committed - before; commits != 1 {
		t.Errorf("its end took %d transactions", commits)
	}
	for _, s := range []*Store{s, restored(t, crashed(t, s))} {
		if got, err := read(t, s, "x", 0); err != nil || got != "1"+large {
			t.Errorf("the log has %d bytes, error %v", len(got), err)
		}
		if r, err := s.Get(t.Context(), "x"); err != nil || r.Attempts != 2 || r.Status != executor.StatusSucceeded {
			t.Errorf("it is %+v, error %v", r, err)
		}
	}
}

// A List that comes while others are saving waits for them: else it would miss what they have not written yet.
func TestAListHasWhatIsBeingSaved(t *testing.T) {
	t.Parallel()
	s := unsaved(t)
	createRelaxed(t, s, "x")
	s.mu.Lock()
	e := s.entries["x"]
	s.mu.Unlock()
	e.mu.Lock()
	saved := make(chan struct{})
	go func() { defer close(saved); s.saveAll() }()
	awaittest.Until(t, "the begin of saveAll", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.dirty) == 0
	})
	var page []executor.Record
	listed := make(chan error, 1)
	go func() {
		var err error
		page, err = s.List(t.Context(), executor.Filter{})
		listed <- err
	}()
	awaittest.Until(t, "the wait of List", func() bool {
		return len(listed) > 0 || awaittest.Blocked("(*Store).List", "(*Store).saveAll", "TestAListHasWhatIsBeingSaved")
	})
	e.mu.Unlock()
	if err := <-listed; err != nil {
		t.Error(err)
	}
	<-saved
	if len(page) != 1 || page[0].ID != "x" {
		t.Errorf("the list is %+v, want x", page)
	}
}

func TestADurableRecordIsNotRelaxed(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	r := executor.Record{Execution: executor.Execution{ID: "x", Status: executor.StatusQueued, Spec: executor.Spec{Durable: true}}, Relaxed: true}
	if r, _, err := s.Create(t.Context(), r, executor.Event{Body: executor.Queued{}}); err != nil || r.Relaxed {
		t.Errorf("relaxed is %t, error %v", r.Relaxed, err)
	}
	if inDatabase(t, s, "x") != 1 {
		t.Error("it is not written when Create returns")
	}
}

// The key of a relaxed Record counts before the Record is in the database, also for a Record that is not relaxed.
func TestTheKeyOfARelaxedRecordIsTakenBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	s := unsaved(t)
	create := func(s *Store, id string, relaxed bool) (string, bool) {
		t.Helper()
		spec := executor.Spec{IdempotencyKey: "k"}
		r, created, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: id, Owner: "ann", Status: executor.StatusQueued, Spec: spec}, Relaxed: relaxed})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID, created
	}
	check := func(s *Store, when string) {
		t.Helper()
		for id, relaxed := range map[string]bool{"y": true, "z": false} {
			if found, created := create(s, id, relaxed); created || found != "x" {
				t.Errorf("%s: relaxed %t: %q has the key, created is %t", when, relaxed, found, created)
			}
		}
		if r, err := s.ByKey(t.Context(), "ann", "k"); err != nil || r.ID != "x" {
			t.Errorf("%s: by key %q, error %v", when, r.ID, err)
		}
	}
	if id, created := create(s, "x", true); !created || id != "x" || inDatabase(t, s, "x") != -1 {
		t.Fatalf("created is %t, id %q, or it is written", created, id)
	}
	check(s, "before it is written")
	emit(t, s, "x", done)
	if len(s.keys) != 0 {
		t.Errorf("claims of what is written stay: %v", s.keys)
	}
	check(s, "when it has ended")
	check(restored(t, crashed(t, s)), "after a kill")
	if err := s.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if id, created := create(s, "v", true); !created || id != "v" {
		t.Errorf("after its deletion %q has the key", id)
	}
	if err := s.Delete(t.Context(), "v"); err != nil { // it is not written
		t.Fatal(err)
	}
	if id, created := create(s, "w", false); !created || id != "w" {
		t.Errorf("after another deletion %q has the key", id)
	}
}

func TestWhatARelaxedExecutionOwesIsBoundedInTimeAndSize(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	for _, id := range []string{"y", "x"} {
		createRelaxed(t, s, id)
		awaittest.Until(t, "that "+id+" is written", func() bool { return inDatabase(t, s, id) >= 1 })
	}
	s.mu.Lock()
	s.saving = true // nothing more is saved by time
	s.mu.Unlock()
	for i := range maxUnsavedBytes / maxInlineBytes {
		emit(t, s, "x", text(i*maxInlineBytes, strings.Repeat("x", maxInlineBytes)))
	}
	if n := inDatabase(t, s, "x"); n < 2 {
		t.Errorf("the database has %d rows of events, and %d bytes are in memory", n, maxUnsavedBytes)
	}
	if r, err := restored(t, crashed(t, s)).Get(t.Context(), "x"); err != nil || r.StdoutBytes == 0 {
		t.Errorf("after a kill %d bytes are left, error %v", r.StdoutBytes, err)
	}
}

func TestAListShowsWhatIsNotWrittenYet(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	for i := range 3 {
		createRelaxed(t, s, fmt.Sprint("x", i))
	}
	if page, err := s.List(t.Context(), executor.Filter{Statuses: []executor.Status{executor.StatusQueued}}); err != nil || len(page) != 3 {
		t.Errorf("%d executions are listed, error %v", len(page), err)
	}
}

func TestAPanicOfACallerLeavesTheStoreUsable(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	emit(t, s, "x", text(0, "x"))
	if err := s.CreateSession(t.Context(), executor.SessionRecord{Session: executor.Session{ID: "session"}}); err != nil {
		t.Fatal(err)
	}
	for name, update := range map[string]func(){
		"Update": func() { _, _ = s.Update(t.Context(), "x", func(*executor.Record) { panic("x") }) },
		"Events": func() {
			for range s.Events(t.Context(), "x", 0) {
				panic("x")
			}
		},
		"UpdateSession": func() { _, _ = s.UpdateSession(t.Context(), "session", func(*executor.SessionRecord) { panic("x") }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s hides the panic", name)
				}
			}()
			update()
		}()
		emit(t, s, "x", text(0, "x"))
		if _, err := s.UpdateSession(t.Context(), "session", func(r *executor.SessionRecord) { r.Waiting++ }); err != nil {
			t.Errorf("after a panic in %s: %v", name, err)
		}
	}
}

// A follower that lags reads from the database, which does not have all Events yet.
func TestAFollowerThatLagsSeesWhatIsNotWrittenYet(t *testing.T) {
	t.Parallel()
	s := unsaved(t)
	createRelaxed(t, s, "x")
	emit(t, s, "x", executor.Started{})
	whole := strings.Repeat("x", maxInlineBytes)
	const pieces = 8
	for i := range pieces {
		emit(t, s, "x", text(i*len(whole), whole))
	}
	s.mu.Lock()
	e := s.entries["x"]
	s.mu.Unlock()
	e.mu.Lock()
	e.tail = e.tail[len(e.tail)-1:] // as after many more
	e.mu.Unlock()
	if got, err := read(t, s, "x", 2+pieces); err != nil || got != strings.Repeat(whole, pieces) {
		t.Errorf("the log has %d bytes, error %v", len(got), err)
	}
}

// An Execution may be deleted between the look for its key and the look at it, and its key be claimed again meanwhile.
func TestAKeyOfADeletedExecutionIsFree(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	create(t, s, "x")
	if err := s.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	of := func(id string) *head {
		return &head{Record: executor.Record{Execution: executor.Execution{ID: id, Owner: "ann", Spec: executor.Spec{IdempotencyKey: "k"}}}}
	}
	for _, id := range []string{"x", "never added"} {
		if existing, err := s.claimKey(of(id)); err != nil || existing != "" {
			t.Fatalf("%q has the key of %s, error %v", existing, id, err)
		}
		if r, err := s.ByKey(t.Context(), "ann", "k"); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("by the key of %s: %+v, error %v", id, r, err)
		}
		s.releaseKey(of("another"))
		if got, err := s.idOfKey("ann", "k"); err != nil || got != id {
			t.Errorf("%q has the key of %s, error %v", got, id, err)
		}
		s.releaseKey(of(id))
	}
}

func TestWhatCouldNotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := unsaved(t)
	create(t, s, "y") // so that a COMMIT is prepared
	createRelaxed(t, s, "x")
	emit(t, s, "x", text(0, large))
	withoutCommit(t, s, s.saveAll)
	if n := inDatabase(t, s, "x"); n != -1 {
		t.Errorf("%d rows are written without a COMMIT", n)
	}
	s.saveAll()
	if n := inDatabase(t, s, "x"); n != 2 {
		t.Errorf("%d rows are written at the second attempt", n)
	}
}

func TestTheLatestEventsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	for id, size := range map[string]int{"many": 1, "heavy": maxInlineBytes} {
		createRelaxed(t, s, id)
		for i := range 2 * maxTailEvents {
			emit(t, s, id, text(i*size, strings.Repeat("x", size)))
			s.mu.Lock()
			e := s.entries[id]
			s.mu.Unlock()
			e.mu.Lock()
			weight := int64(0)
			for _, k := range e.tail {
				weight += k.event.Weight()
			}
			events, counted := len(e.tail), e.tailBytes
			e.mu.Unlock()
			if events == 0 || events > maxTailEvents || weight > maxTailBytes || weight != counted {
				t.Fatalf("%s: %d events of %d bytes are in memory, %d are counted", id, events, weight, counted)
			}
		}
	}
}

// What a Store that closes can only keep in memory would be lost.
func TestAStoreThatIsClosedTakesNothingForLater(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "store"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.saveLater(&entry{id: "x"}, 0); executor.CodeOf(err) != executor.Unavailable || len(s.dirty) != 0 {
		t.Errorf("%v, %d entries are to be written later", err, len(s.dirty))
	}
}
