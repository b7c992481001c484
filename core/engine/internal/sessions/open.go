package sessions

import (
	"context"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxHandle bounds the handle of a sandbox.
	maxHandle = 4 << 10
	// maxEvictions bounds how often one Open makes room.
	maxEvictions = 3
)

// Open makes the Session that asked describes on home. The engine has checked and completed asked. At a bound it closes the owner's least
// recently used Session, if that has been idle for Rules.EvictIdleSeconds; else it answers exhausted, with the time until the next
// of them expires.
func (r *Registry) Open(ctx context.Context, asked executor.Session, home Home) (executor.Session, error) {
	s, err := r.reserve(ctx, asked, home)
	if err != nil {
		return executor.Session{}, err
	}
	opened, err := ask(ctx, r, "open a session on "+s.Backend, r.options.Prepare, func(ctx context.Context) (executor.OpenedSession, error) {
		b, err := sandboxes(home, s.Backend)
		if err != nil {
			return executor.OpenedSession{}, err
		}
		return b.OpenSession(ctx, s.rec.Session.Clone())
	})
	if err == nil && ctx.Err() != nil {
		err = executor.Errorf(executor.Unavailable, "open a session: %w", context.Cause(ctx))
	}
	if err == nil && len(opened.Handle) > maxHandle {
		r.options.Log.Error("a backend broke the contract", "session", s.ID, "backend", s.Backend, "handle_bytes", len(opened.Handle))
		err = executor.Errorf(executor.Internal, "a handle of %d bytes", len(opened.Handle))
	}
	if err == nil {
		err = s.begin(ctx, opened)
	}
	if err != nil {
		s.abandon()
		return executor.Session{}, r.options.Internal("open a session", err)
	}
	return s.View(), nil
}

// reserve takes a place for a Session that is about to open, and makes room for it where the configuration allows that.
func (r *Registry) reserve(ctx context.Context, asked executor.Session, home Home) (*Session, error) {
	for evictions := 0; ; evictions++ {
		s, victim, err := r.place(asked, home)
		if err == nil {
			return s, nil
		}
		if victim == nil || evictions == maxEvictions {
			if executor.CodeOf(err) == executor.Exhausted {
				r.options.Refused()
			}
			return nil, err
		}
		if victim.beginClose("it was idle, and made room for another") {
			r.metrics.evicted.Inc()
		}
		select {
		case <-victim.closed:
		case <-ctx.Done():
			return nil, executor.Errorf(executor.Unavailable, "open a session: %w", context.Cause(ctx))
		}
	}
}

// place registers a Session, or says which bound is reached. victim could make room; nil if no Session could.
func (r *Registry) place(asked executor.Session, home Home) (s, victim *Session, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return nil, nil, errStopping()
	}
	own := 0
	for _, other := range r.open {
		if other.Owner == asked.Owner {
			own++
		}
	}
	full := ""
	switch {
	case r.options.Rules.MaxPerOwner > 0 && own >= r.options.Rules.MaxPerOwner:
		full = "your sessions"
	case len(r.open) >= r.options.Rules.Max:
		full = "all sessions"
	}
	if full != "" {
		return nil, r.evictableLocked(asked.Owner), &executor.Error{
			Code: executor.Exhausted, Op: "open a session", RetryAfter: r.nextExpiryLocked(asked.Owner),
			Message: "no place left: the bound on " + full + " is reached",
		}
	}
	now := time.Now().UTC().Round(0)
	asked.ID, asked.CreatedAt, asked.LastUsed = newID(), now, now
	s = newSession(r, executor.SessionRecord{Session: asked}, home)
	s.verified = true
	r.open[s.ID] = s
	return s, nil, nil
}

// evictableLocked returns the least recently used of owner's Sessions that has been idle for long enough; nil if none has.
func (r *Registry) evictableLocked(owner string) *Session {
	idle := time.Duration(r.options.Rules.EvictIdleSeconds * float64(time.Second))
	if idle <= 0 {
		return nil
	}
	var oldest *Session
	for _, s := range r.open {
		if s.Owner != owner || s.busyLocked() || time.Since(s.rec.LastUsed) < idle {
			continue
		}
		if oldest == nil || s.rec.LastUsed.Before(oldest.rec.LastUsed) {
			oldest = s
		}
	}
	return oldest
}

// nextExpiryLocked guesses when a place becomes free.
func (r *Registry) nextExpiryLocked(owner string) time.Duration {
	wait := time.Minute
	for _, s := range r.open {
		if due := s.dueLocked(); s.Owner == owner && !due.IsZero() {
			wait = min(wait, time.Until(due))
		}
	}
	return max(wait, time.Second).Round(time.Second)
}

// begin makes an opened Session known.
func (s *Session) begin(ctx context.Context, opened executor.OpenedSession) error {
	r := s.registry
	r.mu.Lock()
	s.equipLocked(opened)
	s.usedLocked()
	s.saved = s.rec.LastUsed
	rec := s.rec.Clone()
	r.mu.Unlock()
	rec.Status = executor.SessionActive
	ctx, cancel := calls.StoreContext(ctx)
	defer cancel()
	if err := r.options.Store.CreateSession(ctx, rec); err != nil {
		return err
	}
	r.mu.Lock()
	draining := r.draining
	if !draining {
		s.rec.Status = executor.SessionActive
		s.armLocked()
	}
	r.mu.Unlock()
	if draining {
		if err := r.options.Store.DeleteSession(ctx, s.ID); err != nil {
			r.options.Log.Error("session not deleted", "session", s.ID, "error", err)
		}
		return errStopping()
	}
	r.Look()
	r.metrics.opened.WithLabelValues(s.Backend).Inc()
	r.options.Log.Info("session opened", "session", s.ID, "name", s.rec.Name, "backend", s.Backend, "language", s.Language)
	return nil
}

// equipLocked takes over what a backend says of the sandbox.
func (s *Session) equipLocked(opened executor.OpenedSession) {
	s.rec.Handle = slices.Clone(opened.Handle)
	s.rec.PythonVersion, s.rec.ImageDigest = opened.PythonVersion, opened.ImageDigest
	s.rec.Requirements = slices.Clone(opened.Requirements)
}

// abandon forgets a Session that did not open, and removes what there may be of its sandbox.
func (s *Session) abandon() {
	r := s.registry
	r.mu.Lock()
	delete(r.open, s.ID)
	r.mu.Unlock()
	remove := func() {
		r.removeSandbox(s)
		s.home.Leave()
	}
	if !r.options.Spawn(remove) {
		remove()
	}
}
