package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"

	"github.com/python-executor/python-executor/core/auth"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
)

// listenPprof listens for requests for profiles; nil if bind is empty.
func listenPprof(ctx context.Context, bind string) (net.Listener, error) {
	if bind == "" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network(bind), bind)
	if err != nil {
		return nil, fmt.Errorf("http.pprof_bind: %w", err)
	}
	return l, nil
}

// allocationRate is the mean number of bytes between two samples of allocations, which is Go's usual one.
const allocationRate = 512 << 10

// servePprof serves profiles on l, also while the server drains, until stop is called. stop ends profiles that are being taken.
func servePprof(ctx context.Context, l net.Listener, log *slog.Logger) (stop func(context.Context) error) {
	serving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	now := make(chan struct{})
	close(now)
	runtime.MemProfileRate = allocationRate
	done := make(chan error, 1)
	go func() { done <- httpfrontend.Serve(serving, now, l, pprofHandler(), nil) }()
	log.Info("profiles are served", "address", l.Addr().String())
	return func(context.Context) error {
		cancel(errors.New("the server is stopping"))
		return <-done
	}
}

// pprofHandler serves Go's profiles. Like the API without tokens, it refuses a Host that is not loopback, so that no web page
// reaches it by a name of its own.
func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "" && !auth.Loopback(r.Host) {
			http.Error(w, "Host: must be a loopback name or address", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
