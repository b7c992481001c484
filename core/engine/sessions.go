package engine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

func (e *Engine) newSessions(rules config.Sessions) *sessions.Registry {
	return sessions.New(sessions.Options{
		Store: e.store, Log: e.log, Rules: rules, Embedded: e.embedded,
		Prepare: e.deadlines.Prepare, Upload: e.deadlines.Upload, Stop: e.deadlines.Stop,
		Base: e.base, Stopping: e.stopping, Abandoned: &e.abandoned, Spawn: e.spawn, Internal: e.internal,
		Refused: func() { e.metrics.refused.Inc() },
		Full: func(what string) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			return errFull(what, e.retryAfter())
		},
		Home: func(name string) sessions.Home {
			if b := e.now().backends[name]; b != nil {
				return b
			}
			return nil
		},
	})
}

// ID implements sessions.Run.
func (x *execution) ID() string { return x.id }

// Proceed implements sessions.Run.
func (x *execution) Proceed() {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	x.engine.proceedLocked(x, false)
}

// Stop implements sessions.Run.
func (x *execution) Stop(cause error) { x.stop(cause) }

// proceedLocked lets next, which has got its turn in its Session, wait for a slot; nil is none. The caller holds the lock.
func (e *Engine) proceedLocked(next sessions.Run, first bool) {
	x, ok := next.(*execution)
	if !ok || x.state != stateQueued {
		return // it was told to end meanwhile
	}
	e.queue.wait(x.place, first)
	e.dispatch()
}

// ownSession returns the Session that the Principal in ctx may use, nil if only its record is left, and its view. In place of an id, the
// Principal's own Sessions are found by their name.
func (e *Engine) ownSession(ctx context.Context, op operation, id string) (*sessions.Session, executor.Session, error) {
	p, err := authorize(ctx, op, "")
	if err != nil {
		return nil, executor.Session{}, err
	}
	if !sessions.ValidID(id) {
		return e.sessions.FindNamed(ctx, clip(id, maxSessionName), p.Owner)
	}
	return e.sessions.Find(ctx, id, p.may)
}

// activeSession is ownSession for a Session that must be active. Codes: conflict (lost, closed).
func (e *Engine) activeSession(ctx context.Context, op operation, id string) (*sessions.Session, executor.Session, error) {
	s, view, err := e.ownSession(ctx, op, id)
	if err == nil && (s == nil || view.Status != executor.SessionActive) {
		err = sessions.ErrNotActive(view)
	}
	return s, view, err
}

// openSession is ownSession for a Session whose sandbox must be there. Codes: conflict.
func (e *Engine) openSession(ctx context.Context, op operation, id string) (*sessions.Session, error) {
	s, view, err := e.ownSession(ctx, op, id)
	if err == nil && s == nil {
		err = sessions.ErrNotActive(view)
	}
	return s, err
}

// OpenSession implements executor.Sessions.
func (e *Engine) OpenSession(ctx context.Context, asked executor.Session) (executor.Session, error) {
	p, err := authorize(ctx, opOpenSession, "")
	if err != nil {
		return executor.Session{}, err
	}
	if err := e.accepting(); err != nil {
		return executor.Session{}, err
	}
	b, leave := e.backend(cmp.Or(asked.Spec.Backend, e.now().defaultBackend))
	defer leave()
	asked, err = e.checkSession(ctx, p.Owner, asked, b)
	if err != nil {
		return executor.Session{}, err
	}
	return e.sessions.Open(ctx, asked, b)
}

// GetSession implements executor.Sessions.
func (e *Engine) GetSession(ctx context.Context, id string) (executor.Session, error) {
	_, view, err := e.ownSession(ctx, opGetSession, id)
	return view, err
}

// ListSessions implements executor.Sessions. With ScopeAdmin it lists everybody's.
func (e *Engine) ListSessions(ctx context.Context) ([]executor.Session, error) {
	p, err := authorize(ctx, opListSessions, "")
	if err != nil {
		return nil, err
	}
	return e.sessions.List(ctx, p.listed())
}

// InterruptSession implements executor.Sessions. Executions that wait go on.
func (e *Engine) InterruptSession(ctx context.Context, id string) (executor.Session, error) {
	s, view, err := e.activeSession(ctx, opInterruptSession, id)
	if err != nil {
		return executor.Session{}, err
	}
	e.mu.Lock()
	x := e.live[view.Running]
	e.mu.Unlock()
	if x != nil {
		if err := e.cancelLive(ctx, x); err != nil {
			return executor.Session{}, err
		}
	}
	return s.View(), nil
}

