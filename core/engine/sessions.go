package engine

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

// Sessions and scripts have their place in the contract; this Engine has no backend that offers them yet.

// OpenSession answers unimplemented.
func (e *Engine) OpenSession(context.Context, executor.Session) (executor.Session, error) {
	return executor.Session{}, errNoSessions()
}

// GetSession answers unimplemented.
func (e *Engine) GetSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, errNoSessions()
}

// ListSessions answers unimplemented.
func (e *Engine) ListSessions(context.Context) ([]executor.Session, error) {
	return nil, errNoSessions()
}

// RestartSession answers unimplemented.
func (e *Engine) RestartSession(context.Context, string, bool) (executor.Session, error) {
	return executor.Session{}, errNoSessions()
}

// CloseSession answers unimplemented.
func (e *Engine) CloseSession(context.Context, string) (executor.Session, error) {
	return executor.Session{}, errNoSessions()
}

// Scripts answers an empty list: no host script is allowed.
func (e *Engine) Scripts(ctx context.Context) ([]executor.Script, error) {
	if !executor.PrincipalFrom(ctx).Has(executor.ScopeScripts) {
		return nil, executor.Errorf(executor.Denied, "listing scripts needs the scope %q", executor.ScopeScripts)
	}
	return nil, nil
}

func errNoSessions() error {
	return executor.FieldErrorf(executor.Unimplemented, "session", "sessions are not offered by this server")
}
