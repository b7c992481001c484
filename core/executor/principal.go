package executor

import (
	"context"
	"slices"
	"sync"
)

// Scope is a right of a token. The engine's table of rights says what each Scope allows (docs/contract.md, Rights).
type Scope string

// The scopes.
const (
	// ScopeExec: submit and cancel.
	ScopeExec Scope = "exec"
	// ScopeRead: get, list and follow one's own.
	ScopeRead Scope = "read"
	// ScopeAdmin: everybody's Executions and Sessions, metrics.
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

// Principal is the caller of an operation.
type Principal struct {
	// Owner owns what the Principal makes.
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

type requestKey struct{}

// request is shared by the calls under one ctx of WithRequest.
type request struct {
	mu        sync.Mutex
	submitted []string
}

// WithRequest returns a ctx for the calls of one request. A Principal that may submit may also follow, with this ctx, what it has
// submitted with it. It does not cross a process boundary.
func WithRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{})
}

// NoteSubmitted notes that the request of ctx has submitted the Execution id. A Service calls it.
func NoteSubmitted(ctx context.Context, id string) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.submitted = append(r.submitted, id)
	}
}

// HasSubmitted reports whether the request of ctx has submitted the Execution id.
func HasSubmitted(ctx context.Context, id string) bool {
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.submitted, id)
}

type toolKey struct{}

// WithTool returns a ctx for calls of the tool of that name ("run_script_stream"). Submit hands it on to a Backend in the same process,
// which may note it. It does not cross a process boundary.
func WithTool(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, toolKey{}, name)
}

// ToolFrom returns the name of WithTool, or "".
func ToolFrom(ctx context.Context) string {
	name, _ := ctx.Value(toolKey{}).(string)
	return name
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