// RestartSession implements executor.Sessions. Once the interpreter is being restarted, the end of ctx does not stop that; only a
// close does.
func (e *Engine) RestartSession(ctx context.Context, id string, wipe bool) (executor.Session, error) {
	s, err := e.openSession(ctx, opRestartSession, id)
	if err != nil {
		return executor.Session{}, err
	}
	return s.Restart(ctx, wipe)
}

// CloseSession implements executor.Sessions. It returns when the Session is closed, or when ctx ends (unavailable); the Session is
// closed either way.
func (e *Engine) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	s, view, err := e.ownSession(ctx, opCloseSession, id)
	switch {
	case err != nil:
		return executor.Session{}, err
	case s == nil:
		return e.sessions.CloseRecord(ctx, view)
	}
	return s.Close(ctx)
}

// Variables implements executor.SessionTools.
func (e *Engine) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	s, _, err := e.activeSession(ctx, opVariables, id)
	if err != nil {
		return nil, err
	}
	return s.Variables(ctx)
}

// AddRequirements implements executor.SessionTools.
func (e *Engine) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	s, _, err := e.activeSession(ctx, opAddRequirements, id)
	if err != nil {
		return nil, err
	}
	var invalid executor.Problems
	checkText(&invalid, "requirements_txt", requirements, maxRequirements)
	if strings.TrimSpace(requirements) == "" {
		invalid.Add("requirements_txt", "must not be empty")
	}
	noPythonPackages(executor.Spec{Language: s.Language, Requirements: requirements}, &invalid)
	if err := invalid.Err(executor.Invalid, "submit", "; "); err != nil {
		return nil, err
	}
	return s.AddRequirements(ctx, requirements)
}

// sessionFile returns the Session of a file operation and the clean path. root reports whether the work folder itself is allowed.
func (e *Engine) sessionFile(ctx context.Context, op operation, id, name string, root bool) (*sessions.Session, string, error) {
	s, err := e.openSession(ctx, op, id)
	if err != nil {
		return nil, "", err
	}
	if err := e.accepting(); err != nil {
		return nil, "", err
	}
	name, err = cleanPath(name, root)
	return s, name, err
}

// ListFiles implements executor.SessionFiles.
func (e *Engine) ListFiles(ctx context.Context, id, name string, recursive bool) ([]executor.File, error) {
	s, name, err := e.sessionFile(ctx, opListFiles, id, name, true)
	if err != nil {
		return nil, err
	}
	return s.ListFiles(ctx, name, recursive)
}

// ReadFile implements executor.SessionFiles. The reader ends with ctx.
func (e *Engine) ReadFile(ctx context.Context, id, name string) (executor.File, io.ReadCloser, error) {
	s, name, err := e.sessionFile(ctx, opReadFile, id, name, false)
	if err != nil {
		return executor.File{}, nil, err
	}
	return s.ReadFile(ctx, name)
}

// WriteFile implements executor.SessionFiles. It reads no more than the server's maximum for one file. Another reader must not use
// r before r's own Read has returned, which may be after WriteFile has.
func (e *Engine) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	s, name, err := e.sessionFile(ctx, opWriteFile, id, file.Path, false)
	if err != nil {
		return executor.File{}, err
	}
	if file.Mode > 0o777 {
		return executor.File{}, executor.FieldErrorf(executor.Invalid, "mode", "must be permission bits, at most 0777 (got %#o)", file.Mode)
	}
	if file.Path = name; file.Directory {
		r = strings.NewReader("")
	}
	return s.WriteFile(ctx, file, r)
}

// RemoveFile implements executor.SessionFiles.
func (e *Engine) RemoveFile(ctx context.Context, id, name string) error {
	s, name, err := e.sessionFile(ctx, opRemoveFile, id, name, false)
	if err != nil {
		return err
	}
	return s.RemoveFile(ctx, name)
}

// cleanPath checks a path in a work folder. root reports whether the folder itself is allowed.
func cleanPath(name string, root bool) (string, error) {
	clean := path.Clean(name)
	if name == "" {
		clean = "."
	}
	bad := ""
	switch {
	case len(name) > maxPath:
		bad = fmt.Sprintf("must be at most %d bytes", maxPath)
	case strings.ContainsRune(name, 0) || !utf8.ValidString(name):
		bad = "must be UTF-8 text without NUL"
	case path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), ".."):
		bad = "must stay inside the session folder"
	case clean == "." && !root:
		bad = "must name a file"
	}
	if bad != "" {
		return "", executor.FieldErrorf(executor.Invalid, "path", "%s (got %q)", bad, clip(strings.ToValidUTF8(name, "\uFFFD"), 100))
	}
	if clean == "." {
		clean = ""
	}
	return clean, nil
}
