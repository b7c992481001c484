package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// InterruptSession implements executor.Sessions. What waits goes on.
func (e *Engine) InterruptSession(ctx context.Context, id string) (executor.Session, error) {
	s, view, err := e.activeSession(ctx, id)
	if err != nil {
		return executor.Session{}, err
	}
	if view.Running != "" {
		e.mu.Lock()
		x := e.live[view.Running]
		e.mu.Unlock()
		if x != nil {
			if err := e.cancelLive(ctx, x); err != nil {
				return executor.Session{}, err
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.viewLocked(), nil
}

// RestartSession implements executor.Sessions. Once the interpreter is being restarted, the end of ctx does not stop that;
// only a close does.
func (e *Engine) RestartSession(ctx context.Context, id string, wipe bool) (executor.Session, error) {
	s, view, err := e.ownSession(ctx, id, executor.ScopeExec)
	if err != nil {
		return executor.Session{}, err
	}
	if s == nil {
		return executor.Session{}, errNotActive(view)
	}
	e.mu.Lock()
	if s.closed != nil || e.sessions[id] != s {
		err := s.openLocked()
		e.mu.Unlock()
		return executor.Session{}, err
	}
	if err := e.acceptingLocked(); err != nil {
		e.mu.Unlock()
		return executor.Session{}, err
	}
	t := s.firstLocked()
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	t.stop = stop
	s.interruptLocked(&sessionEnd{executor.StatusKilled, "its session was restarted"})
	s.advanceLocked()
	e.mu.Unlock()
	if err := t.await(ctx); err != nil {
		return executor.Session{}, err
	}
	err = e.restart(work, s, wipe)
	e.mu.Lock()
	s.usedLocked()
	if err == nil {
		s.rec.Restarts++
		s.rec.Status, s.rec.Reason = executor.SessionActive, ""
	}
	t.leaveLocked()
	view = s.viewLocked()
	e.mu.Unlock()
	s.save()
	if err != nil {
		return executor.Session{}, err
	}
	e.log.Info("session restarted", "session", s.id, "wiped", wipe)
	return view, nil
}

// restart asks the backend for a new interpreter. A Session whose sandbox is gone is lost.
func (e *Engine) restart(ctx context.Context, s *session, wipe bool) error {
	_, err := inSession(ctx, e, s, "restart session "+s.id, e.deadlines.Prepare, func(ctx context.Context, b executor.SessionBackend) (struct{}, error) {
		return struct{}{}, b.RestartSession(ctx, s.id, wipe)
	})
	if executor.CodeOf(err) == executor.NotFound {
		err = executor.FieldErrorf(executor.Conflict, "session", "%s is lost with its sandbox", s.id)
	}
	if err != nil {
		return e.internal("restart a session", err)
	}
	return nil
}

// CloseSession implements executor.Sessions. It returns when the Session is closed, or when ctx ends (unavailable); it is
// closed either way.
func (e *Engine) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	s, view, err := e.ownSession(ctx, id, executor.ScopeExec)
	if err != nil {
		return executor.Session{}, err
	}
	if s == nil {
		return e.closeStored(ctx, view)
	}
	s.beginClose("by request")
	select {
	case <-s.closed:
	case <-ctx.Done():
		return executor.Session{}, executor.Errorf(executor.Unavailable, "it is being closed: %w", context.Cause(ctx))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.viewLocked(), nil
}

// closeStored closes a Session of which only the record is left.
func (e *Engine) closeStored(ctx context.Context, view executor.Session) (executor.Session, error) {
	if view.Status == executor.SessionClosed {
		return view, nil
	}
	keep, cancel := storeContext(ctx)
	defer cancel()
	rec, err := e.store.UpdateSession(keep, view.ID, func(r *executor.SessionRecord) {
		r.Status, r.Reason = executor.SessionClosed, "by request"
		if r.EndedAt.IsZero() {
			r.EndedAt = time.Now().UTC().Round(0)
		}
	})
	if executor.CodeOf(err) == executor.NotFound {
		return executor.Session{}, errNoSession(view.ID)
	}
	if err != nil {
		return executor.Session{}, e.internal("close a session", err)
	}
	return briefSession(rec.Session), nil
}

// beginClose has a task close s, and reports whether it is the first to do so. s.closed tells when that is done.
func (s *session) beginClose(reason string) bool {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.closed != nil {
		return false
	}
	s.closed = make(chan struct{})
	busy := s.busyLocked()
	end := &sessionEnd{executor.StatusKilled, "its session was closed: " + reason}
	t := s.firstLocked()
	if c := s.current; c != nil && c.first {
		c.stop(end) // a restart, which may take long
	}
	s.interruptLocked(end)
	s.refuseLocked(end)
	s.advanceLocked()
	if !e.spawnLocked(func() { e.finishSession(s, t, reason) }) {
		close(s.closed) // the Engine has closed before; what it could end has ended
		return true
	}
	if busy {
		s.reason = reason
	}
	return true
}

// finishSession ends s, which has been told to close, once nothing runs in it.
func (e *Engine) finishSession(s *session, t *turn, reason string) {
	defer close(s.closed)
	<-t.granted
	closed := e.closeSandbox(s)
	e.mu.Lock()
	if closed {
		s.rec.Handle = nil
	}
	if s.rec.Status == executor.SessionActive {
		s.usedLocked()
	}
	s.rec.Status, s.rec.Reason = executor.SessionClosed, reason
	s.endLocked()
	e.mu.Unlock()
	s.save()
	e.log.Info("session closed", "session", s.id, "name", s.rec.Name, "reason", reason)
}

// endLocked takes s out of what is open. Its record stays for a while, with its Spec in brief, because nothing opens it
// again. The caller holds the lock.
func (s *session) endLocked() {
	e := s.engine
	s.rec.EndedAt = time.Now().UTC().Round(0)
	s.rec.Spec = s.rec.Spec.Brief()
	delete(e.sessions, s.id)
	if s.clock != nil {
		s.clock.Stop()
	}
	if e.ended.add(s.id, s.rec.EndedAt) {
		e.lookSoon()
	}
	for _, t := range s.line {
		if t.x != nil {
			continue // its input is on the way; it finds out when that is whole
		}
		// A restart that came before the end.
		t.refused = executor.FieldErrorf(executor.Conflict, "session", "%s is %s: %s", s.id, s.rec.Status, s.rec.Reason)
		close(t.granted)
	}
	s.line = nil
}

// closeSandbox asks the backend to leave nothing of s, and reports whether it has said so. One that is away is asked again
// once it is back, also in the next life of the server, where the record still has the handle.
func (e *Engine) closeSandbox(s *session) bool {
	err := e.removeSandbox(s.id, s.backend)
	if err == nil {
		return true
	}
	e.log.Warn("a sandbox was not closed", "session", s.id, "backend", s.backend, "error", err)
	e.mu.Lock()
	e.leftovers[s.id] = s.backend
	e.mu.Unlock()
	e.lookSoon()
	return false
}

func (e *Engine) removeSandbox(id, backend string) error {
	b, err := e.sessionBackend(backend)
	if executor.CodeOf(err) == executor.Unimplemented {
		return nil // then it never had one
	}
	if err != nil {
		return err
	}
	_, err = ask(context.WithoutCancel(e.base), e, "close session "+id, e.deadlines.Stop, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.CloseSession(ctx, id)
	})
	return err
}

// lose ends what waits in s. gone: its sandbox is, too, and nothing brings it back.
func (e *Engine) lose(s *session, reason string, gone bool) {
	e.mu.Lock()
	if s.closed != nil || e.sessions[s.id] != s || s.rec.Status == executor.SessionLost && !gone {
		e.mu.Unlock()
		return
	}
	first := s.rec.Status == executor.SessionActive
	s.rec.Status, s.rec.Reason = executor.SessionLost, reason
	s.refuseLocked(&sessionEnd{executor.StatusLost, "its session was lost: " + reason})
	if gone {
		if len(s.rec.Handle) > 0 {
			e.leftovers[s.id] = s.backend // whatever may be there that could not be adopted
		}
		s.endLocked()
	} else {
		s.advanceLocked()
	}
	e.mu.Unlock()
	s.save()
	if first {
		e.metrics.sessionsLost.WithLabelValues(s.backend).Inc()
		e.log.Warn("session lost", "session", s.id, "backend", s.backend, "reason", reason)
	}
}

// errSandboxGone says that a Session was lost with its sandbox.
var errSandboxGone = errors.New("the sandbox is gone")

// checkSandbox asks s's backend whether it still has the sandbox, and has it adopt one that outlived its plugin. Only a
// backend that answers can lose a Session. Codes: not_found (s is lost now), unavailable (nobody knows).
func (e *Engine) checkSandbox(ctx context.Context, s *session) error {
	s.checking.Lock()
	defer s.checking.Unlock()
	e.mu.Lock()
	open := e.sessions[s.id] == s
	rec := s.rec.Clone()
	e.mu.Unlock()
	if !open {
		return executor.Errorf(executor.NotFound, "%s: %w", s.id, errSandboxGone)
	}
	b, err := e.sessionBackend(s.backend)
	if err != nil {
		return e.sandboxGone(s, err.Error())
	}
	info, err := e.info(ctx, s.backend)
	if err != nil {
		return err
	}
	doing := "look for session " + s.id
	_, err = ask(ctx, e, doing, e.deadlines.Stop, func(ctx context.Context) ([]executor.File, error) {
		return b.ListFiles(ctx, s.id, "", false)
	})
	switch executor.CodeOf(err) {
	case executor.Unavailable:
		return err
	case executor.NotFound, executor.Unimplemented:
	default:
		e.found(s, info.Generation, nil) // it has it, whatever else is wrong
		return nil
	}
	if info.Capabilities.Attach && len(rec.Handle) > 0 {
		opened, err := ask(ctx, e, "adopt session "+s.id, e.deadlines.Stop, func(ctx context.Context) (executor.OpenedSession, error) {
			return b.AdoptSession(ctx, rec.Session, rec.Handle)
		})
		switch executor.CodeOf(err) {
		case "":
			e.found(s, info.Generation, &opened)
			e.log.Info("session adopted", "session", s.id, "backend", s.backend, "generation", info.Generation)
			return nil
		case executor.Exhausted:
			return e.sandboxGone(s, "its sandbox ran out of memory")
		case executor.NotFound, executor.Unimplemented:
		default:
			return e.internal("adopt session "+s.id, err)
		}
	}
	e.mu.Lock()
	restarted := !s.verified || info.Generation != rec.Generation
	e.mu.Unlock()
	if restarted {
		return e.sandboxGone(s, fmt.Sprintf("backend %s was restarted", s.backend))
	}
	return e.sandboxGone(s, fmt.Sprintf("backend %s has its sandbox no more", s.backend))
}

func (e *Engine) sandboxGone(s *session, reason string) error {
	e.lose(s, reason, true)
	return executor.Errorf(executor.NotFound, "%s: %w", s.id, errSandboxGone)
}

// found notes that s's sandbox is there; opened is what an adoption told of it.
func (e *Engine) found(s *session, generation int, opened *executor.OpenedSession) {
	e.mu.Lock()
	changed := s.rec.Generation != generation || opened != nil
	s.verified, s.rec.Generation = true, generation
	if opened != nil {
		handle := s.rec.Handle
		s.equipLocked(*opened)
		if len(opened.Handle) == 0 || len(opened.Handle) > maxHandle {
			s.rec.Handle = handle
		}
	}
	s.armLocked()
	e.mu.Unlock()
	if changed {
		s.save()
	}
}

// inSession calls f for s. A backend that does not know s adopts it, once, and is called again. Codes: f's; not_found: s is
// lost now, or f's own.
func inSession[T any](ctx context.Context, e *Engine, s *session, doing string, limit time.Duration, f func(context.Context, executor.SessionBackend) (T, error)) (T, error) {
	var none T
	b, err := e.sessionBackend(s.backend)
	if err != nil {
		return none, err
	}
	attempt := func() (T, error) {
		return ask(ctx, e, doing, limit, func(ctx context.Context) (T, error) { return f(ctx, b) })
	}
	got, err := attempt()
	if !unknownSession(err) {
		return got, err
	}
	missing := err
	if err := e.checkSandbox(ctx, s); err != nil {
		return none, err
	}
	if got, err = attempt(); unknownSession(err) {
		return none, missing // it was a path
	}
	return got, err
}

// unknownSession reports whether err may mean that a backend does not hold a Session: a path that does not exist has its
// field.
func unknownSession(err error) bool {
	typed, ok := errors.AsType[*executor.Error](err)
	return ok && typed.Code == executor.NotFound && len(typed.Fields) == 0
}
