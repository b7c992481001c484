package executor

import (
	"context"
	"io"
	"iter"
)

// Service is the interface that frontends call. The Principal is in ctx. Another owner's Executions and Sessions are not_found, except with
// ScopeAdmin. Every method may answer denied and unavailable. All methods are safe for concurrent use.
type Service interface {
	Executions
	Sessions
	SessionTools
	SessionFiles
	// Backends describes every configured backend, the default one first. Codes: denied.
	Backends(ctx context.Context) ([]Info, error)
	// Scripts lists the allow-listed host scripts. Codes: denied.
	Scripts(ctx context.Context) ([]Script, error)
}

// Executions is the part of Service about single runs.
type Executions interface {
	// Submit accepts a Spec. It returns when the input was consumed (Spec.Durable: when it is on disk) or the Execution has ended,
	// whichever is first. The Execution outlives ctx, which bounds only the acceptance. in.Workspace is not opened before there is a
	// place for the Execution. Codes: invalid, denied, exhausted, conflict, unavailable, unimplemented, unauthenticated.
	Submit(ctx context.Context, spec Spec, in Input) (Execution, error)
	// Get returns the present state. Codes: not_found, purged.
	Get(ctx context.Context, id string) (Execution, error)
	// List returns a page, newest first. A page may be shorter than Filter.Limit; only an empty page is the last one.
	// Codes: invalid.
	List(ctx context.Context, f Filter) ([]Execution, error)
	// Cancel tells the Execution to end (status killed) and returns its state when it has ended. Idempotent: an Execution that has
	// ended before is returned as it is. Codes: not_found, purged.
	Cancel(ctx context.Context, id string) (Execution, error)
	// Events replays the log after Seq after, then follows it, and ends after Finished or with ctx. An error ends the sequence. A
	// replay is never partial. An Event stays as it is, unless ctx comes from WithBorrowedData. Codes: not_found, purged.
	Events(ctx context.Context, id string, after uint64) iter.Seq2[Event, error]
	// Artifacts returns the collected files as a tar, which is empty if there are none. Codes: not_found, purged, conflict (not
	// finished).
	Artifacts(ctx context.Context, id string) (io.ReadCloser, error)
}

// Admitter is an optional power of a Service. Admit says, before any input is read, whether the Principal in ctx could submit now, so that a
// frontend can refuse a large body unread. A nil error promises nothing; Submit decides. Codes: exhausted, unavailable, denied.
type Admitter interface {
	Admit(ctx context.Context) error
}

// Follower is an optional power of a Service that is reached over a wire: Submit and Events in one exchange.
type Follower interface {
	// SubmitAndFollow is Submit, and then Events of what was accepted, from its first one. The sequence is ranged over once, to
	// its end or not; before that nothing of the call is given back.
	SubmitAndFollow(ctx context.Context, spec Spec, in Input) (Execution, iter.Seq2[Event, error], error)
}

// SubmitAndFollow is Follower.SubmitAndFollow for every Service.
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

// Frontend is a way in: it serves svc until ctx ends, then drains and returns nil.
type Frontend func(ctx context.Context, svc Service) error
