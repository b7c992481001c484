package executor

import "context"

// RefusedScript is a request about the host's scripts that was refused before it reached their backend.
type RefusedScript struct {
	// Tool is the name of the request: run_script, run_script_stream or list_allowed.
	Tool string `json:"tool"`
	// Path and Args are what the request asked for, as far as it could be read.
	Path string   `json:"path,omitzero"`
	Args []string `json:"args,omitzero"`
	Code Code     `json:"code"`
}

// maxRefused bounds Path, and Args together, of a RefusedScript in bytes.
const maxRefused = 4 << 10

type refusedKey struct{}

// WithRefusedScript returns a ctx for Service.Scripts. Scripts then lists nothing, and the backend adds r to its audit log. Unlike
// WithTool it crosses process boundaries.
func WithRefusedScript(ctx context.Context, r RefusedScript) context.Context {
	return context.WithValue(ctx, refusedKey{}, r)
}

// RefusedScriptFrom returns the RefusedScript of WithRefusedScript, and whether there is one.
func RefusedScriptFrom(ctx context.Context) (RefusedScript, bool) {
	r, ok := ctx.Value(refusedKey{}).(RefusedScript)
	return r, ok
}

// NoteRefusedScript adds r to the audit log, if the Principal in ctx has ScopeScripts. Others cannot fill the log.
func NoteRefusedScript(ctx context.Context, svc Service, r RefusedScript) {
	r.Path = r.Path[:min(len(r.Path), maxRefused)]
	left := maxRefused
	for i, arg := range r.Args {
		if left -= len(arg) + 1; left < 0 {
			r.Args = r.Args[:i]
			break
		}
	}
	_, _ = svc.Scripts(WithRefusedScript(ctx, r)) // the backend logs an audit that cannot be written
}
