package engine

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// InterruptSession answers unimplemented.
func (e *Engine) InterruptSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, errNoSessions()
}

// Variables answers unimplemented.
func (e *Engine) Variables(context.Context, string) ([]executor.Variable, error) {
	return nil, errNoSessions()
}

// AddRequirements answers unimplemented.
func (e *Engine) AddRequirements(context.Context, string, string) ([]string, error) {
	return nil, errNoSessions()
}

// ListFiles answers unimplemented.
func (e *Engine) ListFiles(context.Context, string, string, bool) ([]executor.File, error) {
	return nil, errNoSessions()
}

// ReadFile answers unimplemented.
func (e *Engine) ReadFile(context.Context, string, string) (executor.File, io.ReadCloser, error) {
	return executor.File{}, nil, errNoSessions()
}

// WriteFile answers unimplemented.
func (e *Engine) WriteFile(context.Context, string, string, int64, io.Reader) (executor.File, error) {
	return executor.File{}, errNoSessions()
}

// RemoveFile answers unimplemented.
func (e *Engine) RemoveFile(context.Context, string, string) error {
	return errNoSessions()
}
