package sessions

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// Restart starts s's interpreter anew; with wipe, it also empties the work folder. Once that has begun, the end of ctx does not
// stop it; only a close does.
func (s *Session) Restart(ctx context.Context, wipe bool) (executor.Session, error) {
	r := s.registry
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	r.mu.Lock()
	var err error
	switch {
	case s.closed != nil || r.open[s.ID] != s:
		err = s.refusalLocked()
	case r.draining:
		err = errStopping()
	}
	if err != nil {
		r.mu.Unlock()
		return executor.Session{}, err
	}
	t := s.firstLocked(stop)
	end := &End{executor.StatusKilled, "its session was restarted"}
	stopped := s.interruptLocked(end)
	r.unlock(stopped, end, s.advanceLocked())
	if err := t.await(ctx); err != nil {
		return executor.Session{}, err
	}
	err = s.restart(work, wipe)
	r.mu.Lock()
	s.usedLocked()
	if err == nil {
		s.rec.Restarts++
		s.rec.Status, s.rec.Reason = executor.SessionActive, ""
	}
	next := t.leaveLocked()
	view := s.viewLocked()
	r.unlock(nil, nil, next)
	s.save()
	if err != nil {
		return executor.Session{}, err
	}
	r.options.Log.Info("session restarted", "session", s.ID, "wiped", wipe)
	return view, nil
}

// restart asks the backend for a new interpreter. A Session whose sandbox is gone is lost.
func (s *Session) restart(ctx context.Context, wipe bool) error {
	_, err := inSandbox(ctx, s, "restart session "+s.ID, s.registry.options.Prepare, func(ctx context.Context, b executor.SessionBackend) (struct{}, error) {
		return struct{}{}, b.RestartSession(ctx, s.ID, wipe)
	})
	if executor.CodeOf(err) == executor.NotFound {
		return executor.FieldErrorf(executor.Conflict, "session", "%s is lost with its sandbox; open another session", s.ID)
	}
	if err != nil {
		return s.registry.options.Internal("restart a session", err)
	}
	return nil
}

// Close closes s by request. It returns when s is closed, or when ctx ends (unavailable); s is closed either way.
func (s *Session) Close(ctx context.Context) (executor.Session, error) {
	s.beginClose("by request")
	select {
	case <-s.closed:
	case <-ctx.Done():
		return executor.Session{}, executor.Errorf(executor.Unavailable, "the session is being closed: %w", context.Cause(ctx))
	}
	return s.View(), nil
}

// CloseRecord closes a Session of which only the record is left.
func (r *Registry) CloseRecord(ctx context.Context, view executor.Session) (executor.Session, error) {
	if view.Status == executor.SessionClosed {
		return view, nil
	}
	ctx, cancel := calls.StoreContext(ctx)
	defer cancel()
	rec, err := r.options.Store.UpdateSession(ctx, view.ID, func(rec *executor.SessionRecord) {
		rec.Status, rec.Reason = executor.SessionClosed, "by request"
		if rec.EndedAt.IsZero() {
			rec.EndedAt = time.Now().UTC().Round(0)
		}
	})
	if executor.CodeOf(err) == executor.NotFound {
		return executor.Session{}, ErrUnknown(view.ID)
	}
	if err != nil {
		return executor.Session{}, r.options.Internal("close a session", err)
	}
	return brief(rec.Session), nil
}

// Abandon ends the Sessions on home, which are then lost with reason. It does not wait for their ends.
func (r *Registry) Abandon(home Home, reason string) {
	for _, s := range r.filter(func(s *Session) bool { return s.home == home }) {
		s.beginEnd(executor.SessionLost, lostEnd(reason), reason)
	}
}

// beginClose has a task close s, and reports whether it is the first call. s.closed is closed when s is closed.
func (s *Session) beginClose(reason string) bool {
	return s.beginEnd(executor.SessionClosed, &End{executor.StatusKilled, "its session was closed: " + reason}, reason)
}

// beginEnd has a task end s with status, and reports whether it is the first call. What runs and waits in s ends with end.
func (s *Session) beginEnd(status executor.SessionStatus, end *End, reason string) bool {
	r := s.registry
	r.mu.Lock()
	if s.closed != nil {
		r.mu.Unlock()
		return false
	}
	s.closed = make(chan struct{})
	if s.busyLocked() {
		s.reason, s.ending = reason, status
	}
	t := s.firstLocked(func(error) {})
	if c := s.current; c != nil && c.first {
		c.stop(end) // a restart, which may take long
	}
	stopped := append(s.interruptLocked(end), s.refuseLocked(end)...)
	r.unlock(stopped, end, s.advanceLocked())
	if !r.options.Spawn(func() { s.finishEnd(t, status, reason) }) {
		close(s.closed) // the engine has closed before; what it could end has ended
	}
	return true
}

// finishEnd ends s, which has been told to end, once nothing runs in it.
func (s *Session) finishEnd(t *Turn, status executor.SessionStatus, reason string) {
	defer close(s.closed)
	<-t.granted
	r := s.registry
	removed := r.removeSandbox(s)
	r.mu.Lock()
	if removed {
		s.rec.Handle = nil
	}
	if s.rec.Status == executor.SessionActive {
		s.usedLocked()
	}
	first := status == executor.SessionLost && s.rec.Status == executor.SessionActive
	s.rec.Status, s.rec.Reason = status, reason
	s.endLocked()
	r.mu.Unlock()
	s.save()
	if first {
		r.metrics.lost.WithLabelValues(s.Backend).Inc()
	}
	r.options.Log.Info("session "+string(status), "session", s.ID, "name", s.rec.Name, "reason", reason)
}

// endLocked takes s out of what is open. Its record stays for a while, with its Spec in brief, because nothing opens it again.
func (s *Session) endLocked() {
	r := s.registry
	s.rec.EndedAt = time.Now().UTC().Round(0)
	s.rec.Spec = s.rec.Spec.Brief()
	delete(r.open, s.ID)
	if s.home != nil {
		s.home.Leave()
	}
	if s.clock != nil {
		s.clock.Stop()
	}
	r.addEndedLocked(s.ID, s.rec.EndedAt)
	for _, t := range s.line {
		if t.run == nil { // a restart that was asked for before the end; a Run was told to end
			t.refuseLocked(ErrNotActive(s.rec.Session))
		}
	}
	s.line = nil
}

// lose notes that s is lost and ends what waits in it. gone: its sandbox is lost, too, and nothing brings s back.
func (s *Session) lose(reason string, gone bool) {
	r := s.registry
	r.mu.Lock()
	if s.closed != nil || r.open[s.ID] != s || s.rec.Status == executor.SessionLost && !gone {
		r.mu.Unlock()
		return
	}
	first := s.rec.Status == executor.SessionActive
	s.rec.Status, s.rec.Reason = executor.SessionLost, reason
	end := lostEnd(reason)
	stopped := s.refuseLocked(end)
	var next Run
	if gone {
		if len(s.rec.Handle) > 0 {
			r.leftovers[s.ID] = s.Backend // the sandbox could not be adopted, but part of it may be there
		}
		s.endLocked()
	} else {
		next = s.advanceLocked()
	}
	r.unlock(stopped, end, next)
	s.save()
	if first {
		r.metrics.lost.WithLabelValues(s.Backend).Inc()
		r.options.Log.Warn("session lost", "session", s.ID, "backend", s.Backend, "reason", reason)
	}
}
