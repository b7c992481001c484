package engine

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

// Scripts lists what the backend for scripts allows; nothing without one.
func (e *Engine) Scripts(ctx context.Context) ([]executor.Script, error) {
	if err := needs(executor.PrincipalFrom(ctx), executor.ScopeScripts); err != nil {
		return nil, err
	}
	b := e.backends[e.scriptBackend()]
	if b == nil {
		return nil, nil
	}
	return b.Backend.(executor.ScriptBackend).Scripts(ctx) //nolint:forcetypeassert // scriptBackend has looked
}

// scriptBackend is the name of the backend that runs host scripts; empty: there is none.
func (e *Engine) scriptBackend() string {
	for _, name := range e.names {
		if _, ok := e.backends[name].Backend.(executor.ScriptBackend); ok {
			return name
		}
	}
	return ""
}
