package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// maxHeld bounds an input that is kept in memory until its Execution has ended, in bytes.
const maxHeld = 4 << 10

// hold makes the input of req lasting if it is small, and reports whether it is lasting then. A copy in memory costs less than a blob,
// and its Execution ends with this process anyway. A source that is not read in time, as before its Upload, is not held. The end of ctx or x
// ends the wait for it.
func (e *Engine) hold(ctx context.Context, x *execution, req *request) bool {
	in := req.in
	if req.spec.Durable || !small(in.Workspace) || !small(in.Stdin) {
		return false
	}
	if in.Workspace == nil && in.Stdin == nil {
		return true
	}
	ctx, cancel := e.uploading(ctx, x)
	defer cancel()
	held, err := calls.Ask(ctx, &e.abandoned, "the upload", 0, func() (executor.Input, error) {
		return executor.Input{Workspace: inMemory(in.Workspace), Stdin: inMemory(in.Stdin)}, nil
	})
	if err != nil || held.Workspace == nil && in.Workspace != nil || held.Stdin == nil && in.Stdin != nil {
		return false
	}
	req.in.Workspace, req.in.Stdin = held.Workspace, held.Stdin
	return true
}

// relaxed reports whether nobody looks for the Record of x once this process is killed: its caller has waited for its end. A caller with a
// key looks for it, unless the input is the caller's own.
func (x *execution) relaxed(req request) bool {
	return !x.on.Keeps() && (lasts(req) || req.spec.IdempotencyKey == "")
}

// small reports whether src is at hand, and may be held. A nil src may.
func small(src *executor.Source) bool {
	return src == nil || src.Replayable && src.Open != nil && src.SizeBytes >= 0 && src.SizeBytes <= maxHeld
}

// inMemory returns a copy of src in memory. It returns nil for nil, and where src cannot be read or has another size than announced: whoever
// reads src itself gets the error.
func inMemory(src *executor.Source) *executor.Source {
	if src == nil {
		return nil
	}
	r, err := src.Open()
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r, src.SizeBytes+1))
	if err = errors.Join(err, r.Close()); err != nil || int64(len(data)) != src.SizeBytes {
		return nil
	}
	digest := src.Digest
	if digest == "" {
		digest = digestOf(sha256.Sum256(data))
	}
	return &executor.Source{
		Digest: digest, SizeBytes: src.SizeBytes, Replayable: true,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}
}
