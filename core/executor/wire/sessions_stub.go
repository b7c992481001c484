package wire

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// InterruptSession answers unimplemented.
func (s *serviceClient) InterruptSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, executor.Errorf(executor.Unimplemented, "sessions")
}

// Variables answers unimplemented.
func (s *serviceClient) Variables(context.Context, string) ([]executor.Variable, error) {
	return nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// AddRequirements answers unimplemented.
func (s *serviceClient) AddRequirements(context.Context, string, string) ([]string, error) {
	return nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// ListFiles answers unimplemented.
func (s *serviceClient) ListFiles(context.Context, string, string, bool) ([]executor.File, error) {
	return nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// ReadFile answers unimplemented.
func (s *serviceClient) ReadFile(context.Context, string, string) (executor.File, io.ReadCloser, error) {
	return executor.File{}, nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// WriteFile answers unimplemented.
func (s *serviceClient) WriteFile(context.Context, string, string, int64, io.Reader) (executor.File, error) {
	return executor.File{}, executor.Errorf(executor.Unimplemented, "sessions")
}

// RemoveFile answers unimplemented.
func (s *serviceClient) RemoveFile(context.Context, string, string) error {
	return executor.Errorf(executor.Unimplemented, "sessions")
}

// Variables answers unimplemented.
func (b *backendClient) Variables(context.Context, string) ([]executor.Variable, error) {
	return nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// AddRequirements answers unimplemented.
func (b *backendClient) AddRequirements(context.Context, string, string) ([]string, error) {
	return nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// ListFiles answers unimplemented.
func (b *backendClient) ListFiles(context.Context, string, string, bool) ([]executor.File, error) {
	return nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// ReadFile answers unimplemented.
func (b *backendClient) ReadFile(context.Context, string, string) (executor.File, io.ReadCloser, error) {
	return executor.File{}, nil, executor.Errorf(executor.Unimplemented, "sessions")
}

// WriteFile answers unimplemented.
func (b *backendClient) WriteFile(context.Context, string, string, int64, io.Reader) (executor.File, error) {
	return executor.File{}, executor.Errorf(executor.Unimplemented, "sessions")
}

// RemoveFile answers unimplemented.
func (b *backendClient) RemoveFile(context.Context, string, string) error {
	return executor.Errorf(executor.Unimplemented, "sessions")
}
