package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	maxIDBytes = 256
	// maxPurged bounds how many deleted ids are remembered; those deleted first go first.
	maxPurged = 10_000
)

// Options are for Open; the zero value is usable.
type Options struct {
	// Log receives what an operator should know: an end of a log that a power failure took, a full disk. nil: nothing.
	Log *slog.Logger
	// sync is syncPath, except in tests.
	sync func(path string) error
}

// Store implements executor.Store.
type Store struct {
	path string
	log  *slog.Logger
	sync func(path string) error
	// file is the database, for its lock.
	file *os.File
	wal  *wal
	// lastNumber is the largest number that an Execution was given.
	lastNumber atomic.Int64

	// dbLock guards the connection, and is held for a whole transaction. It is taken before mu.
	dbLock   sync.Mutex
	pool     *sql.DB
	db       *sql.Conn // nil after Close
	prepared map[string]*sql.Stmt

	// saveLock is held by saveAll. It is taken before all other locks.
	saveLock sync.Mutex

	mu     sync.Mutex
	closed bool
	// lastID is the largest id that an Execution was given.
	lastID  string
	entries map[string]*entry
	// recent are entries that have ended and are not used any more. The next one replaces that at recentNext.
	recent     [maxRecent]*entry
	recentNext int
	// keys has the ids of the Executions that are not in the database yet, by their idempotency keys.
	keys map[ownerKey]string
	// dirty are the entries that owe something to the database.
	dirty map[*entry]struct{}
	// saving and flushing report whether saveAll and flush are planned.
	saving, flushing bool
	// quit is closed by Close, which waits for running: what is planned.
	quit    chan struct{}
	running sync.WaitGroup
}

var _ executor.Store = (*Store)(nil)

// later runs do after delay, or when the Store closes. It does nothing if that is planned already. mu is held.
func (s *Store) later(planned *bool, delay time.Duration, do func()) {
	if *planned || s.closed {
		return
	}
	*planned = true
	s.running.Go(func() {
		select {
		case <-time.After(delay):
		case <-s.quit:
		}
		s.mu.Lock()
		*planned = false
		s.mu.Unlock()
		do()
	})
}

// Create implements executor.Store.
func (s *Store) Create(ctx context.Context, r executor.Record, events ...executor.Event) (executor.Record, bool, error) {
	if err := checkID(r.ID); err != nil {
		return executor.Record{}, false, err
	}
	h := &head{Record: r.Brief().Clone()}
	h.LastSeq, h.LogBytes, h.SpecBytes = 0, 0, r.Spec.Size()
	h.CreatedAt = r.CreatedAt.UTC().Round(0)
	h.Relaxed = h.Relaxed && !h.Spec.Durable
	var spec []byte
	if h.SpecBytes > executor.BriefBytes {
		var err error
		if spec, err = encode(r.Spec); err != nil {
			return executor.Record{}, false, err
		}
	}
	existing, commit, err := s.create(h, spec, events)
	if err == nil && existing == "" && h.Spec.Durable {
		err = s.wal.sync(commit)
	}
	switch {
	case err != nil:
		return executor.Record{}, false, err
	case existing == "":
		return h.Clone(), true, nil
	}
	found, err := s.Get(ctx, existing)
	switch executor.CodeOf(err) {
	case executor.Purged, executor.NotFound:
		return s.Create(ctx, r, events...) // It was deleted just now, or was not added, so its key is free.
	}
	return found, false, err
}

// create adds an Execution and its first events, which are folded into h, or returns the id of the one that has its key.
func (s *Store) create(h *head, spec []byte, events []executor.Event) (existing string, commit uint64, err error) {
	e, err := s.lock(h.ID, true)
	if err != nil {
		return "", 0, err
	}
	defer s.unlock(e)
	if e.head == nil {
		if existing, err = s.claimKey(h); err != nil || existing != "" {
			return existing, 0, err
		}
		e.n, e.spec = s.lastNumber.Add(1), spec
		c := change{head: h}
		if err = s.fold(e, &c, events); err == nil {
			commit, err = s.put(e, c)
		}
		if err != nil {
			s.releaseKey(h)
		}
		if sqliteCode(err) != sqlite3.SQLITE_CONSTRAINT {
			return "", commit, err
		}
	}
	existing, err = s.idOfKey(h.Owner, h.Spec.IdempotencyKey)
	if err == nil && existing == "" {
		err = executor.Errorf(executor.Conflict, "execution %s exists", h.ID)
	}
	return existing, 0, err
}

// Get implements executor.Store.
func (s *Store) Get(_ context.Context, id string) (executor.Record, error) {
	e, err := s.find(id)
	if err != nil {
		return executor.Record{}, err
	}
	h := e.head
	s.unlock(e)
	return h.Clone(), nil
}

