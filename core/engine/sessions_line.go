package engine

import (
	"context"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// joinLocked puts a turn for x at the end of s's line, or says why not. The caller holds the lock.
func (s *session) joinLocked(x *execution, uploading bool) error {
	if err := s.openLocked(); err != nil {
		return err
	}
	if !s.freeLocked() && len(s.line) >= s.engine.rules.waiting {
		return errFull("what waits in the session", s.engine.retryAfter())
	}
	x.session, x.turn = s, &turn{session: s, x: x, uploading: uploading}
	s.line = append(s.line, x.turn)
	s.armLocked()
	return nil
}

// openLocked says why nothing new may wait for s; nil if it may. The caller holds the lock.
func (s *session) openLocked() error {
	switch {
	case s.closed != nil:
		return executor.FieldErrorf(executor.Conflict, "session", "%s is being closed", s.id)
	case s.engine.sessions[s.id] != s, s.rec.Status != executor.SessionActive:
		return errNotActive(s.rec.Session)
	}
	return nil
}

// freeLocked reports whether nobody has or waits for a turn. A turn that closes counts for none: it is over for who asks, who
// may wait for the next one where nobody may wait. The caller holds the lock.
func (s *session) freeLocked() bool {
	return s.current == nil && !slices.ContainsFunc(s.line, func(t *turn) bool { return !t.uploading })
}

// advanceLocked grants the next turn, if nobody has one. The caller holds the lock.
func (s *session) advanceLocked() {
	defer s.armLocked()
	if s.current != nil || s.closing != nil {
		return
	}
	for i, t := range s.line {
		switch {
		case t.uploading:
			continue
		case !t.ready, !t.first && (s.rec.Status != executor.SessionActive || s.closed != nil):
			return
		}
		s.line = slices.Delete(s.line, i, i+1)
		s.grantLocked(t)
		return
	}
}

func (s *session) grantLocked(t *turn) {
	s.current = t
	if t.x == nil {
		close(t.granted)
		return
	}
	s.engine.queue.wait(t.x.place, false)
	s.engine.dispatch()
}

// leaveLocked takes t out of its Session's line, or ends its turn. Idempotent; nil is no turn. The caller holds the lock.
func (t *turn) leaveLocked() {
	if t == nil {
		return
	}
	s := t.session
	s.line = slices.DeleteFunc(s.line, func(other *turn) bool { return other == t })
	if s.current == t {
		s.current = nil
	}
	if s.closing == t {
		s.closing = nil
	}
	s.advanceLocked()
}

// overLocked ends t's turn for who asks, and, unless closing, for who waits; those wait for leaveLocked then. The caller holds
// the lock.
func (t *turn) overLocked(closing bool) {
	if closing && t != nil && t.session.current == t {
		t.session.current, t.session.closing = nil, t
		return
	}
	t.leaveLocked()
}

// takeLocked gives t its turn at once: nobody has one, not even one that closes, and nobody waits. The caller holds the lock.
func (t *turn) takeLocked() {
	if t == nil {
		return
	}
	s := t.session
	s.line = slices.DeleteFunc(s.line, func(other *turn) bool { return other == t })
	s.current = t
	s.armLocked()
}

// waitLocked lets x wait for its turn in its Session, then for a slot. The caller holds the lock.
func (t *turn) waitLocked(first bool) {
	if t.session.current == t {
		t.session.engine.queue.wait(t.x.place, first)
		t.session.engine.dispatch()
		return
	}
	t.ready, t.uploading = true, false
	t.session.advanceLocked()
}

// refuseLocked ends all that waits in s, but for a restart or a close, and all of what has its turn but not its slot. The
// caller holds the lock.
func (s *session) refuseLocked(end *sessionEnd) {
	for _, t := range slices.Clone(s.line) {
		if t.first {
			continue
		}
		if t.x != nil {
			t.x.stopLocked(end)
			continue
		}
		t.refused = executor.FieldErrorf(executor.Conflict, "session", "%s: %s", s.id, end.message)
		s.line = slices.DeleteFunc(s.line, func(other *turn) bool { return other == t })
		close(t.granted)
	}
	if t := s.current; t != nil && t.x != nil && t.x.state == stateQueued {
		t.x.stopLocked(end)
	}
}

// interruptLocked tells what has the turn to end, and returns what is closed when an Execution has. The caller holds the
// lock.
func (s *session) interruptLocked(cause error) <-chan struct{} {
	t := s.current
	switch {
	case t == nil || t.first:
	case t.x == nil:
		t.stop(cause)
	default:
		t.x.stopLocked(cause)
		return t.x.done
	}
	return nil
}

// take waits for a turn in s for a tool, whose ctx ends when somebody stops it. release gives the turn back.
func (s *session) take(ctx context.Context) (work context.Context, release func(), err error) {
	e := s.engine
	work, stop := context.WithCancelCause(ctx)
	t := &turn{session: s, stop: stop, granted: make(chan struct{}), ready: true}
	e.mu.Lock()
	err = s.openLocked()
	if err == nil && !s.freeLocked() && len(s.line) >= e.rules.waiting {
		err = errFull("what waits in the session", e.retryAfter())
	}
	if err != nil {
		e.mu.Unlock()
		stop(nil)
		return nil, nil, err
	}
	s.line = append(s.line, t)
	s.advanceLocked()
	e.mu.Unlock()
	if err := t.await(ctx); err != nil {
		stop(nil)
		return nil, nil, err
	}
	return work, func() {
		stop(nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		s.usedLocked()
		t.leaveLocked()
	}, nil
}

// await returns when t is granted, or says why it is not.
func (t *turn) await(ctx context.Context) error {
	select {
	case <-t.granted:
		return t.refused
	case <-ctx.Done():
	case <-t.session.engine.base.Done():
		ctx = t.session.engine.base
	}
	e := t.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t.leaveLocked()
	return executor.Errorf(executor.Unavailable, "it waited for the session: %w", context.Cause(ctx))
}

// first puts a turn before all others of s. The caller holds the lock.
func (s *session) firstLocked() *turn {
	t := &turn{session: s, stop: func(error) {}, granted: make(chan struct{}), first: true, ready: true}
	s.line = slices.Insert(s.line, 0, t)
	return t
}
