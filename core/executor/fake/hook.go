package fake

import (
	"context"
	"sync/atomic"

	"github.com/python-executor/python-executor/core/executor"
)

// Fail makes every Run return err before anything starts.
func Fail(err error) Hook {
	return func(context.Context, executor.Job, executor.Sink, RunFunc) (executor.Result, error) {
		return executor.Result{}, err
	}
}

// Panic makes every Run panic with v.
func Panic(v any) Hook {
	return func(context.Context, executor.Job, executor.Sink, RunFunc) (executor.Result, error) { panic(v) }
}

// Hang makes every Run ignore ctx and return unavailable when release is closed.
func Hang(release <-chan struct{}) Hook {
	return func(context.Context, executor.Job, executor.Sink, RunFunc) (executor.Result, error) {
		<-release
		return executor.Result{}, executor.Errorf(executor.Unavailable, "hung")
	}
}

// HangAtEnd makes every Run return its Result only when release is closed, whether or not ctx has ended.
func HangAtEnd(release <-chan struct{}) Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error) {
		result, err := run(ctx, job, sink)
		<-release
		return result, err
	}
}

// EmitBefore emits bodies before every Run. The bodies may break the rules.
func EmitBefore(bodies ...executor.Body) Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error) {
		if err := emitAll(sink, bodies); err != nil {
			return executor.Result{}, err
		}
		return run(ctx, job, sink)
	}
}

// EmitAfter emits bodies after the program's last event, before Run returns.
func EmitAfter(bodies ...executor.Body) Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error) {
		result, err := run(ctx, job, sink)
		if err == nil {
			err = emitAll(sink, bodies)
		}
		return result, err
	}
}

func emitAll(sink executor.Sink, bodies []executor.Body) error {
	for _, body := range bodies {
		if err := sink.Emit(executor.Event{Body: body}); err != nil {
			return err
		}
	}
	return nil
}

// Return runs the program and returns result instead of the real Result.
func Return(result executor.Result) Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error) {
		if _, err := run(ctx, job, sink); err != nil {
			return executor.Result{}, err
		}
		return result, nil
	}
}

// DieAfter simulates a backend that dies after n Events. No further Events are emitted, the program ends and Run returns
// unavailable.
func DieAfter(n int) Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error) {
		gone := executor.Errorf(executor.Unavailable, "the backend has gone")
		if n <= 0 {
			return executor.Result{}, gone
		}
		left := n
		_, err := run(ctx, job, tapped{sink, func(e executor.Event) error {
			if err := sink.Emit(e); err != nil {
				return err
			}
			if left--; left == 0 {
				return gone
			}
			return nil
		}})
		if err == nil {
			err = gone
		}
		return executor.Result{}, err
	}
}

// FirstRuns applies hook only to the first n Runs of a Backend.
func FirstRuns(n int64, hook Hook) Hook {
	var count atomic.Int64
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run RunFunc) (executor.Result, error) {
		if count.Add(1) <= n {
			return hook(ctx, job, sink, run)
		}
		return run(ctx, job, sink)
	}
}

// tapped is a Sink with another Emit.
type tapped struct {
	executor.Sink
	emit func(executor.Event) error
}

// Emit implements executor.Sink.
func (t tapped) Emit(e executor.Event) error { return t.emit(e) }
