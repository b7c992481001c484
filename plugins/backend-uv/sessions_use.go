package uvbackend

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/backend"
)

// leaveTime bounds the wait for the calls of a Session that is being closed. Closing it has ended their connection.
const leaveTime = 100 * time.Millisecond

// use returns an open Session and keeps its slot from other Sessions until done is called. Without that, a call that is late
// when the Session is closed could reach the slot's next Session. Codes: not_found.
func (b *Backend) use(ctx context.Context, id string) (s *session, done func(), err error) {
	if s, err = b.session(ctx, id); err == nil {
		err = s.enter()
	}
	if err != nil {
		return nil, nil, err
	}
	return s, s.leave, nil
}

// useConn is use for backend.Calls.
func (b *Backend) useConn(ctx context.Context, id string) (backend.Conn, func(error) error, error) {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return s.slot.conn, func(err error) error {
		defer done()
		return b.said(s, err)
	}, nil
}

// enter counts a call that uses the Session. It fails when the Session is being closed.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return backend.NotHeld(s.ID)
	}
	s.users++
	return nil
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.over && s.users == 0 {
		close(s.left)
	}
}

// shut lets no further call use the Session. left is closed when no call uses it any more.
func (s *session) shut() (left <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.left = true, make(chan struct{})
	if s.users == 0 {
		close(s.left)
	}
	return s.left
}

// leftBy reports whether no call is left within leaveTime. If the runner is dead, late calls do no harm.
func (s *slot) leftBy(left <-chan struct{}) bool {
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-left:
		return true
	case <-s.conn.Done():
		return true
	case <-timer.C:
		return false
	}
}
