package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// sandboxes returns the SessionBackend of a Home. Codes: unavailable (nil: not configured), unimplemented.
func sandboxes(home Home, name string) (executor.SessionBackend, error) {
	if home == nil {
		return nil, executor.Errorf(executor.Unavailable, "backend %s is not configured any more", name)
	}
	sessions, ok := home.Sandboxes().(executor.SessionBackend)
	if !ok {
		return nil, executor.FieldErrorf(executor.Unimplemented, "session", "backend %s has no sessions", name)
	}
	return sessions, nil
}

// ask calls f, a method of a backend, for at most limit. What f returns after that as an internal error is unavailable.
func ask[T any](ctx context.Context, r *Registry, doing string, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New(doing+" took too long"))
	defer cancel()
	got, err := calls.Ask(ctx, r.options.Abandoned, doing, r.options.Stop, func() (T, error) { return f(ctx) })
	switch {
	case errors.Is(err, calls.ErrGivenUp):
		r.options.Log.Error("a backend does not return", "doing", doing)
	case ctx.Err() != nil && executor.CodeOf(err) == executor.Internal:
		err = executor.Errorf(executor.Unavailable, "%s: %w", doing, context.Cause(ctx))
	}
	return got, err
}

// inSandbox calls f for s. A backend that does not know s adopts it, once, and is called again. Codes: f's; not_found: s is lost
// now, or the not_found is f's own.
func inSandbox[T any](ctx context.Context, s *Session, doing string, limit time.Duration, f func(context.Context, executor.SessionBackend) (T, error)) (T, error) {
	var none T
	b, err := sandboxes(s.home, s.Backend)
	if err != nil {
		return none, err
	}
	attempt := func() (T, error) {
		return ask(ctx, s.registry, doing, limit, func(ctx context.Context) (T, error) { return f(ctx, b) })
	}
	got, err := attempt()
	if !Unknown(err) {
		return got, err
	}
	missing := err
	if err := s.Check(ctx); err != nil {
		return none, err
	}
	if got, err = attempt(); Unknown(err) {
		return none, missing // the backend has the Session: a path was not found
	}
	return got, err
}

// Unknown reports whether err may mean that a backend does not hold a Session. The error for a path that does not exist has its
// field.
func Unknown(err error) bool {
	typed, ok := errors.AsType[*executor.Error](err)
	return ok && typed.Code == executor.NotFound && len(typed.Fields) == 0
}

// errSandboxGone is in the error of a Check that has found s lost.
var errSandboxGone = errors.New("the sandbox is gone")

// Check asks s's backend whether it still has the sandbox, and has it adopt one that outlived its plugin. Only a backend that
// answers can lose a Session. Codes: not_found (s is lost now), unavailable (the backend does not answer).
func (s *Session) Check(ctx context.Context) error {
	select {
	case s.checking <- struct{}{}:
		defer func() { <-s.checking }()
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "look for session %s: %w", s.ID, context.Cause(ctx))
	}
	r := s.registry
	r.mu.Lock()
	open := r.open[s.ID] == s
	rec := s.rec.Clone()
	verified := s.verified
	r.mu.Unlock()
	if !open {
		return executor.Errorf(executor.NotFound, "%s: %w", s.ID, errSandboxGone)
	}
	b, err := sandboxes(s.home, s.Backend)
	if err != nil {
		return s.gone(err.Error())
	}
	info, err := s.home.Describe(ctx)
	if err != nil {
		return err
	}
	_, err = ask(ctx, r, "look for session "+s.ID, r.options.Stop, func(ctx context.Context) ([]executor.File, error) {
		return b.ListFiles(ctx, s.ID, "", false)
	})
	switch executor.CodeOf(err) {
	case executor.Unavailable:
		return err
	case executor.NotFound, executor.Unimplemented:
	default:
		s.found(info.Generation, nil) // the backend has it, whatever else is wrong
		return nil
	}
	if len(rec.Handle) > 0 {
		opened, err := ask(ctx, r, "adopt session "+s.ID, r.options.Stop, func(ctx context.Context) (executor.OpenedSession, error) {
			return b.AdoptSession(ctx, rec.Session, rec.Handle)
		})
		switch executor.CodeOf(err) {
		case "":
			s.found(info.Generation, &opened)
			r.options.Log.Info("session adopted", "session", s.ID, "backend", s.Backend, "generation", info.Generation)
			return nil
		case executor.Exhausted:
			return s.gone("its sandbox ran out of memory")
		case executor.NotFound, executor.Unimplemented:
		default:
			return r.options.Internal("adopt session "+s.ID, err)
		}
	}
	if !verified || info.Generation != rec.Generation {
		return s.gone(fmt.Sprintf("backend %s was restarted", s.Backend))
	}
	return s.gone(fmt.Sprintf("backend %s has its sandbox no more", s.Backend))
}

func (s *Session) gone(reason string) error {
	s.lose(reason, true)
	return executor.Errorf(executor.NotFound, "%s: %w", s.ID, errSandboxGone)
}

// found notes that s's sandbox is there. opened is what an adoption told of it; nil if it was not adopted.
func (s *Session) found(generation int, opened *executor.OpenedSession) {
	r := s.registry
	r.mu.Lock()
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
	r.mu.Unlock()
	if changed {
		s.save()
	}
}

// removeSandbox asks the backend to leave nothing of s, and reports whether it has done so. A backend that is away is asked again
// once it is back, also in the next life of the server, where the record still has the handle.
func (r *Registry) removeSandbox(s *Session) bool {
	err := r.closeSandbox(s.ID, s.Backend, s.home)
	if err == nil {
		return true
	}
	r.options.Log.Warn("a sandbox was not closed", "session", s.ID, "backend", s.Backend, "error", err)
	r.mu.Lock()
	r.leftovers[s.ID] = s.Backend
	r.mu.Unlock()
	r.Look()
	return false
}

func (r *Registry) closeSandbox(id, backend string, home Home) error {
	b, err := sandboxes(home, backend)
	if executor.CodeOf(err) == executor.Unimplemented {
		return nil // then it never had one
	}
	if err != nil {
		return err
	}
	_, err = ask(context.WithoutCancel(r.options.Base), r, "close session "+id, r.options.Stop, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.CloseSession(ctx, id)
	})
	return err
}
