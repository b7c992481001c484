package backend

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Prepare calls prepare for a job, with a ctx that ends with ctx and when sink returns an error. What prepare notifies goes to sink.
// If ready is false, the job ends with result and err: the preparation failed, or ctx ended first. Else result has only the time of
// the preparation.
func Prepare(ctx context.Context, sink executor.Sink, prepare func(context.Context, func(executor.Progress)) (*executor.Failure, error)) (result executor.Result, ready bool, err error) {
	preparing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	var sinkErr error
	failure, err := prepare(preparing, func(p executor.Progress) {
		if sinkErr == nil {
			sinkErr = sink.Emit(executor.Event{Body: p})
		}
		if sinkErr != nil {
			cancel(sinkErr)
		}
	})
	result = executor.Result{CPU: -1, Phases: executor.Phases{Prepare: time.Since(begun)}}
	switch {
	case sinkErr != nil:
		return executor.Result{}, false, sinkErr
	case ctx.Err() != nil:
		result.Status = executor.StatusKilled
		return result, false, nil
	case err != nil:
		return executor.Result{}, false, err
	case failure != nil:
		result.Status, result.Failure = executor.StatusFailed, failure
		return result, false, nil
	}
	return result, true, nil
}

// NoProgress takes the Progress of a preparation that nobody follows.
func NoProgress(executor.Progress) {}

// FailureError returns the error of a call that has no Result to put f into: err, else that of f, else nil.
func FailureError(f *executor.Failure, err error) error {
	if f == nil || err != nil {
		return err
	}
	failed := &executor.Error{Code: f.Code, Message: f.Message}
	if f.Field != "" {
		failed.Fields = []executor.FieldError{{Field: f.Field, Message: f.Message}}
	}
	return failed
}
