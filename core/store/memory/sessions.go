package memorystore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// CreateSession implements executor.SessionStore.
func (s *Store) CreateSession(_ context.Context, r executor.SessionRecord) error {
	if r.ID == "" {
		return executor.FieldErrorf(executor.Invalid, "id", "must not be empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	if _, exists := s.sessions[r.ID]; exists {
		return executor.Errorf(executor.Conflict, "session %s exists", r.ID)
	}
	s.sessions[r.ID] = storedSession(r)
	return nil
}

// GetSessionRecord implements executor.SessionStore.
func (s *Store) GetSessionRecord(_ context.Context, id string) (executor.SessionRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findSession(id)
	return r.Clone(), err
}

// ListSessionRecords implements executor.SessionStore.
func (s *Store) ListSessionRecords(_ context.Context, owner string) ([]executor.SessionRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed()
	}
	list := []executor.SessionRecord{}
	for _, r := range s.sessions {
		if owner == "" || r.Owner == owner {
			list = append(list, r.Clone())
		}
	}
	slices.SortFunc(list, func(a, b executor.SessionRecord) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return list, nil
}

// UpdateSession implements executor.SessionStore. change is called once, with the Store locked: it must not call the
// Store.
func (s *Store) UpdateSession(_ context.Context, id string, change func(*executor.SessionRecord)) (executor.SessionRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.findSession(id)
	if err != nil {
		return executor.SessionRecord{}, err
	}
	next := before.Clone()
	change(&next)
	next.ID, next.Owner, next.CreatedAt = before.ID, before.Owner, before.CreatedAt
	kept := storedSession(next)
	s.sessions[id] = kept
	return kept.Clone(), nil
}

// DeleteSession implements executor.SessionStore.
func (s *Store) DeleteSession(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	delete(s.sessions, id)
	return nil
}

func (s *Store) findSession(id string) (executor.SessionRecord, error) {
	if s.closed {
		return executor.SessionRecord{}, errClosed()
	}
	r, ok := s.sessions[id]
	if !ok {
		return executor.SessionRecord{}, executor.Errorf(executor.NotFound, "no session has the id %s", id)
	}
	return r, nil
}

// storedSession is a copy of r whose times are as a Store on disk would return them.
func storedSession(r executor.SessionRecord) executor.SessionRecord {
	r = r.Clone()
	for _, t := range []*time.Time{&r.CreatedAt, &r.LastUsed, &r.ExpiresAt, &r.EndedAt} {
		*t = t.UTC().Round(0)
	}
	return r
}
