package backend

import (
	"context"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// Session is what Sessions knows of one open Session. A backend embeds a *Session in its own type.
type Session struct {
	// ID is the Session's.
	ID string

	ready chan struct{} // closed when err is set
	err   error
	ended sync.Once
}

// NewSession returns a Session that is being opened.
func NewSession(id string) *Session { return &Session{ID: id, ready: make(chan struct{})} }

// Opened says that the Session is open, or with an error that it never will be. It is called once.
func (s *Session) Opened(err error) {
	s.err = err
	close(s.ready)
}

// Once calls end in the first call only. A later call waits until the first has returned.
func (s *Session) Once(end func()) { s.ended.Do(end) }

func (s *Session) session() *Session { return s }

// Sessions registers the open Sessions of a backend. S is a pointer to a struct that embeds a *Session. The zero value is
// ready. It is safe for concurrent use.
type Sessions[S interface {
	comparable
	session() *Session
}] struct {
	mu     sync.Mutex
	closed bool
	open   map[string]S
}

// Add registers a Session that is being opened. If one of that id is registered already, Add returns it. Codes: unavailable
// (after Close).
func (l *Sessions[S]) Add(s S) (other S, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := s.session().ID
	if l.closed {
		return other, ErrClosed
	}
	if other, ok := l.open[id]; ok {
		return other, nil
	}
	if l.open == nil {
		l.open = map[string]S{}
	}
	l.open[id] = s
	return other, nil
}

// Get returns an open Session; it waits for one that is being opened. Codes: not_found, unavailable (ctx ended first).
func (l *Sessions[S]) Get(ctx context.Context, id string) (S, error) {
	var none S
	l.mu.Lock()
	s, ok := l.open[id]
	l.mu.Unlock()
	if !ok {
		return none, NotHeld(id)
	}
	held := s.session()
	select {
	case <-held.ready: // an open Session is returned even if ctx has ended
	default:
		select {
		case <-held.ready:
		case <-ctx.Done():
			return none, executor.Errorf(executor.Unavailable, "session %s: %w", id, context.Cause(ctx))
		}
	}
	if held.err != nil {
		return none, NotHeld(id)
	}
	return s, nil
}

// Remove takes a Session out of the register.
func (l *Sessions[S]) Remove(s S) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id := s.session().ID; l.open[id] == s {
		delete(l.open, id)
	}
}

// Len returns the number of registered Sessions.
func (l *Sessions[S]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// Close lets no further Session in, and calls end for each, all at once. It waits until every call has returned. err is the
// error of the Session's opening.
func (l *Sessions[S]) Close(end func(s S, err error)) {
	l.mu.Lock()
	l.closed = true
	var wg sync.WaitGroup
	for _, s := range l.open {
		wg.Go(func() {
			<-s.session().ready
			end(s, s.session().err)
		})
	}
	l.mu.Unlock()
	wg.Wait()
}

// NotHeld returns the error of a Session that the backend does not hold.
func NotHeld(id string) error {
	return executor.Errorf(executor.NotFound, "session %s is not held here", id)
}
