package boltstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/python-executor/python-executor/core/executor"
)

// Sessions are few (the Engine bounds them), so that all of them are in memory. On their way to disk they go with the
// Executions: a record of the write-ahead log for each change, the bucket with the next checkpoint.

// CreateSession implements executor.SessionStore.
func (s *Store) CreateSession(ctx context.Context, r executor.SessionRecord) error {
	if err := checkID(r.ID); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	if s.sessions[r.ID] != nil {
		return executor.Errorf(executor.Conflict, "session %s exists", r.ID)
	}
	_, lsn, err := s.putSession(r)
	if err != nil {
		return err
	}
	return s.waitSynced(lsn)
}

// GetSessionRecord implements executor.SessionStore.
func (s *Store) GetSessionRecord(_ context.Context, id string) (executor.SessionRecord, error) {
	s.mu.Lock()
	r, err := s.findSession(id)
	s.mu.Unlock()
	if err != nil {
		return executor.SessionRecord{}, err
	}
	return r.Clone(), nil
}

// ListSessionRecords implements executor.SessionStore.
func (s *Store) ListSessionRecords(_ context.Context, owner string) ([]executor.SessionRecord, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed()
	}
	var found []*executor.SessionRecord
	for _, r := range s.sessions {
		if owner == "" || r.Owner == owner {
			found = append(found, r)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(found, func(a, b *executor.SessionRecord) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	list := make([]executor.SessionRecord, len(found))
	for i, r := range found {
		list[i] = r.Clone()
	}
	return list, nil
}

// UpdateSession implements executor.SessionStore. change is called once, with the Store locked: it must not call the
// Store. What it changed is on disk when UpdateSession returns, unless it is only when the Session was used and what runs
// in it: that may be lost by a power failure, and spares every Execution an fsync.
func (s *Store) UpdateSession(ctx context.Context, id string, change func(*executor.SessionRecord)) (executor.SessionRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(ctx); err != nil {
		return executor.SessionRecord{}, err
	}
	before, err := s.findSession(id)
	if err != nil {
		return executor.SessionRecord{}, err
	}
	next := before.Clone()
	change(&next)
	next.ID, next.Owner, next.CreatedAt = before.ID, before.Owner, before.CreatedAt
	kept, lsn, err := s.putSession(next)
	if err != nil {
		return executor.SessionRecord{}, err
	}
	if !reflect.DeepEqual(withoutUse(kept), withoutUse(before)) {
		err = s.waitSynced(lsn)
	}
	return kept.Clone(), err
}

// withoutUse is what a Session is apart from how it is being used.
func withoutUse(r *executor.SessionRecord) executor.SessionRecord {
	lasting := *r
	lasting.LastUsed, lasting.ExpiresAt = time.Time{}, time.Time{}
	lasting.Running, lasting.Waiting = "", 0
	return lasting
}

// DeleteSession implements executor.SessionStore.
func (s *Store) DeleteSession(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	if s.sessions[id] == nil {
		return nil
	}
	if _, err := s.write(opDeleteSession, id, nil); err != nil {
		return err
	}
	s.setSession(id, nil)
	return nil
}

func (s *Store) findSession(id string) (*executor.SessionRecord, error) {
	if s.closed {
		return nil, errClosed()
	}
	r := s.sessions[id]
	if r == nil {
		return nil, executor.Errorf(executor.NotFound, "no session has the id %s", id)
	}
	return r, nil
}

// putSession writes a record. What is kept is what was written: a copy, and the same as after a restart. The lock is held.
func (s *Store) putSession(r executor.SessionRecord) (kept *executor.SessionRecord, lsn uint64, err error) {
	for _, t := range []*time.Time{&r.CreatedAt, &r.LastUsed, &r.ExpiresAt, &r.EndedAt} {
		*t = t.UTC().Round(0)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, 0, executor.Errorf(executor.Invalid, "the session cannot be stored: %w", err)
	}
	if kept, err = decodeSession(raw); err != nil {
		return nil, 0, executor.Errorf(executor.Internal, "session %s: %w", r.ID, err)
	}
	if lsn, err = s.write(opPutSession, r.ID, raw); err != nil {
		return nil, 0, err
	}
	s.setSession(r.ID, kept)
	return kept, lsn, nil
}

// setSession replaces a Session, or with nil removes it, for the next checkpoint too. The lock is held.
func (s *Store) setSession(id string, r *executor.SessionRecord) {
	if r == nil {
		delete(s.sessions, id)
	} else {
		s.sessions[id] = r
	}
	s.dirtySessions[id] = struct{}{}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// replaySession applies a record of the write-ahead log. The lock is held.
func (s *Store) replaySession(rec record) error {
	var kept *executor.SessionRecord
	if rec.op == opPutSession {
		var err error
		if kept, err = decodeSession(rec.body); err != nil {
			return err
		}
	}
	s.setSession(rec.id, kept)
	return nil
}

// takeSessions returns what a checkpoint writes of Sessions; nil for those that are gone. The lock is held.
func (s *Store) takeSessions() map[string]*executor.SessionRecord {
	taken := make(map[string]*executor.SessionRecord, len(s.dirtySessions))
	for id := range s.dirtySessions {
		taken[id] = s.sessions[id]
	}
	clear(s.dirtySessions)
	return taken
}

func flushSessions(bucket *bolt.Bucket, sessions map[string]*executor.SessionRecord) error {
	for id, r := range sessions {
		if r == nil {
			if err := bucket.Delete([]byte(id)); err != nil {
				return err
			}
			continue
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := bucket.Put([]byte(id), raw); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) loadSessions(bucket *bolt.Bucket) error {
	return bucket.ForEach(func(id, raw []byte) error {
		r, err := decodeSession(raw)
		if err != nil {
			return err
		}
		s.sessions[string(id)] = r
		return nil
	})
}

func decodeSession(raw []byte) (*executor.SessionRecord, error) {
	r := &executor.SessionRecord{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("damaged session: %w", err)
	}
	return r, nil
}
