package remote

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

var errNoSessions = executor.Errorf(executor.Unimplemented, "the HTTP API has no sessions")

// OpenSession implements executor.Sessions.
func (s *Service) OpenSession(context.Context, executor.Session) (executor.Session, error) {
	return executor.Session{}, errNoSessions
}

// GetSession implements executor.Sessions.
func (s *Service) GetSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, errNoSessions
}

// ListSessions implements executor.Sessions.
func (s *Service) ListSessions(context.Context) ([]executor.Session, error) {
	return nil, errNoSessions
}

// RestartSession implements executor.Sessions.
func (s *Service) RestartSession(context.Context, string, bool) (executor.Session, error) {
	return executor.Session{}, errNoSessions
}

// CloseSession implements executor.Sessions.
func (s *Service) CloseSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, errNoSessions
}

// Scripts implements executor.Service.
func (s *Service) Scripts(context.Context) ([]executor.Script, error) {
	return nil, executor.Errorf(executor.Unimplemented, "the HTTP API has no list of scripts")
}
