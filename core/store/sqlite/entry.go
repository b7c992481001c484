package sqlitestore

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxTailBytes and maxTailEvents bound the latest Events of one Execution in memory.
	maxTailBytes  = 1 << 20
	maxTailEvents = 1024
	// maxUnsavedBytes bounds the Events of a Relaxed Record that are only in memory, as JSON.
	maxUnsavedBytes = 64 << 10
	// saveDelay is how long they may stay there.
	saveDelay = 250 * time.Millisecond
	// maxRecent bounds the Executions in memory that nothing uses.
	maxRecent = 64
)

// head is a Record as it is stored.
type head struct {
	executor.Record
	// LastEventTime keeps times from going back.
	LastEventTime time.Time `json:"last_event_time,omitzero"`
}

// add folds event into h.
func (h *head) add(event executor.Event) {
	h.Apply(event)
	h.LogBytes += event.Weight()
	h.LastEventTime = event.Time
}

// ended is executions.ended for a status.
func ended(status executor.Status) string {
	if status.Terminal() {
		return string(status)
	}
	return ""
}

// relaxed reports whether writes of h may wait.
func (h *head) relaxed() bool { return h.Relaxed && !h.Status.Terminal() }

// entry is an Execution in memory: one that has not ended, or is in use, or was lately.
type entry struct {
	id string
	// refs counts the calls that use the entry, and recent reports whether it is in Store.recent. Store.mu guards both.
	refs   int
	recent bool

	// mu guards what follows. It is taken before Store.dbLock and Store.mu. Nobody holds the locks of two entries.
	mu sync.Mutex
	// n is its number in the database, and the name of its file.
	n int64
	// head is never changed, only replaced, so that it can be read without mu. It is nil if there is no such Execution.
	head *head
	// tail are its latest Events. They are never changed, so that followers share them.
	tail      []kept
	tailBytes int64
	// fileBytes is the size of its file, without what an Append has failed to commit.
	fileBytes int64
	// saved reports whether the database has the Execution. unsaved are the rows that it lacks. stale reports whether its head
	// differs by more than these. spec is the whole Spec as JSON, if it is large, until it is saved.
	saved, stale bool
	unsaved      []row
	spec         []byte
	// gone says why the entry is not used any more: the Execution was deleted, or the Store is closed.
	gone error
	// wake is closed at the next change; nil while nobody sleeps.
	wake chan struct{}
}

// lock returns the entry of id, locked, whose head is nil if there is no such Execution. create reports whether the caller is about to
// add it. The ids of an engine rise with time, so the database need not be asked for one beyond all others.
func (s *Store) lock(id string, create bool) (*entry, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed()
		}
		isNew := create && id > s.lastID
		if isNew {
			s.lastID = id
		}
		e := s.entries[id]
		if e == nil {
			e = &entry{id: id}
			s.entries[id] = e
		}
		e.refs++
		s.mu.Unlock()
		e.mu.Lock()
		if e.gone != nil { // between the two locks
			s.unlock(e)
			continue
		}
		if e.head == nil && !isNew {
			if err := s.load(e); err != nil {
				s.unlock(e)
				return nil, err
			}
		}
		return e, nil
	}
}

// find is lock for an Execution that is there. Codes: not_found, purged.
func (s *Store) find(id string) (*entry, error) {
	e, err := s.lock(id, false)
	if err != nil || e.head != nil {
		return e, err
	}
	s.unlock(e)
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	purged, err := s.one("SELECT 1 FROM purged WHERE id = ?", []any{id}, []any{new(int)})
	switch {
	case err != nil:
		return nil, err
	case purged:
		return nil, errPurged(id)
	default:
		return nil, executor.Errorf(executor.NotFound, "no execution has the id %s", id)
	}
}

// unlock ends a use of e. What has ended is forgotten when it is not used any more, but the last few.
func (s *Store) unlock(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer e.mu.Unlock()
	e.refs--
	switch {
	case e.refs > 0 || s.entries[e.id] != e:
		return
	case e.head == nil:
		delete(s.entries, e.id)
		return
	case !e.head.Status.Terminal() || e.recent:
		return
	}
	e.tail, e.tailBytes, e.recent = nil, 0, true
	oldest := s.recent[s.recentNext]
	s.recent[s.recentNext] = e
	s.recentNext = (s.recentNext + 1) % maxRecent
	if oldest == nil {
		return
	}
	if oldest.recent = false; oldest.refs == 0 && s.entries[oldest.id] == oldest {
		delete(s.entries, oldest.id)
	}
}

// load reads e from the database if it is there.
func (s *Store) load(e *entry) error {
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	var raw []byte
	found, err := s.one("SELECT n, head FROM executions WHERE id = ?", []any{e.id}, []any{&e.n, &raw})
	if err != nil || !found {
		return err
	}
	h := &head{}
	if err := json.Unmarshal(raw, h); err != nil {
		return executor.Errorf(executor.Internal, "damaged record %s: %w", e.id, err)
	}
	e.head, e.saved = h, true
	if h.Status.Terminal() {
		return nil
	}
	if err := s.foldEvents(e); err != nil {
		e.head = nil
		return err
	}
	return nil
}

