package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	maxSessionName        = 200
	maxSessionDescription = 4 << 10
	// evictions bounds how often one OpenSession makes room.
	evictions = 3
)

// sessionRequest is an OpenSession that was checked.
type sessionRequest struct {
	session executor.Session
	limits  executor.Limits
	info    executor.Info
}

// OpenSession implements executor.Sessions. At a bound it closes the owner's least recently used Session, if that has
// been idle for config.Sessions.EvictIdleSeconds; else it answers exhausted, with the time when one of them expires.
func (e *Engine) OpenSession(ctx context.Context, asked executor.Session) (executor.Session, error) {
	req, err := e.checkSession(ctx, asked)
	if err != nil {
		return executor.Session{}, err
	}
	s, err := e.reserveSession(ctx, req)
	if err != nil {
		return executor.Session{}, err
	}
	opened, err := ask(ctx, e, "open a session on "+s.backend, e.deadlines.Prepare, func(ctx context.Context) (executor.OpenedSession, error) {
		b, err := e.sessionBackend(s.backend)
		if err != nil {
			return executor.OpenedSession{}, err
		}
		return b.OpenSession(ctx, s.rec.Session.Clone())
	})
	if err == nil && ctx.Err() != nil {
		err = executor.Errorf(executor.Unavailable, "open a session: %w", context.Cause(ctx))
	}
	if err == nil && len(opened.Handle) > maxHandle {
		e.log.Error("a backend broke the contract", "session", s.id, "backend", s.backend, "handle_bytes", len(opened.Handle))
		err = executor.Errorf(executor.Internal, "a handle of %d bytes", len(opened.Handle))
	}
	if err == nil {
		err = e.beginSession(ctx, s, opened)
	}
	if err != nil {
		e.abandonSession(s)
		return executor.Session{}, e.internal("open a session", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.viewLocked(), nil
}

// checkSession finds everything that is wrong with an OpenSession.
func (e *Engine) checkSession(ctx context.Context, asked executor.Session) (sessionRequest, error) {
	p := executor.PrincipalFrom(ctx)
	if err := needs(p, executor.ScopeExec); err != nil {
		return sessionRequest{}, err
	}
	if err := e.accepting(); err != nil {
		return sessionRequest{}, err
	}
	var invalid, missing problems
	req := sessionRequest{session: executor.Session{
		Owner: p.Owner, Name: asked.Name, Description: asked.Description, Backend: asked.Spec.Backend,
		Language: cmp.Or(asked.Language, asked.Spec.Language, executor.LanguagePython),
		Spec:     asked.Spec.Clone(), IdleTimeout: asked.IdleTimeout, MaxLife: asked.MaxLife,
	}}
	s := &req.session
	if asked.Language != "" && asked.Spec.Language != "" && asked.Language != asked.Spec.Language {
		invalid.add("language", "is both %q and %q", clip(string(asked.Language), 100), clip(string(asked.Spec.Language), 100))
	}
	s.Spec.Language = s.Language
	if s.Language == executor.LanguagePython {
		s.Preload = slices.Clone(e.rules.preload)
	}
	invalid.text("name", s.Name, maxSessionName)
	invalid.text("description", s.Description, maxSessionDescription)
	e.validateLife(s, &invalid)
	validateSessionSpec(s.Spec, &invalid)
	req.limits = e.resolveLimits(s.Spec.Limits, &invalid)
	if s.Backend == "" {
		s.Backend = e.defaultBackend
	}
	if e.backends[s.Backend] == nil {
		invalid.add("backend", "must be one of %v (got %q)", e.names, clip(s.Backend, 100))
	}
	if err := invalid.errOf("open a session", executor.Invalid); err != nil {
		return sessionRequest{}, err
	}
	var err error
	if req.info, err = e.info(ctx, s.Backend); err != nil {
		return sessionRequest{}, err
	}
	capable(s.Spec, req.info, &missing)
	if !req.info.Capabilities.Sessions {
		missing.add("session", "backend %s has no sessions", req.info.Name)
	}
	s.Limits, s.Generation = req.limits, req.info.Generation
	return req, missing.errOf("open a session", executor.Unimplemented)
}

// validateLife fills in and checks how long a Session may live.
func (e *Engine) validateLife(s *executor.Session, p *problems) {
	p.within("idle_timeout_seconds", s.IdleTimeout.Seconds(), e.rules.idle.Seconds())
	p.within("max_life_seconds", s.MaxLife.Seconds(), e.rules.life.Seconds())
	fill(&s.IdleTimeout, e.rules.idle)
	fill(&s.MaxLife, e.rules.life)
}

// validateSessionSpec checks what a Session fixes for its Executions, and refuses what is theirs.
func validateSessionSpec(s executor.Spec, p *problems) {
	theirs := func(set bool, field string) {
		if set {
			p.add(field, "belongs to the executions of a session")
		}
	}
	theirs(s.Code != "", "code")
	theirs(len(s.Command) > 0, "command")
	theirs(s.Entrypoint != "", "entrypoint")
	theirs(len(s.Args) > 0, "args")
	theirs(len(s.Outputs) > 0, "outputs")
	theirs(s.OutputsChanged, "outputs_changed")
	theirs(s.FilesChanged, "files_changed")
	theirs(s.Durable, "durable")
	theirs(s.IdempotencyKey != "", "idempotency_key")
	theirs(s.SampleInterval != 0, "sample_interval_seconds")
	theirs(s.Session != "", "session")
	cannot := func(set bool, field string) {
		if set {
			p.add(field, "a session takes none")
		}
	}
	cannot(s.Interpreter != "", "interpreter")
	cannot(s.Detect != nil, "detect")
	cannot(s.Script != "", "script")
	cannot(s.HostDirectory != "", "host_directory")
	p.text("requirements_txt", s.Requirements, maxRequirements)
	p.list("pre_commands", s.PreCommands, maxPatterns, maxArgument)
	p.text("backend", s.Backend, maxKey)
	validateEnvironment(s.Env, p)
	validateWords(executor.Spec{Language: s.Language, Network: s.Network, PythonVersion: s.PythonVersion, Image: s.Image}, p)
}

// reserveSession takes a place for a Session that is about to open, and makes room for it where the configuration lets it.
func (e *Engine) reserveSession(ctx context.Context, req sessionRequest) (*session, error) {
	for range evictions {
		e.mu.Lock()
		s, victim, err := e.placeSessionLocked(req)
		e.mu.Unlock()
		if err == nil || victim == nil {
			return s, err
		}
		if victim.beginClose("it was idle, and made room for another") {
			e.metrics.sessionsEvicted.Inc()
		}
		select {
		case <-victim.closed:
		case <-ctx.Done():
			return nil, executor.Errorf(executor.Unavailable, "open a session: %w", context.Cause(ctx))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _, err := e.placeSessionLocked(req)
	return s, err
}

// placeSessionLocked registers a Session, or says what bound is reached and who could make room. The caller holds the
// lock.
func (e *Engine) placeSessionLocked(req sessionRequest) (s, victim *session, err error) {
	if err := e.acceptingLocked(); err != nil {
		return nil, nil, err
	}
	own := 0
	for _, other := range e.sessions {
		if other.owner == req.session.Owner {
			own++
		}
	}
	full := ""
	switch {
	case e.rules.perOwner > 0 && own >= e.rules.perOwner:
		full = "your sessions"
	case len(e.sessions) >= e.rules.most:
		full = "all sessions"
	}
	if full != "" {
		e.metrics.refused.Inc()
		return nil, e.evictableLocked(req.session.Owner), &executor.Error{
			Code: executor.Exhausted, Op: "open a session", RetryAfter: e.nextExpiryLocked(req.session.Owner),
			Message: "no place left: the bound on " + full + " is reached",
		}
	}
	now := time.Now().UTC().Round(0)
	s = &session{engine: e, id: newSessionID(), owner: req.session.Owner, backend: req.session.Backend, verified: true}
	s.rec.Session = req.session
	s.rec.ID, s.rec.CreatedAt, s.rec.LastUsed = s.id, now, now
	e.sessions[s.id] = s
	return s, nil, nil
}

// evictableLocked is the least recently used of owner's Sessions that has been idle for long enough; nil if there is
// none. The caller holds the lock.
func (e *Engine) evictableLocked(owner string) *session {
	if e.rules.evict <= 0 {
		return nil
	}
	var oldest *session
	for _, s := range e.sessions {
		if s.owner != owner || s.busyLocked() || s.closed != nil || time.Since(s.rec.LastUsed) < e.rules.evict {
			continue
		}
		if oldest == nil || s.rec.LastUsed.Before(oldest.rec.LastUsed) {
			oldest = s
		}
	}
	return oldest
}

// nextExpiryLocked guesses when a place becomes free. The caller holds the lock.
func (e *Engine) nextExpiryLocked(owner string) time.Duration {
	wait := time.Minute
	for _, s := range e.sessions {
		if due := s.dueLocked(); s.owner == owner && !due.IsZero() {
			wait = min(wait, time.Until(due))
		}
	}
	return max(wait, time.Second).Round(time.Second)
}

// beginSession makes an opened Session known.
func (e *Engine) beginSession(ctx context.Context, s *session, opened executor.OpenedSession) error {
	e.mu.Lock()
	s.equipLocked(opened)
	now := time.Now().UTC().Round(0)
	s.rec.LastUsed, s.saved = now, now
	rec := s.rec.Clone()
	e.mu.Unlock()
	rec.Status = executor.SessionActive
	keep, cancel := storeContext(ctx)
	defer cancel()
	if err := e.store.CreateSession(keep, rec); err != nil {
		return err
	}
	e.mu.Lock()
	err := e.acceptingLocked()
	if err == nil {
		s.rec.Status = executor.SessionActive
		s.armLocked()
	}
	e.mu.Unlock()
	if err != nil {
		if dropped := e.store.DeleteSession(keep, s.id); dropped != nil {
			e.log.Error("session not deleted", "session", s.id, "error", dropped)
		}
		return err
	}
	e.lookSoon()
	e.metrics.sessionsOpened.WithLabelValues(s.backend).Inc()
	e.log.Info("session opened", "session", s.id, "name", s.rec.Name, "backend", s.backend, "language", s.rec.Language)
	return nil
}

// equipLocked takes over what a backend says of the sandbox. The caller holds the lock.
func (s *session) equipLocked(opened executor.OpenedSession) {
	s.rec.Handle = slices.Clone(opened.Handle)
	s.rec.PythonVersion, s.rec.ImageDigest = opened.PythonVersion, opened.ImageDigest
	s.rec.Requirements = slices.Clone(opened.Requirements)
}

// abandonSession forgets a Session that did not open, and sees to it that nothing of it stays.
func (e *Engine) abandonSession(s *session) {
	e.mu.Lock()
	delete(e.sessions, s.id)
	e.mu.Unlock()
	if !e.spawn(func() { e.closeSandbox(s) }) {
		e.closeSandbox(s)
	}
}

// sessionBackend returns the sessions of a backend. Codes: unimplemented.
func (e *Engine) sessionBackend(name string) (executor.SessionBackend, error) {
	b := e.backends[name]
	if b == nil {
		return nil, executor.Errorf(executor.Unavailable, "backend %s is not configured any more", name)
	}
	sessions, ok := b.Backend.(executor.SessionBackend)
	if !ok {
		return nil, executor.FieldErrorf(executor.Unimplemented, "session", "backend %s has no sessions", name)
	}
	return sessions, nil
}
