package uvbackend

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// ListFiles implements executor.SessionFiles.
func (b *Backend) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := s.slot.conn.ListFiles(ctx, path, recursive)
	return list, b.said(s, err)
}

// ReadFile implements executor.SessionFiles.
func (b *Backend) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return executor.File{}, nil, err
	}
	defer done()
	f, r, err := s.slot.conn.ReadFile(ctx, path)
	return f, r, b.said(s, err)
}

// WriteFile implements executor.SessionFiles.
func (b *Backend) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return executor.File{}, err
	}
	defer done()
	f, err := s.slot.conn.WriteFile(ctx, path, size, r)
	return f, b.said(s, err)
}

// RemoveFile implements executor.SessionFiles.
func (b *Backend) RemoveFile(ctx context.Context, id, path string) error {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return b.said(s, s.slot.conn.RemoveFile(ctx, path))
}