// kept is an Event in memory. If it is an Output whose Data lies in the Execution's file, it is without Data, and size is not 0.
type kept struct {
	event  executor.Event
	fileAt int64
	size   int
}

// change is what a call makes of an Execution.
type change struct {
	head *head
	// events are added to the log, and rows are the same Events as they are stored.
	events []kept
	rows   []row
	// stale reports whether head differs from the one before by more than events.
	stale bool
}

// put makes a change to e. What e owes to the database is written too, unless it may wait. commit is as in transact; 0:
// nothing was committed.
func (s *Store) put(e *entry, c change) (commit uint64, err error) {
	c.stale = c.stale || e.stale
	c.rows = append(e.unsaved, c.rows...) // If that fails, e.unsaved ends before them.
	bytes := 0
	for _, r := range c.rows {
		bytes += len(r.json)
	}
	if c.head.relaxed() && bytes <= maxUnsavedBytes {
		if err := s.saveLater(e, saveDelay); err != nil {
			return 0, err
		}
		e.unsaved, e.stale = c.rows, c.stale
	} else if commit, err = s.save(e, c); err != nil {
		return 0, err
	}
	e.head = c.head
	e.extend(c.events)
	e.wakeAll()
	return commit, nil
}

// save writes what e owes to the database: c.rows, and c.head if e is not there yet or stale.
func (s *Store) save(e *entry, c change) (commit uint64, err error) {
	h, rows := c.head, joined(c.rows)
	var raw, log []byte
	if !e.saved && len(rows) > 0 && rows[0].size == 0 {
		log, rows = rows[0].json, rows[1:]
	}
	statements := len(rows)
	if !e.saved || c.stale {
		statements++
		if raw, err = encode(h); err != nil {
			return 0, err
		}
	}
	if e.spec != nil {
		statements++
	}
	commit, err = s.commit(statements == 1, func() (err error) {
		switch {
		case !e.saved:
			err = s.exec("INSERT INTO executions VALUES (?, ?, ?, nullif(?, ''), ?, ?, ?)",
				e.n, e.id, h.Owner, h.Spec.IdempotencyKey, ended(h.Status), raw, log)
		case c.stale:
			err = s.exec("UPDATE executions SET ended = ?, head = ? WHERE n = ?", ended(h.Status), raw, e.n)
		}
		if err == nil && e.spec != nil {
			err = s.exec("INSERT INTO specs VALUES (?, ?)", e.n, e.spec)
		}
		for _, r := range rows {
			if err == nil {
				err = s.exec("INSERT INTO events VALUES (?, ?, ?, ?, ?)", e.n, int64(r.seq), r.json, r.fileAt, r.size)
			}
		}
		return err
	})
	if err == nil {
		e.saved, e.stale, e.unsaved, e.spec = true, false, nil, nil
	}
	return commit, err
}

// saveLater has e saved after delay, or when the Store closes.
func (s *Store) saveLater(e *entry, delay time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	s.dirty[e] = struct{}{}
	s.later(&s.saving, delay, s.saveAll)
	return nil
}

// saveAll writes what is only in memory. When it returns, what was dirty before the call is written, by this call or by another.
func (s *Store) saveAll() {
	s.saveLock.Lock()
	defer s.saveLock.Unlock()
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = map[*entry]struct{}{}
	s.mu.Unlock()
	for e := range dirty {
		e.mu.Lock()
		if e.gone == nil && (!e.saved || e.stale || len(e.unsaved) > 0) {
			if _, err := s.save(e, change{head: e.head, rows: e.unsaved, stale: e.stale}); err != nil {
				s.log.Error("an execution is not written yet, the store tries again", "execution", e.id, "error", err)
				_ = s.saveLater(e, time.Second)
			}
		}
		e.mu.Unlock()
	}
}

// sleep gives up e.mu until e changes or ctx ends.
func (e *entry) sleep(ctx context.Context) error {
	if e.wake == nil {
		e.wake = make(chan struct{})
	}
	changed := e.wake
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wakeAll wakes the followers.
func (e *entry) wakeAll() {
	if e.wake != nil {
		close(e.wake)
		e.wake = nil
	}
}

// extend adds Events to the tail, and drops the older half when there are too many.
func (e *entry) extend(events []kept) {
	e.tail = append(e.tail, events...)
	for _, k := range events {
		e.tailBytes += k.event.Weight()
	}
	if len(e.tail) <= maxTailEvents && e.tailBytes <= maxTailBytes {
		return
	}
	drop := 0
	for drop < len(e.tail) && (len(e.tail)-drop > maxTailEvents/2 || e.tailBytes > maxTailBytes/2) {
		e.tailBytes -= e.tail[drop].event.Weight()
		drop++
	}
	e.tail = slices.Clone(e.tail[drop:])
}

func now(last time.Time) time.Time {
	t := time.Now().UTC().Round(0)
	if t.Before(last) {
		return last
	}
	return t
}
