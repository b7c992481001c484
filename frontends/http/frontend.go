package httpfrontend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// Options configures a frontend. The zero Options are those of a local server without tokens.
type Options struct {
	// Auth checks the bearer tokens. With nil, or without tokens, every caller is the local owner.
	Auth *auth.Authenticator
	// Version is that of the program, for /healthz.
	Version string
	// Bind is the listening address. Without tokens, it decides which Host a request may have, so that no web page reaches the
	// server by a name of its own. With a loopback Bind, or none, the Host must be loopback. With another Bind it must be an
	// address, a name without a dot, the name in Bind or the host's own name.
	Bind string
	// MaxBodyBytes bounds a request's body. Default 8 GiB.
	MaxBodyBytes int64
	// MaxFileBytes bounds a file that is uploaded into a Session. Default 1 GiB.
	MaxFileBytes int64
	// MaxBufferedBytes bounds the request bodies that are held in memory at once. Default 256 MiB.
	MaxBufferedBytes int64
	// SpoolDir is the folder of uploads that cannot be streamed. Their files are unlinked at once. Default: os.TempDir().
	SpoolDir string
	// Metrics serves /metrics. With nil, /metrics is not found.
	Metrics http.Handler
	// Ready returns nil if Executions are accepted now. A nil Ready means always.
	Ready func(context.Context) error
	// Notice returns what /readyz tells of the configuration, which everybody may read; empty: nothing. It may be nil.
	Notice func() string
	// Limits are shown in the API description. Zero fields take the documented defaults and maxima.
	Limits LimitRange
	// MCP mounts the MCP frontend. It may be nil.
	MCP *MCP
	// Log takes the access log and internal errors. It may be nil.
	Log *slog.Logger
}

// LimitRange holds the default and the maximum of each limit.
type LimitRange struct {
	Default executor.Limits
	Max     executor.Limits
}

// settled returns l with the documented defaults and maxima in place of zero fields.
func (l LimitRange) settled() LimitRange {
	fill(&l.Default, executor.Limits{Timeout: 300 * time.Second, MemoryBytes: 1 << 30, DiskBytes: 2 << 30, CPUShares: 1024, PIDs: 256, OutputBytes: 64 << 20, KillGrace: time.Second})
	fill(&l.Max, executor.Limits{Timeout: 86400 * time.Second, CPUTime: 86400 * time.Second, MemoryBytes: 64 << 30, DiskBytes: 64 << 30, CPUShares: 262144, PIDs: 4096, OutputBytes: 1 << 30, KillGrace: time.Minute})
	return l
}

func fill(l *executor.Limits, from executor.Limits) {
	l.Timeout = cmp.Or(l.Timeout, from.Timeout)
	l.CPUTime = cmp.Or(l.CPUTime, from.CPUTime)
	l.MemoryBytes = cmp.Or(l.MemoryBytes, from.MemoryBytes)
	l.DiskBytes = cmp.Or(l.DiskBytes, from.DiskBytes)
	l.CPUShares = cmp.Or(l.CPUShares, from.CPUShares)
	l.PIDs = cmp.Or(l.PIDs, from.PIDs)
	l.OutputBytes = cmp.Or(l.OutputBytes, from.OutputBytes)
	l.KillGrace = cmp.Or(l.KillGrace, from.KillGrace)
}

// frontend is the handler that New returns.
type frontend struct {
	svc           executor.Service
	admitter      executor.Admitter
	authenticator *auth.Authenticator
	opts          Options
	log           *slog.Logger
	shapes        shapes
	mux           *http.ServeMux
	description   []byte
	// paths are those of the operations, each as its segments.
	paths      [][]string
	buffers    *buffered.Budget
	uploadIdle time.Duration
	writeIdle  time.Duration
	heartbeat  time.Duration
}

// shapes are those of the request bodies. metadata is that of a multipart part.
type shapes struct {
	metadata, exec, batchMetadata, batch, session, restart, requirements shape
}

// route is an operation with its handler.
type route struct {
	operation
	// pattern is the path for the mux if it differs from that of the description.
	pattern string
	handler handler
}

// handler serves one operation. Its error becomes the answer.
type handler func(http.ResponseWriter, *http.Request) error

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
		shapes: shapes{metadata: shapeOf[pyexec.Spec](), exec: shapeOf[execRequest](), batchMetadata: shapeOf[pyexec.Batch](), batch: shapeOf[batchRequest](),
			session: shapeOf[pyexec.SessionSpec](),
			restart: shapeOf[pyexec.Restart](), requirements: shapeOf[pyexec.Requirements]()},
		mux:        http.NewServeMux(),
		buffers:    buffered.New(o.MaxBufferedBytes, o.Auth.SeveralOwners()),
		uploadIdle: uploadIdle,
		writeIdle:  writeIdle,
		heartbeat:  heartbeat,
	}
	o.Limits.bind(f.shapes.metadata, f.shapes.exec, f.shapes.batchMetadata, f.shapes.batch, f.shapes.session)
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
		adapter.Handle(&at, f.serve(r))
		f.paths = append(f.paths, strings.Split(r.path, "/"))
	}
	f.mux.HandleFunc("GET /{$}", f.index)
	err := errors.Join(f.mount(docsFiles, docsAssets), f.mountMCP())
	if err != nil {
		return nil, err
	}
	if f.description, err = json.Marshal(api.OpenAPI()); err != nil {
		return nil, fmt.Errorf("encode the API description: %w", err)
	}
	return f, nil
}

// serve returns the huma handler of a route.
func (f *frontend) serve(to route) func(huma.Context) {
	known, handle := to.queryShape(), to.handler
	if to.strictQuery() {
		handle = func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.RawQuery != "" {
				err := checkQuery(r, known)
				if err != nil && len(to.scriptErrors) > 0 {
					asked, _ := scriptQuery(r)
					return f.refusedScript(r, asked, err)
				}
				if err != nil {
					return err
				}
			}
			return to.handler(w, r)
		}
	}
	if len(to.scriptErrors) > 0 {
		handle = f.scripts(handle)
	}
	return func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		if err := handle(w, r); err != nil {
			f.writeProblem(w, r, err)
		}
	}
}
