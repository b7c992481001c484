package executor

import (
	"context"
	"slices"
)

// Scope is a right that a token carries.
type Scope string

// The scopes.
const (
	// ScopeExec: submit and cancel.
	ScopeExec Scope = "exec"
	// ScopeRead: get, list, follow one's own.
	ScopeRead Scope = "read"
	// ScopeAdmin: everybody's Executions, metrics.
	ScopeAdmin Scope = "admin"
	// ScopeScripts: run allow-listed host scripts.
	ScopeScripts Scope = "scripts"
	// ScopeTrusted: Spec fields that reach the host (HostDirectory).
	ScopeTrusted Scope = "trusted"
)

// Scopes returns every Scope.
func Scopes() []Scope {
	return []Scope{ScopeExec, ScopeRead, ScopeAdmin, ScopeScripts, ScopeTrusted}
}

// Principal is who asks.
type Principal struct {
	// Owner of what the Principal makes.
	Owner  string
	Scopes []Scope
}

// LocalOwner owns everything where no token is configured.
const LocalOwner = "local"

// Has reports whether p carries scope s. ScopeTrusted and ScopeScripts are never implied by another scope; ScopeAdmin
// implies ScopeExec and ScopeRead.
func (p Principal) Has(s Scope) bool {
	if slices.Contains(p.Scopes, s) {
		return true
	}
	return (s == ScopeExec || s == ScopeRead) && slices.Contains(p.Scopes, ScopeAdmin)
}

type principalKey struct{}

// WithPrincipal puts p into ctx.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns ctx's Principal. A ctx without one is the local owner with exec and read, not trusted.
func PrincipalFrom(ctx context.Context) Principal {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p
	}
	return Principal{Owner: LocalOwner, Scopes: []Scope{ScopeExec, ScopeRead}}
}
