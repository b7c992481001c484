package memorystore

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Options are for New; the zero value is a Store that keeps whole logs.
type Options struct {
	// LogWindowBytes > 0 makes each log a window of that size: an Append of output blocks while the window is full, and
	// what every present follower has consumed is dropped to make room. Without a follower nothing is dropped, so the
	// window still blocks. An Append without output, or with Finished, never blocks: an end always gets through. A
	// follower that asks for what was dropped gets purged.
	LogWindowBytes int64
}

// maxPurged bounds how many deleted ids are remembered.
const maxPurged = 10_000

// Store implements executor.Store.
type Store struct {
	window int64

	mu      sync.Mutex
	closed  bool
	records map[string]*record
	// ids is sorted, oldest first.
	ids  []string
	keys map[ownerKey]string
	// sessions are never changed, only replaced.
	sessions map[string]executor.SessionRecord
	// purged remembers deleted ids; purgedIDs is the same in order of deletion.
	purged    map[string]struct{}
	purgedIDs []string
}

var _ executor.Store = (*Store)(nil)

type ownerKey struct{ owner, key string }

// New returns an empty Store.
func New(o Options) *Store {
	return &Store{
		window:   o.LogWindowBytes,
		records:  map[string]*record{},
		keys:     map[ownerKey]string{},
		sessions: map[string]executor.SessionRecord{},
		purged:   map[string]struct{}{},
	}
}

// Create implements executor.Store.
func (s *Store) Create(ctx context.Context, r executor.Record, events ...executor.Event) (executor.Record, bool, error) {
	if r.ID == "" {
		return executor.Record{}, false, executor.FieldErrorf(executor.Invalid, "id", "must not be empty")
	}
	r = r.Clone()
	r.LastSeq, r.LogBytes, r.SpecBytes = 0, 0, r.Spec.Size()
	r.CreatedAt = r.CreatedAt.UTC().Round(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return executor.Record{}, false, errClosed()
	}
	key := ownerKey{r.Owner, r.Spec.IdempotencyKey}
	if key.key != "" {
		if id, ok := s.keys[key]; ok {
			return s.records[id].copyHead(), false, nil
		}
	}
	at, exists := slices.BinarySearch(s.ids, r.ID)
	if exists {
		return executor.Record{}, false, executor.Errorf(executor.Conflict, "execution %s exists", r.ID)
	}
	rec := newRecord(r, s.window)
	if err := rec.append(ctx, events); err != nil {
		return executor.Record{}, false, err
	}
	s.ids = slices.Insert(s.ids, at, r.ID)
	s.records[r.ID] = rec
	if key.key != "" {
		s.keys[key] = r.ID
	}
	return rec.copyHead(), true, nil
}

// Get implements executor.Store.
func (s *Store) Get(_ context.Context, id string) (executor.Record, error) {
	rec, err := s.find(id)
	if err != nil {
		return executor.Record{}, err
	}
	return rec.copyHead(), nil
}

// Spec implements executor.Store.
func (s *Store) Spec(_ context.Context, id string) (executor.Spec, error) {
	rec, err := s.find(id)
	if err != nil {
		return executor.Spec{}, err
	}
	return rec.whole().Spec.Clone(), nil
}

// ByKey implements executor.Store.
func (s *Store) ByKey(_ context.Context, owner, key string) (executor.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return executor.Record{}, errClosed()
	}
	id, ok := s.keys[ownerKey{owner, key}]
	if !ok {
		return executor.Record{}, executor.Errorf(executor.NotFound, "no execution has that idempotency key")
	}
	return s.records[id].copyHead(), nil
}

// List implements executor.Store.
func (s *Store) List(_ context.Context, f executor.Filter) ([]executor.Record, error) {
	page := f.NewPage()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed()
	}
	end := len(s.ids)
	if f.After != "" {
		end, _ = slices.BinarySearch(s.ids, f.After)
	}
	for i := end - 1; i >= 0; i-- {
		rec := s.records[s.ids[i]]
		head := rec.whole()
		ours := f.Owner == "" || f.Owner == head.Owner
		if ours && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, head.Status)) && page.Add(head) {
			break
		}
	}
	return page.Records, nil
}

// Update implements executor.Store. change is called once, with the record locked: it must not call the Store.
func (s *Store) Update(_ context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	rec, err := s.find(id)
	if err != nil {
		return executor.Record{}, err
	}
	return rec.update(change)
}

// Append implements executor.Store.
func (s *Store) Append(ctx context.Context, id string, events ...executor.Event) error {
	rec, err := s.find(id)
	if err != nil {
		return err
	}
	return rec.append(ctx, events)
}

// Events implements executor.Store.
func (s *Store) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		rec, err := s.find(id)
		if err != nil {
			yield(executor.Event{}, err)
			return
		}
		rec.follow(ctx, after, yield)
	}
}

// Delete implements executor.Store.
func (s *Store) Delete(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	rec, ok := s.records[id]
	if !ok {
		return nil
	}
	delete(s.records, id)
	if at, found := slices.BinarySearch(s.ids, id); found {
		s.ids = slices.Delete(s.ids, at, at+1)
	}
	head := rec.whole()
	delete(s.keys, ownerKey{head.Owner, head.Spec.IdempotencyKey})
	s.remember(id)
	rec.end(errPurged(id))
	return nil
}

// Close implements executor.Store. Followers and blocked Appends end with unavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, rec := range s.records {
		rec.end(errClosed())
	}
	s.records, s.ids, s.keys, s.purged, s.purgedIDs, s.sessions = nil, nil, nil, nil, nil, nil
	return nil
}

func (s *Store) find(id string) (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed()
	}
	if rec, ok := s.records[id]; ok {
		return rec, nil
	}
	if _, ok := s.purged[id]; ok {
		return nil, errPurged(id)
	}
	return nil, executor.Errorf(executor.NotFound, "no execution has the id %s", id)
}

// remember notes a deleted id and forgets the one that was deleted longest ago when there are too many.
func (s *Store) remember(id string) {
	if _, known := s.purged[id]; known {
		return
	}
	s.purged[id] = struct{}{}
	if s.purgedIDs = append(s.purgedIDs, id); len(s.purgedIDs) > maxPurged {
		delete(s.purged, s.purgedIDs[0])
		s.purgedIDs = s.purgedIDs[1:]
	}
}

func errClosed() error { return executor.Errorf(executor.Unavailable, "the store is closed") }

func errPurged(id string) error {
	return executor.Errorf(executor.Purged, "execution %s was removed", id)
}

func now(last time.Time) time.Time {
	t := time.Now().UTC().Round(0)
	if t.Before(last) {
		return last
	}
	return t
}
