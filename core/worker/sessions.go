package worker

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

// session is an open Session, or one that is being opened.
type session struct {
	id       string
	instance string
	opened   executor.OpenedSession
	backend  executor.SessionBackend
}

// of returns not_found unless s, which may be nil, is of that installation. The backend answers for a Session that is not registered.
func (s *session) of(instance, id string) error {
	if s != nil && s.instance != instance {
		return backend.NotHeld(id)
	}
	return nil
}

// sessionGuard is a guard of a Backend with Sessions.
type sessionGuard struct {
	*guard
	inner executor.SessionBackend
}

var (
	_ executor.Backend        = (*guard)(nil)
	_ executor.SessionBackend = (*sessionGuard)(nil)
)

// OpenSession implements executor.SessionBackend.
func (g *sessionGuard) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	instance := g.hear(ctx)
	made := &session{id: s.ID, instance: instance, backend: g.inner}
	g.mu.Lock()
	other, draining := g.sessions[s.ID], g.draining
	if other == nil && !draining {
		g.sessions[s.ID] = made
	}
	g.mu.Unlock()
	switch {
	case draining:
		return executor.OpenedSession{}, refused(executor.Unavailable, "it is draining")
	case other != nil:
		return executor.OpenedSession{}, executor.Errorf(executor.Conflict, "session %s is open already", s.ID)
	}
	opened, err := g.inner.OpenSession(ctx, s)
	if err == nil && ctx.Err() != nil { // the caller is gone and does not know of it
		err = errors.Join(executor.Errorf(executor.Unavailable, "the caller of a session is gone: %w", context.Cause(ctx)),
			g.inner.CloseSession(context.WithoutCancel(ctx), s.ID))
	}
	if err != nil {
		g.forget(s.ID)
		return executor.OpenedSession{}, err
	}
	g.mu.Lock()
	made.opened = opened
	g.mu.Unlock()
	return opened, nil
}

// AdoptSession implements executor.SessionBackend. The Sessions of a worker outlive the servers that have opened them: a Session that is
// held here is there, whether the backend can adopt or not.
func (g *sessionGuard) AdoptSession(ctx context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	instance := g.hear(ctx)
	g.mu.Lock()
	held := g.sessions[s.ID]
	var opened executor.OpenedSession
	if held != nil {
		opened = held.opened
	}
	g.mu.Unlock()
	if err := held.of(instance, s.ID); err != nil {
		return executor.OpenedSession{}, err
	}
	if held != nil {
		return opened, nil
	}
	opened, err := g.inner.AdoptSession(ctx, s, handle)
	if err != nil {
		return executor.OpenedSession{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions[s.ID] = &session{id: s.ID, instance: instance, opened: opened, backend: g.inner}
	return opened, nil
}

// CloseSession implements executor.SessionBackend.
func (g *sessionGuard) CloseSession(ctx context.Context, id string) error {
	if g.reach(ctx, id) != nil {
		return nil
	}
	err := g.inner.CloseSession(ctx, id)
	if err == nil {
		g.forget(id)
	}
	return err
}

// forget unregisters a Session.
func (g *guard) forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, id)
	g.changeLocked()
}

// reach returns not_found for the Session of another installation.
func (g *guard) reach(ctx context.Context, id string) error {
	instance := g.hear(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions[id].of(instance, id)
}

// answered looks at the error of a call for a Session: a backend that does not know the Session has lost it.
func (g *guard) answered(id string, err error) {
	e, ok := errors.AsType[*executor.Error](err)
	if id == "" || !ok || e.Code != executor.NotFound || slices.ContainsFunc(e.Fields, func(f executor.FieldError) bool { return f.Field == "path" }) {
		return
	}
	g.forget(id)
}

// in makes one call for a Session.
func in[T any](ctx context.Context, g *sessionGuard, id string, call func() (T, error)) (result T, err error) {
	if err := g.reach(ctx, id); err != nil {
		return result, err
	}
	result, err = call()
	g.answered(id, err)
	return result, err
}

// RestartSession implements executor.SessionBackend.
func (g *sessionGuard) RestartSession(ctx context.Context, id string, wipe bool) error {
	_, err := in(ctx, g, id, func() (struct{}, error) { return struct{}{}, g.inner.RestartSession(ctx, id, wipe) })
	return err
}

// Variables implements executor.SessionTools.
func (g *sessionGuard) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	return in(ctx, g, id, func() ([]executor.Variable, error) { return g.inner.Variables(ctx, id) })
}

// AddRequirements implements executor.SessionTools.
func (g *sessionGuard) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	return in(ctx, g, id, func() ([]string, error) { return g.inner.AddRequirements(ctx, id, requirements) })
}

// ListFiles implements executor.SessionFiles.
func (g *sessionGuard) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	return in(ctx, g, id, func() ([]executor.File, error) { return g.inner.ListFiles(ctx, id, path, recursive) })
}

// ReadFile implements executor.SessionFiles.
func (g *sessionGuard) ReadFile(ctx context.Context, id, path string) (f executor.File, content io.ReadCloser, err error) {
	content, err = in(ctx, g, id, func() (content io.ReadCloser, err error) {
		f, content, err = g.inner.ReadFile(ctx, id, path)
		return content, err
	})
	return f, content, err
}

// WriteFile implements executor.SessionFiles.
func (g *sessionGuard) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	return in(ctx, g, id, func() (executor.File, error) {
		return g.inner.WriteFile(ctx, id, file, r)
	})
}

// RemoveFile implements executor.SessionFiles.
func (g *sessionGuard) RemoveFile(ctx context.Context, id, path string) error {
	_, err := in(ctx, g, id, func() (struct{}, error) { return struct{}{}, g.inner.RemoveFile(ctx, id, path) })
	return err
}

// sweep closes the Sessions of installations that have been silent for that long, until ctx ends. A backend without a server beside it
// would keep them for ever.
func (g *guard) sweep(ctx context.Context, silence time.Duration) {
	ticker := time.NewTicker(silence / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		g.mu.Lock()
		busy := map[string]bool{}
		for _, r := range g.runs {
			busy[r.instance] = true
		}
		for instance, at := range g.heard {
			if !busy[instance] && time.Since(at) < silence {
				busy[instance] = true
			} else if !busy[instance] {
				delete(g.heard, instance)
			}
		}
		g.mu.Unlock()
		g.closeSessions(ctx, func(s *session) bool { return !busy[s.instance] })
	}
}

// closeSessions closes the Sessions for which cond holds, all at once.
func (g *guard) closeSessions(ctx context.Context, cond func(*session) bool) {
	g.mu.Lock()
	var all []*session
	for _, s := range g.sessions {
		if cond(s) {
			all = append(all, s)
		}
	}
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			if err := s.backend.CloseSession(ctx, s.id); err != nil {
				g.log.Warn("close a session that nobody reaches any more", "session", s.id, "error", err)
				return
			}
			g.log.Warn("session closed: its server is gone, or the worker stops", "session", s.id)
			g.forget(s.id)
		})
	}
	wg.Wait()
}
