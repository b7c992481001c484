package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// storeTimeout bounds what the Engine asks of a Store or of Blobs on its own account.
const storeTimeout = 30 * time.Second

// panicError is a panic of somebody else's code, as an error.
type panicError struct {
	value any
	stack []byte
}

// Error implements error.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// guard calls f and turns its panic into an error.
func guard[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return f()
}

// answer is what a call that may never return has returned.
type answer[T any] struct {
	value T
	err   error
}

// call runs f, somebody else's code, in a goroutine of its own: it may panic, end its goroutine, or never return. The
// caller takes the answer, or gives the call up and hands returned to Engine.stray.
func call[T any](f func() (T, error)) (answers <-chan answer[T], returned <-chan struct{}) {
	out, done := make(chan answer[T], 1), make(chan struct{})
	go func() {
		defer close(done)
		got := answer[T]{err: errors.New("the call ended its goroutine")}
		defer func() { out <- got }()
		got.value, got.err = guard(f)
	}()
	return out, done
}

// internal logs err and returns what a caller may see of it; a typed error that is not internal passes as it is.
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

// storeContext is for what must be done whether or not the caller still waits.
func storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}
