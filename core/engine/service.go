package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

const maxPage = 500

// visible returns what an owner sees of an Execution: its Spec in brief, and no handle.
func visible(x executor.Execution) executor.Execution {
	x.Spec = x.Spec.Brief()
	x = x.Clone()
	if x.Started != nil {
		x.Started.Handle = nil
	}
	return x
}

func withID(err error, id string) error {
	if e, ok := errors.AsType[*executor.Error](err); ok && e.ExecutionID == "" {
		named := *e
		named.ExecutionID = id
		return &named
	}
	return err
}

// internal logs err and returns what a caller may see of it. A typed error of another code passes as it is.
func (e *Engine) internal(doing string, err error) error {
	if typed, ok := errors.AsType[*executor.Error](err); ok && typed.Code != executor.Internal {
		return typed
	}
	if executor.CodeOf(err) == executor.Unavailable {
		return executor.Errorf(executor.Unavailable, "%s: %w", doing, err)
	}
	e.log.Error("internal error", "doing", doing, "error", err)
	return &executor.Error{Code: executor.Internal, Message: "internal error", Err: err}
}

func errNotFound(id string) error {
	return executor.Errorf(executor.NotFound, "no execution has the id %s", clip(id, 64))
}

// own returns the Record of an Execution to which the Principal in ctx may do op. Another owner's Execution is not found. The Store
// does not know the owner of a deleted one any more, so that is purged for everybody.
func (e *Engine) own(ctx context.Context, op operation, id string) (executor.Record, error) {
	p, err := authorize(ctx, op, id)
	if err != nil {
		return executor.Record{}, err
	}
	if !idForm().MatchString(id) {
		return executor.Record{}, errNotFound(id)
	}
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return executor.Record{}, e.internal("get an execution", err)
	}
	if !p.may(rec.Owner) {
		return executor.Record{}, errNotFound(id)
	}
	return rec, nil
}

// Get implements executor.Service.
func (e *Engine) Get(ctx context.Context, id string) (executor.Execution, error) {
	rec, err := e.own(ctx, opGet, id)
	if err != nil {
		return executor.Execution{}, err
	}
	return visible(rec.Execution), nil
}

// List implements executor.Service. With ScopeAdmin it lists everybody's.
func (e *Engine) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	p, err := authorize(ctx, opList, "")
	if err != nil {
		return nil, err
	}
	var bad executor.Problems
	if f.Limit < 0 || f.Limit > maxPage {
		bad.Add("limit", "must be between 1 and %d (got %d)", maxPage, f.Limit)
	}
	if f.After != "" && !idForm().MatchString(f.After) {
		bad.Add("after", "is not the id of an execution (got %q)", clip(f.After, 64))
	}
	for _, s := range f.Statuses {
		if !slices.Contains(executor.Statuses(), s) {
			bad.Add("status", "must be one of %v (got %q)", executor.Statuses(), clip(string(s), 64))
		}
	}
	if err := bad.Err(executor.Invalid, "submit", "; "); err != nil {
		return nil, err
	}
	f.Owner = p.listed()
	recs, err := e.store.List(ctx, f)
	if err != nil {
		return nil, e.internal("list executions", err)
	}
	list := make([]executor.Execution, len(recs))
	for i, rec := range recs {
		list[i] = visible(rec.Execution)
	}
	return list, nil
}

// Cancel implements executor.Service. It returns when the Execution has ended, or when ctx ends (unavailable). The Execution is told to end
// either way. Before its input was accepted there is no Execution; the end of the Submit's ctx ends that.
func (e *Engine) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	rec, err := e.own(ctx, opCancel, id)
	if err != nil {
		return executor.Execution{}, err
	}
	if rec.Status.Terminal() {
		return visible(rec.Execution), nil
	}
	e.mu.Lock()
	x := e.live[id]
	e.mu.Unlock()
	if x != nil {
		if err := e.cancelLive(ctx, x); err != nil {
			return executor.Execution{}, err
		}
	}
	if rec, err = e.store.Get(ctx, id); err != nil {
		return executor.Execution{}, e.internal("get an execution", err)
	}
	if !rec.Status.Terminal() {
		return executor.Execution{}, withID(executor.Errorf(executor.Unavailable, "the end of the execution could not be written yet"), id)
	}
	return visible(rec.Execution), nil
}

// cancelLive tells x to end and waits for that.
func (e *Engine) cancelLive(ctx context.Context, x *execution) error {
	if x.durable {
		// Written first, so that the next life of the server does not run it again after a crash.
		keep, cancel := calls.StoreContext(ctx)
		_, err := e.store.Update(keep, x.id, func(r *executor.Record) { r.Cancelled = true })
		cancel()
		if err != nil {
			return e.internal("cancel an execution", err)
		}
	}
	x.stop(errCancelled)
	select {
	case <-x.done:
		return nil
	case <-ctx.Done():
		return withID(executor.Errorf(executor.Unavailable, "the execution is ending: %w", context.Cause(ctx)), x.id)
	}
}

// Events implements executor.Service.
func (e *Engine) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		if _, err := e.own(ctx, opEvents, id); err != nil {
			yield(executor.Event{}, err)
			return
		}
		for ev, err := range e.store.Events(ctx, id, after) {
			if err != nil {
				if ctx.Err() == nil {
					err = e.internal("follow an execution", err)
				}
				yield(executor.Event{}, err)
				return
			}
			if started, ok := ev.Body.(executor.Started); ok {
				started.Handle = nil
				ev.Body = started
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// Artifacts implements executor.Service.
func (e *Engine) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	rec, err := e.own(ctx, opArtifacts, id)
	if err != nil {
		return nil, err
	}
	if !rec.Status.Terminal() {
		return nil, executor.Errorf(executor.Conflict, "execution %s has not finished", id)
	}
	if rec.ArtifactsBlob == "" {
		var empty bytes.Buffer
		if err := tar.NewWriter(&empty).Close(); err != nil {
			return nil, e.internal("make an archive", err)
		}
		return io.NopCloser(&empty), nil
	}
	src, err := e.blobs.Open(ctx, rec.ArtifactsBlob)
	if executor.CodeOf(err) == executor.NotFound {
		return nil, executor.Errorf(executor.Purged, "the artifacts of %s were removed", id)
	}
	if err != nil {
		return nil, e.internal("open artifacts", err)
	}
	r, err := src.Open()
	if err != nil {
		return nil, e.internal("open artifacts", err)
	}
	return r, nil
}
