package httpfrontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
)

// Options is what a frontend needs besides its Service. The zero Options are a local server without tokens.
type Options struct {
	// Auth knows the bearer tokens. nil, or one without tokens: everybody is the local owner.
	Auth *auth.Authenticator
	// Version of the program, for /healthz.
	Version string
	// Bind is the listening address. Without tokens and with a loopback Bind (or none) a request whose Host is not
	// loopback is refused, so that no web page reaches the server through a name of its own; with another Bind, addresses,
	// names without a dot, Bind's and the host's own name are answered to.
	Bind string
	// MaxBodyBytes bounds a request's body. Default 8 GiB.
	MaxBodyBytes int64
	// MaxFileBytes bounds a file that is uploaded into a Session. Default 1 GiB.
	MaxFileBytes int64
	// MaxBufferedBytes bounds the request bodies that are held in memory at once. Default 256 MiB.
	MaxBufferedBytes int64
	// SpoolDir is where uploads wait that cannot be streamed; the files in it are unlinked at once. Default: os.TempDir().
	SpoolDir string
	// Metrics serves /metrics. nil: not found.
	Metrics http.Handler
	// Ready says whether work would be accepted now. nil: always.
	Ready func(context.Context) error
	// Limits are shown in the API description. Zero fields take the documented defaults and maxima.
	Limits LimitRange
	// MCP mounts the MCP frontend; nil: there is none.
	MCP *MCP
	// Log takes the access log and internal errors. nil: nothing is logged.
	Log *slog.Logger
}

// LimitRange holds what an Execution gets when it does not ask, and the most that it may ask for.
type LimitRange struct {
	Default executor.Limits
	Max     executor.Limits
}

// settled fills what is zero with the documented defaults and maxima.
func (l LimitRange) settled() LimitRange {
	fill(&l.Default, executor.Limits{Timeout: 300 * time.Second, MemoryBytes: 1 << 30, DiskBytes: 2 << 30, CPUShares: 1024, PIDs: 256, OutputBytes: 64 << 20, KillGrace: time.Second})
	fill(&l.Max, executor.Limits{Timeout: 86400 * time.Second, MemoryBytes: 64 << 30, DiskBytes: 64 << 30, CPUShares: 262144, PIDs: 4096, OutputBytes: 1 << 30, KillGrace: time.Minute})
	return l
}

func fill(l *executor.Limits, from executor.Limits) {
	orElse(&l.Timeout, from.Timeout)
	orElse(&l.MemoryBytes, from.MemoryBytes)
	orElse(&l.DiskBytes, from.DiskBytes)
	orElse(&l.CPUShares, from.CPUShares)
	orElse(&l.PIDs, from.PIDs)
	orElse(&l.OutputBytes, from.OutputBytes)
	orElse(&l.KillGrace, from.KillGrace)
}

func orElse[T comparable](v *T, other T) {
	var zero T
	if *v == zero {
		*v = other
	}
}

// frontend is the handler that New returns.
type frontend struct {
	svc           executor.Service
	admitter      executor.Admitter
	authenticator *auth.Authenticator
	opts          Options
	log           *slog.Logger
	metadata      *metadata
	mux           *http.ServeMux
	description   []byte
	buffers       *buffered.Budget
	uploadIdle    time.Duration
	writeIdle     time.Duration
	heartbeat     time.Duration
}

// route is an operation with what serves it.
type route struct {
	operation
	// pattern is the path for the mux where it is not the description's.
	pattern string
	handler func(http.ResponseWriter, *http.Request) error
}

// New returns the HTTP API in front of svc. If svc is also an executor.Admitter, it is asked before a body is read.
func New(svc executor.Service, o Options) (http.Handler, error) { return newFrontend(svc, o) }

func newFrontend(svc executor.Service, o Options) (*frontend, error) {
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = 8 << 30
	}
	if o.MaxFileBytes <= 0 {
		o.MaxFileBytes = 1 << 30
	}
	if o.MaxBufferedBytes <= 0 {
		o.MaxBufferedBytes = 256 << 20
	}
	if o.SpoolDir == "" {
		o.SpoolDir = os.TempDir()
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Limits = o.Limits.settled()
	f := &frontend{
		svc: svc, authenticator: o.Auth, opts: o, log: o.Log,
		metadata:   newMetadata(o.Limits),
		mux:        http.NewServeMux(),
		buffers:    buffered.New(o.MaxBufferedBytes),
		uploadIdle: uploadIdle,
		writeIdle:  writeIdle,
		heartbeat:  heartbeat,
	}
	f.admitter, _ = svc.(executor.Admitter)
	adapter := humago.NewAdapter(f.mux, "")
	api := huma.NewAPI(newConfig(), adapter)
	components(api.OpenAPI().Components.Schemas, o.Limits)
	for _, r := range f.routes() {
		op := r.huma()
		api.OpenAPI().AddOperation(op)
		at := *op
		if r.pattern != "" {
			at.Path = r.pattern
		}
		adapter.Handle(&at, f.serve(r.handler))
	}
	err := errors.Join(f.mount(docsFiles, docsAssets), f.mountMCP())
	if err != nil {
		return nil, err
	}
	if f.description, err = json.Marshal(api.OpenAPI()); err != nil {
		return nil, fmt.Errorf("encode the API description: %w", err)
	}
	return f, nil
}

// serve makes a huma handler of one of ours: its error is the answer.
func (f *frontend) serve(h func(http.ResponseWriter, *http.Request) error) func(huma.Context) {
	return func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		if err := h(w, r); err != nil {
			f.writeProblem(w, r, err)
		}
	}
}
