package backend

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// Conn is the connection to the runner of an open Session, as far as Calls uses it.
type Conn interface {
	RestartSession(ctx context.Context, wipe bool) error
	Variables(ctx context.Context) ([]executor.Variable, error)
	ListFiles(ctx context.Context, path string, recursive bool) ([]executor.File, error)
	ReadFile(ctx context.Context, path string) (executor.File, io.ReadCloser, error)
	WriteFile(ctx context.Context, file executor.File, r io.Reader) (executor.File, error)
	RemoveFile(ctx context.Context, path string) error
}

// Calls implements the methods of executor.SessionBackend, SessionTools and SessionFiles that a Session's runner answers by
// itself. A Backend embeds it.
type Calls struct {
	// Use returns the connection of an open Session. After the call, done gets its error, and returns the error to report.
	Use func(ctx context.Context, id string) (conn Conn, done func(error) error, err error)
}

// call makes one call to the runner of a Session.
func call[T any](ctx context.Context, c Calls, id string, f func(Conn) (T, error)) (result T, err error) {
	conn, done, err := c.Use(ctx, id)
	if err != nil {
		return result, err
	}
	result, err = f(conn)
	return result, done(err)
}

// RestartSession implements executor.SessionBackend.
func (c Calls) RestartSession(ctx context.Context, id string, wipe bool) error {
	_, err := call(ctx, c, id, func(conn Conn) (struct{}, error) { return struct{}{}, conn.RestartSession(ctx, wipe) })
	return err
}

// Variables implements executor.SessionTools.
func (c Calls) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	return call(ctx, c, id, func(conn Conn) ([]executor.Variable, error) { return conn.Variables(ctx) })
}

// ListFiles implements executor.SessionFiles.
func (c Calls) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	return call(ctx, c, id, func(conn Conn) ([]executor.File, error) { return conn.ListFiles(ctx, path, recursive) })
}

// ReadFile implements executor.SessionFiles.
func (c Calls) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	var content io.ReadCloser
	f, err := call(ctx, c, id, func(conn Conn) (f executor.File, err error) {
		f, content, err = conn.ReadFile(ctx, path)
		return f, err
	})
	return f, content, err
}

// WriteFile implements executor.SessionFiles.
func (c Calls) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	return call(ctx, c, id, func(conn Conn) (executor.File, error) {
		return conn.WriteFile(ctx, file, r)
	})
}

// RemoveFile implements executor.SessionFiles.
func (c Calls) RemoveFile(ctx context.Context, id, path string) error {
	_, err := call(ctx, c, id, func(conn Conn) (struct{}, error) { return struct{}{}, conn.RemoveFile(ctx, path) })
	return err
}
