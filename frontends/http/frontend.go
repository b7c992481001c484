package httpfrontend

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
)

// Options is what a frontend needs besides its Service. The zero Options are a local server without tokens.
type Options struct {
	// Auth knows the bearer tokens. nil, or one without tokens: everybody is the local owner.
	Auth *auth.Authenticator
	// Version of the program, for /healthz and the API description.
	Version string
	// Bind is the listening address. Without tokens and with a loopback Bind (or none) a request whose Host is not
	// loopback is refused, so that no web page reaches the server through a name of its own.
	Bind string
	// MaxBodyBytes bounds a request's body. Default 8 GiB.
	MaxBodyBytes int64
	// SpoolDir is where uploads wait that cannot be streamed; the files in it are unlinked at once. Default: os.TempDir().
	SpoolDir string
	// Metrics serves /metrics. nil: not found.
	Metrics http.Handler
	// Ready says whether work would be accepted now. nil: always.
	Ready func(context.Context) error
	// Limits are shown in the API description. Zero fields take the documented defaults and maxima.
	Limits LimitRange
	// Log takes the access log and internal errors. nil: nothing is logged.
	Log *slog.Logger
}

// LimitRange holds what an Execution gets when it does not ask, and the most that it may ask for.
type LimitRange struct {
	Default executor.Limits
	Max     executor.Limits
}

// New returns the HTTP API in front of svc. If svc is also an executor.Admitter, it is asked before a body is read.
func New(svc executor.Service, o Options) (http.Handler, error) {
	_, _ = svc, o
	return nil, executor.Errorf(executor.Unimplemented, "being written")
}
