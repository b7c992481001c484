package uvbackend

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// leaveTime is how long the calls in a Session get to return once that is closed, which has cut them all off.
const leaveTime = 100 * time.Millisecond

// use returns an open Session whose slot is given to nobody else until done is called. A call that is still on its way to the
// runner when the Session is closed would else arrive in the next one, which may be somebody else's. Codes: not_found.
func (b *Backend) use(ctx context.Context, id string) (s *session, done func(), err error) {
	if s, err = b.session(ctx, id); err == nil {
		err = s.enter()
	}
	if err != nil {
		return nil, nil, err
	}
	return s, s.leave, nil
}

func notHeld(id string) error {
	return executor.Errorf(executor.NotFound, "session %s is not held here", id)
}

// enter notes that somebody is in the Session; it fails once that is being closed.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return notHeld(s.id)
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

// shut lets nobody in any more. left is closed when all have left.
func (s *session) shut() (left <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.left = true, make(chan struct{})
	if s.users == 0 {
		close(s.left)
	}
	return s.left
}

// leftBy reports whether all have left soon. Who is in a slot that has died meets nobody else there.
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
