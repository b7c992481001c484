package stop

import (
	"context"
	"sync"
	"time"
)

// Requests are the requests to end one command. Its methods are safe for concurrent use.
type Requests struct {
	first, again func(error)
	urgent       context.Context
	heard        chan struct{}
	hear         func()
}

type key struct{}

// New returns a context that the first request ends.
func New(parent context.Context) (context.Context, *Requests) {
	ctx, first := context.WithCancelCause(parent)
	urgent, again := context.WithCancelCause(context.Background())
	r := &Requests{first: first, again: again, urgent: urgent, heard: make(chan struct{})}
	r.hear = sync.OnceFunc(func() { close(r.heard) })
	return context.WithValue(ctx, key{}, r), r
}

// First ends the context, with cause.
func (r *Requests) First(cause error) { r.first(cause) }

// Listen closes the channel of Listening: the caller passes on a second request from now on.
func (r *Requests) Listen() { r.hear() }

// Again ends all contexts of Within, with cause.
func (r *Requests) Again(cause error) {
	r.first(cause)
	r.again(cause)
}

// Listening returns a channel that is closed when a second request would be passed on; nil if ctx is not from New.
func Listening(ctx context.Context) <-chan struct{} {
	if r, ok := ctx.Value(key{}).(*Requests); ok {
		return r.heard
	}
	return nil
}

// Now returns a channel that is closed at the second request; nil if ctx is not from New.
func Now(ctx context.Context) <-chan struct{} {
	if r, ok := ctx.Value(key{}).(*Requests); ok {
		return r.urgent.Done()
	}
	return nil
}

// Cause returns the cause of the second request; nil before it.
func Cause(ctx context.Context) error {
	if r, ok := ctx.Value(key{}).(*Requests); ok {
		return context.Cause(r.urgent)
	}
	return nil
}

// Within returns a context for the work that must be done after ctx has ended. It ends after limit with the cause late, or at
// the second request.
func Within(ctx context.Context, limit time.Duration, late error) (context.Context, context.CancelFunc) {
	bounded, cancelTime := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, late)
	r, ok := ctx.Value(key{}).(*Requests)
	if !ok {
		return bounded, cancelTime
	}
	bounded, cancel := context.WithCancelCause(bounded)
	release := context.AfterFunc(r.urgent, func() { cancel(context.Cause(r.urgent)) })
	return bounded, func() {
		release()
		cancel(context.Canceled)
		cancelTime()
	}
}
