package remote

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// InterruptSession answers unimplemented.
func (s *Service) InterruptSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, errNoSessions
}

// Variables answers unimplemented.
func (s *Service) Variables(context.Context, string) ([]executor.Variable, error) {
	return nil, errNoSessions
}

// AddRequirements answers unimplemented.
func (s *Service) AddRequirements(context.Context, string, string) ([]string, error) {
	return nil, errNoSessions
}

// ListFiles answers unimplemented.
func (s *Service) ListFiles(context.Context, string, string, bool) ([]executor.File, error) {
	return nil, errNoSessions
}

// ReadFile answers unimplemented.
func (s *Service) ReadFile(context.Context, string, string) (executor.File, io.ReadCloser, error) {
	return executor.File{}, nil, errNoSessions
}

// WriteFile answers unimplemented.
func (s *Service) WriteFile(context.Context, string, string, int64, io.Reader) (executor.File, error) {
	return executor.File{}, errNoSessions
}

// RemoveFile answers unimplemented.
func (s *Service) RemoveFile(context.Context, string, string) error {
	return errNoSessions
}
