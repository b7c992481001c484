// Package calls runs code that the engine does not control: a backend, a Store, a caller's stream. Such code may panic, end its
// goroutine, or never return.
package calls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// PanicError is a panic as an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Guard calls f and turns its panic into an error.
func Guard[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	return f()
}

// Answer is what a call has returned.
type Answer[T any] struct {
	Value T
	Err   error
}

// Go calls f in a goroutine of its own. answers gets its one answer, also when f panics or ends its goroutine. returned is closed
// when the goroutine has ended. A caller that gives the call up passes returned to Abandoned.Add.
func Go[T any](f func() (T, error)) (answers <-chan Answer[T], returned <-chan struct{}) {
	out, done := make(chan Answer[T], 1), make(chan struct{})
	go func() {
		defer close(done)
		got := Answer[T]{Err: errors.New("the call ended its goroutine")}
		defer func() { out <- got }()
		got.Value, got.Err = Guard(f)
	}()
	return out, done
}

// ErrGivenUp is in the error of an Ask whose call did not return in time.
var ErrGivenUp = errors.New("the call was given up")

// Ask calls f, which should return when ctx ends. If f does not return within grace after that, Ask gives the call up, adds it to
// abandoned and returns ErrGivenUp (code unavailable). what names the call in errors.
func Ask[T any](ctx context.Context, abandoned *Abandoned, what string, grace time.Duration, f func() (T, error)) (T, error) {
	answers, returned := Go(f)
	select {
	case got := <-answers:
		return got.Value, got.Err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case got := <-answers:
		return got.Value, got.Err
	case <-timer.C:
	}
	abandoned.Add(returned, what)
	var none T
	cause := context.Cause(ctx)
	return none, &executor.Error{
		Code: executor.Unavailable, Message: what + ": " + cause.Error(), Err: errors.Join(ErrGivenUp, cause),
	}
}

// Abandoned are the goroutines of calls that were given up. The zero value is ready. All methods are safe for concurrent use.
type Abandoned struct {
	mu   sync.Mutex
	left map[<-chan struct{}]string
}

// Add notes a goroutine that nobody waits for any more. returned is closed when it has ended; what names it.
func (a *Abandoned) Add(returned <-chan struct{}, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == nil {
		a.left = map[<-chan struct{}]string{}
	}
	for other := range a.left {
		select {
		case <-other:
			delete(a.left, other)
		default:
		}
	}
	a.left[returned] = what
}

// Wait waits for the goroutines to end, until ctx ends. It returns an error that names those that are left.
func (a *Abandoned) Wait(ctx context.Context) error {
	a.mu.Lock()
	left := maps.Clone(a.left)
	a.mu.Unlock()
	var errs []error
	for returned, what := range left {
		select {
		case <-returned:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s has not returned", what))
		}
	}
	return errors.Join(errs...)
}

// storeTimeout bounds what the engine asks of a Store or of Blobs on its own account.
const storeTimeout = 30 * time.Second

// StoreContext returns a context for work on a Store that must be done whether or not the caller of ctx still waits.
func StoreContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}
