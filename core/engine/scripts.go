package engine

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

// Scripts answers an empty list: no host script is allowed.
func (e *Engine) Scripts(ctx context.Context) ([]executor.Script, error) {
	if !executor.PrincipalFrom(ctx).Has(executor.ScopeScripts) {
		return nil, executor.Errorf(executor.Denied, "listing scripts needs the scope %q", executor.ScopeScripts)
	}
	return nil, nil
}
