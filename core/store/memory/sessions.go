package memorystore

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

var errNoSessions = executor.Errorf(executor.Unimplemented, "sessions")

// CreateSession answers unimplemented.
func (s *Store) CreateSession(context.Context, executor.SessionRecord) error { return errNoSessions }

// GetSessionRecord answers unimplemented.
func (s *Store) GetSessionRecord(context.Context, string) (executor.SessionRecord, error) {
	return executor.SessionRecord{}, errNoSessions
}

// ListSessionRecords answers unimplemented.
func (s *Store) ListSessionRecords(context.Context, string) ([]executor.SessionRecord, error) {
	return nil, nil
}

// UpdateSession answers unimplemented.
func (s *Store) UpdateSession(context.Context, string, func(*executor.SessionRecord)) (executor.SessionRecord, error) {
	return executor.SessionRecord{}, errNoSessions
}

// DeleteSession answers unimplemented.
func (s *Store) DeleteSession(context.Context, string) error { return errNoSessions }
