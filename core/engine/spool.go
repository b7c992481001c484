package engine

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// The blobs of an Execution lie under its id.
const (
	blobWorkspace = "/workspace"
	blobStdin     = "/stdin"
	blobArtifacts = "/artifacts"
)

// spooled is an input in Blobs.
type spooled struct{ workspace, stdin executor.BlobInfo }

// spool reads in to its end into Blobs, first the Workspace, then stdin. It returns when ctx ends, even if the caller's stream is stuck.
// Then the reading goes on until the caller closes the stream, and removes what it has written.
func (e *Engine) spool(ctx context.Context, id, owner string, in executor.Input, durable bool) (spooled, error) {
	if in.Workspace == nil && in.Stdin == nil {
		return spooled{}, nil
	}
	if limit := e.now().spoolBytes; in.Workspace != nil && in.Workspace.SizeBytes > limit {
		return spooled{}, errTooLarge(fieldTar, limit)
	}
	got, err := calls.Ask(ctx, &e.abandoned, "the upload of "+id, 0, func() (spooled, error) {
		s, err := e.spoolAll(ctx, id, owner, in, durable)
		if err != nil || ctx.Err() != nil {
			e.dropInput(id)
		}
		return s, err
	})
	if cause := context.Cause(ctx); cause != nil {
		e.dropInput(id) // an upload that was whole a moment before ctx ended has not dropped it
		return spooled{}, errUpload(cause)
	}
	if err != nil {
		return spooled{}, e.internal("spool the input of "+id, err)
	}
	return got, nil
}

func (e *Engine) spoolAll(ctx context.Context, id, owner string, in executor.Input, durable bool) (s spooled, err error) {
	if s.workspace, err = e.spoolOne(ctx, id, owner, blobWorkspace, fieldTar, in.Workspace, durable); err != nil {
		return s, err
	}
	s.stdin, err = e.spoolOne(ctx, id, owner, blobStdin, fieldStdin, in.Stdin, durable)
	return s, err
}

func (e *Engine) spoolOne(ctx context.Context, id, owner, kind, field string, src *executor.Source, durable bool) (executor.BlobInfo, error) {
	if src == nil {
		return executor.BlobInfo{}, nil
	}
	r, err := src.Open()
	if err != nil {
		return executor.BlobInfo{}, inputError(field, err)
	}
	reader, limit := &spoolReader{ctx: ctx, r: r, take: func(n int) error { return e.spools.take(e.now().engine, id, owner, int64(n)) }}, e.now().spoolBytes
	key := id + kind
	info, err := e.blobs.Put(ctx, key, reader, limit, durable)
	closed := r.Close()
	switch {
	case err == nil:
		_ = closed // the stream was read to its end, so an error of its Close loses nothing
		return info, nil
	case reader.full != nil:
		return executor.BlobInfo{}, reader.full
	case reader.failed() != nil:
		return executor.BlobInfo{}, inputError(field, reader.failed())
	case executor.CodeOf(err) == executor.Exhausted && !diskFull(err):
		return executor.BlobInfo{}, errTooLarge(field, limit)
	}
	return executor.BlobInfo{}, e.internal("spool "+key, err)
}

// errTooLarge is the error for an input that is too large. It has a field and no RetryAfter, which tells it from a full queue.
func errTooLarge(field string, limit int64) error {
	return executor.FieldErrorf(executor.Exhausted, field, "is larger than %d bytes", limit)
}

func errUpload(cause error) error {
	switch {
	case errors.Is(cause, errUploadDeadline):
		return executor.Errorf(executor.Exhausted, "the upload took too long")
	case errors.Is(cause, errShutdown):
		return executor.Errorf(executor.Unavailable, "the server is stopping")
	}
	return executor.Errorf(executor.Unavailable, "the upload ended early: %w", cause)
}

var errUploadDeadline = errors.New("the upload took too long")

// spoolReader reads a caller's stream until ctx ends, and keeps the stream's error apart from the errors of Blobs.
type spoolReader struct {
	ctx context.Context
	r   io.Reader
	err atomic.Pointer[error]
	// take asks for room for n bytes more. full is why there is none.
	take func(n int) error
	full error
}

// Read implements io.Reader.
func (s *spoolReader) Read(b []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	if s.full = s.take(n); s.full != nil {
		return 0, s.full
	}
	return n, err
}

// failed is the error of the stream; nil if it had none.
func (s *spoolReader) failed() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// dropInput deletes the input of id, and takes it out of the count.
func (e *Engine) dropInput(id string) {
	e.dropBlobs(id, blobWorkspace, blobStdin)
	e.spools.give(id)
}

// dropBlobs deletes blobs of id. The sweep deletes those that it cannot delete.
func (e *Engine) dropBlobs(id string, kinds ...string) {
	ctx, cancel := calls.StoreContext(e.base)
	defer cancel()
	for _, kind := range kinds {
		if err := e.blobs.Delete(ctx, id+kind); err != nil {
			e.log.Warn("blob not deleted", "blob", id+kind, "error", err)
		}
	}
}

// fromBlob returns a Source of the blob under key; nil for none.
func (e *Engine) fromBlob(ctx context.Context, key string) (*executor.Source, error) {
	if key == "" {
		return nil, nil
	}
	return e.blobs.Open(ctx, key)
}
