package engine

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// Options is what New needs. Store, Blobs and at least one Backend must be given; every other zero value means its
// documented default.
type Options struct {
	// Store and Blobs belong to the caller, who closes them after Close.
	Store executor.Store
	Blobs executor.Blobs
	// Backends by configured name.
	Backends map[string]executor.Backend
	// DefaultBackend is used where a Spec names none. Default: the only one there is.
	DefaultBackend string
	// Engine: a zero MaxConcurrent means config.Default().Engine as a whole.
	Engine config.Engine
	// Limits: zero fields are those of config.Default().
	Limits config.LimitRange
	// Retention: zero fields are bounds that are off.
	Retention config.Retention
	// Deadlines bound every state of an Execution.
	Deadlines Deadlines
	// SpoolBytes bounds each spooled stream. Default 8 GiB.
	SpoolBytes int64
	// Log defaults to silence, Registerer to no metrics.
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Deadlines bound the states that have no limit of their own in a Spec. Zero fields mean the defaults.
type Deadlines struct {
	// Upload bounds how long a place is held for an input that is still being spooled. Default 30 min.
	Upload time.Duration
	// Queue bounds waiting for a place or for a backend that is down. Default 24 h.
	Queue time.Duration
	// Prepare bounds the time from the call of Backend.Run to Started. Default 30 min.
	Prepare time.Duration
	// Collect is added to the time of a run that has outputs to collect. Default 10 min.
	Collect time.Duration
	// Stop bounds, beyond KillGrace, how long a backend may take to end a run that was told to end; it is also the
	// margin that the runner has before the Engine steps in for it. Default 20 s.
	Stop time.Duration
}

// Engine implements executor.Service.
type Engine struct {
	opts Options
}

var _ executor.Service = (*Engine)(nil)

// New checks o. Start makes the Engine work. Codes: invalid.
func New(o Options) (*Engine, error) { return &Engine{opts: o}, nil }

// Start recovers what the Store has from an earlier life and begins to run and to clean up. ctx bounds only the start.
func (e *Engine) Start(ctx context.Context) error { return ctx.Err() }

// Close refuses what is new, lets running Executions finish until ctx ends, and then cancels the rest (status lost).
func (e *Engine) Close(ctx context.Context) error { return ctx.Err() }

// Ready reports whether Submit is expected to work. Codes: unavailable.
func (e *Engine) Ready(ctx context.Context) error { return ctx.Err() }

var errStub = errors.New("not built yet")

func (e *Engine) Submit(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
	return executor.Execution{}, errStub
}
func (e *Engine) Get(context.Context, string) (executor.Execution, error) {
	return executor.Execution{}, errStub
}
func (e *Engine) List(context.Context, executor.Filter) ([]executor.Execution, error) {
	return nil, errStub
}
func (e *Engine) Cancel(context.Context, string) (executor.Execution, error) {
	return executor.Execution{}, errStub
}
func (e *Engine) Events(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) { yield(executor.Event{}, errStub) }
}
func (e *Engine) Artifacts(context.Context, string) (io.ReadCloser, error) { return nil, errStub }
func (e *Engine) Backends(context.Context) ([]executor.Info, error)        { return nil, errStub }
