package executor

import (
	"context"
	"io"
	"iter"
)

// Service is everything a Frontend can ask for. The Principal is in ctx; nobody sees another owner's things (not_found),
// except with ScopeAdmin. All methods are safe for concurrent use.
type Service interface {
	Executions
	Sessions
	SessionTools
	SessionFiles
	// Backends describes every configured backend, the one first that a Spec gets which names none. Codes: denied.
	Backends(ctx context.Context) ([]Info, error)
	// Scripts lists the allow-listed host scripts. Codes: denied.
	Scripts(ctx context.Context) ([]Script, error)
}

// Executions is the part of Service about single runs.
type Executions interface {
	// Submit accepts a Spec and returns when the input was consumed (Spec.Durable: when it is on disk) or the Execution
	// has ended, whichever is first. The Execution outlives ctx; ctx bounds only the acceptance. in.Workspace is not
	// opened before there is a place for the Execution. Codes: invalid, denied, exhausted, conflict, unavailable,
	// unimplemented, unauthenticated.
	Submit(ctx context.Context, spec Spec, in Input) (Execution, error)
	// Get returns the present state. Codes: not_found, purged.
	Get(ctx context.Context, id string) (Execution, error)
	// List returns a page, newest first. A page may be shorter than Filter.Limit; only an empty page is the last one.
	// Codes: invalid.
	List(ctx context.Context, f Filter) ([]Execution, error)
	// Cancel asks the Execution to end (status killed) and returns its state when it has ended. Idempotent: an
	// Execution that had already ended is returned as it is. Codes: not_found, purged.
	Cancel(ctx context.Context, id string) (Execution, error)
	// Events replays the log after Seq after, then follows it and ends after Finished or with ctx. An error ends the
	// sequence. Codes: not_found, purged (after lies behind what retention kept), never a partial replay.
	Events(ctx context.Context, id string, after uint64) iter.Seq2[Event, error]
	// Artifacts returns the collected files as a tar; empty archive if there are none. Codes: not_found, purged,
	// conflict (not finished).
	Artifacts(ctx context.Context, id string) (io.ReadCloser, error)
}

// Admitter is an optional power of a Service: it says before any input is read whether the Principal in ctx could submit
// now, so that a frontend can refuse a large body unread. nil promises nothing; Submit decides. Codes: exhausted,
// unavailable, denied.
type Admitter interface {
	Admit(ctx context.Context) error
}

// Follower is an optional power of a Service that is reached over a wire: Submit and Events in one exchange.
type Follower interface {
	// SubmitAndFollow is Submit, and then Events of what was accepted, from its first one. The sequence is ranged over once, to
	// its end or not; before that nothing of the call is given back.
	SubmitAndFollow(ctx context.Context, spec Spec, in Input) (Execution, iter.Seq2[Event, error], error)
}

// SubmitAndFollow does what Follower describes, whatever s can.
func SubmitAndFollow(ctx context.Context, s Executions, spec Spec, in Input) (Execution, iter.Seq2[Event, error], error) {
	if f, ok := s.(Follower); ok {
		return f.SubmitAndFollow(ctx, spec, in)
	}
	x, err := s.Submit(ctx, spec, in)
	if err != nil {
		return Execution{}, nil, err
	}
	return x, s.Events(ctx, x.ID, 0), nil
}

// ScriptBackend is what a Backend with Capabilities.Scripts also implements.
type ScriptBackend interface {
	// Scripts lists what may be run.
	Scripts(ctx context.Context) ([]Script, error)
}

// Script describes one allow-listed host script.
type Script struct {
	Path        string
	AllowedArgs []string
	DefaultArgs []string
}