// Spec implements executor.Store.
func (s *Store) Spec(_ context.Context, id string) (spec executor.Spec, err error) {
	e, err := s.find(id)
	if err != nil {
		return executor.Spec{}, err
	}
	defer s.unlock(e)
	if e.head.SpecBytes <= executor.BriefBytes {
		return e.head.Spec.Clone(), nil
	}
	raw := e.spec
	if raw == nil {
		s.dbLock.Lock()
		_, err = s.one("SELECT spec FROM specs WHERE n = ?", []any{e.n}, []any{&raw})
		s.dbLock.Unlock()
	}
	if err != nil {
		return executor.Spec{}, err
	}
	if err := json.Unmarshal(raw, &spec); err != nil {
		return executor.Spec{}, s.readError(err)
	}
	return spec, nil
}

// ByKey implements executor.Store.
func (s *Store) ByKey(ctx context.Context, owner, key string) (executor.Record, error) {
	id, err := s.idOfKey(owner, key)
	if err != nil {
		return executor.Record{}, err
	}
	found, err := s.Get(ctx, id)
	switch executor.CodeOf(err) {
	case executor.NotFound, executor.Purged:
		err = executor.Errorf(executor.NotFound, "no execution has that idempotency key")
	}
	return found, err
}

// Update implements executor.Store. change is called once, with the Execution locked: it must not call the Store.
func (s *Store) Update(_ context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	next, commit, err := s.update(id, change)
	if err == nil && next.Spec.Durable {
		err = s.wal.sync(commit)
	}
	if err != nil {
		return executor.Record{}, err
	}
	return next.Clone(), nil
}

func (s *Store) update(id string, alter func(*executor.Record)) (next *head, commit uint64, err error) {
	e, err := s.find(id)
	if err != nil {
		return nil, 0, err
	}
	defer s.unlock(e)
	next = &head{Record: e.head.Clone(), LastEventTime: e.head.LastEventTime}
	alter(&next.Record)
	next.KeepFolded(e.head.Record)
	commit, err = s.put(e, change{head: next, stale: true})
	return next, commit, err
}

// Append implements executor.Store.
func (s *Store) Append(_ context.Context, id string, events ...executor.Event) error {
	e, err := s.find(id)
	if err != nil {
		return err
	}
	commit, err := s.append(e, events)
	durable := e.head.Spec.Durable && e.head.Status.Terminal()
	s.unlock(e)
	if err == nil && durable {
		err = s.wal.sync(commit)
	}
	return err
}

// append adds events to e's log. e is locked.
func (s *Store) append(e *entry, events []executor.Event) (commit uint64, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	next, fileBytes := *e.head, e.fileBytes
	c := change{head: &next}
	err = s.fold(e, &c, events)
	c.stale = next.Status.Terminal()
	if err == nil && c.stale && next.Spec.Durable {
		err = s.syncOutput(e.n)
	}
	if err == nil {
		commit, err = s.put(e, c)
	}
	if err != nil {
		e.fileBytes = fileBytes
	}
	return commit, err
}

// fold adds copies of events to c.
func (s *Store) fold(e *entry, c *change, events []executor.Event) error {
	for _, event := range events {
		if err := event.Check(); err != nil {
			return err
		}
		if c.head.Status.Terminal() {
			return executor.Errorf(executor.Conflict, "execution %s has finished", e.id)
		}
		if !isLarge(event) {
			event = event.Clone() // large Data goes to a file, and nothing of it stays here
		}
		event.Seq, event.Time = c.head.LastSeq+1, now(c.head.LastEventTime)
		if err := s.add(e, c, event); err != nil {
			return err
		}
		c.head.add(event)
	}
	return nil
}

// Delete implements executor.Store.
func (s *Store) Delete(_ context.Context, id string) error {
	e, err := s.find(id)
	switch executor.CodeOf(err) {
	case "":
	case executor.NotFound, executor.Purged:
		return nil
	default:
		return err
	}
	defer s.unlock(e)
	_, err = s.transact(func() error {
		for _, table := range []string{"executions", "events", "specs"} {
			if err := s.exec("DELETE FROM "+table+" WHERE n = ?", e.n); err != nil {
				return err
			}
		}
		if err := s.exec("INSERT OR REPLACE INTO purged (id) VALUES (?)", id); err != nil {
			return err
		}
		return s.exec("DELETE FROM purged WHERE n <= (SELECT max(n) FROM purged) - ?", maxPurged)
	})
	if err != nil {
		return err
	}
	s.releaseKey(e.head)
	s.mu.Lock()
	delete(s.entries, id)
	s.mu.Unlock()
	e.gone = errPurged(id)
	e.wakeAll()
	e.closeOutput() // or a follower whose reader waits would keep the disk space
	return s.removeOutput(e.n)
}

func checkID(id string) error {
	if id == "" || len(id) > maxIDBytes || strings.ContainsRune(id, 0) {
		return executor.FieldErrorf(executor.Invalid, "id", "must have 1 to %d bytes, none of them zero", maxIDBytes)
	}
	return nil
}

func errClosed() error { return executor.Errorf(executor.Unavailable, "the store is closed") }

func errPurged(id string) error {
	return executor.Errorf(executor.Purged, "execution %s was removed", id)
}
