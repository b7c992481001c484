package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"reflect"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// CreateSession implements executor.SessionStore.
func (s *Store) CreateSession(_ context.Context, r executor.SessionRecord) error {
	if err := checkID(r.ID); err != nil {
		return err
	}
	return s.changeSessions(func() (durable bool, err error) {
		switch _, err := s.readSession(r.ID); executor.CodeOf(err) {
		case executor.NotFound:
			_, err = s.putSession(r)
			return true, err
		case "":
			return false, executor.Errorf(executor.Conflict, "session %s exists", r.ID)
		default:
			return false, err
		}
	})
}

// GetSessionRecord implements executor.SessionStore.
func (s *Store) GetSessionRecord(_ context.Context, id string) (executor.SessionRecord, error) {
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	return s.readSession(id)
}

// ListSessionRecords implements executor.SessionStore.
func (s *Store) ListSessionRecords(_ context.Context, owner string) ([]executor.SessionRecord, error) {
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	return s.readSessions("SELECT record FROM sessions WHERE ?1 = '' OR owner = ?1 ORDER BY created DESC, id DESC", owner)
}

// UpdateSession implements executor.SessionStore. change is called once, with the Store locked: it must not call the Store.
// What it changed is on disk when UpdateSession returns, unless it changed only when the Session was used and what runs in
// it: a power failure may take that, and no Execution waits for an fsync.
func (s *Store) UpdateSession(_ context.Context, id string, change func(*executor.SessionRecord)) (next executor.SessionRecord, err error) {
	err = s.changeSessions(func() (durable bool, err error) {
		before, err := s.readSession(id)
		if err != nil {
			return false, err
		}
		next = before.Clone()
		change(&next)
		next.ID, next.Owner, next.CreatedAt = before.ID, before.Owner, before.CreatedAt
		next, err = s.putSession(next)
		return !reflect.DeepEqual(withoutUse(next), withoutUse(before)), err
	})
	return next, err
}

// DeleteSession implements executor.SessionStore.
func (s *Store) DeleteSession(_ context.Context, id string) error {
	return s.changeSessions(func() (bool, error) {
		return false, s.exec("DELETE FROM sessions WHERE id = ?", id)
	})
}

// changeSessions runs change in a transaction, and waits for an fsync if the change is durable.
func (s *Store) changeSessions(change func() (durable bool, err error)) error {
	durable := false
	commit, err := s.transact(func() (err error) {
		durable, err = change()
		return err
	})
	if err == nil && durable {
		err = s.wal.sync(commit)
	}
	return err
}

// readSession reads a Session. dbLock is held. Codes: not_found.
func (s *Store) readSession(id string) (executor.SessionRecord, error) {
	found, err := s.readSessions("SELECT record FROM sessions WHERE id = ?", id)
	if err == nil && len(found) == 0 {
		err = executor.Errorf(executor.NotFound, "no session has the id %s", id)
	}
	if err != nil {
		return executor.SessionRecord{}, err
	}
	return found[0], nil
}

// readSessions reads Sessions. dbLock is held.
func (s *Store) readSessions(query string, args ...any) ([]executor.SessionRecord, error) {
	found := []executor.SessionRecord{}
	err := s.query(func(rows *sql.Rows) error {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		var r executor.SessionRecord
		err := json.Unmarshal(raw, &r)
		found = append(found, r)
		return err
	}, query, args...)
	return found, err
}

// putSession writes r, and returns what readSession will return. dbLock is held.
func (s *Store) putSession(r executor.SessionRecord) (executor.SessionRecord, error) {
	for _, t := range []*time.Time{&r.CreatedAt, &r.LastUsed, &r.ExpiresAt, &r.EndedAt} {
		*t = t.UTC().Round(0)
	}
	raw, err := encode(r)
	if err != nil {
		return r, err
	}
	err = s.exec("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", r.ID, r.Owner, r.CreatedAt.Format(sortable), raw)
	return r.Clone(), err
}

// sortable is a form of times that sorts by time.
const sortable = "2006-01-02T15:04:05.000000000"

// withoutUse returns r without what tells how it is being used.
func withoutUse(r executor.SessionRecord) executor.SessionRecord {
	r.LastUsed, r.ExpiresAt = time.Time{}, time.Time{}
	r.Running, r.Waiting = "", 0
	return r
}
