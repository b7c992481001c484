package httpfrontend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// drainTime is how long running calls may take when the server stops.
	drainTime = 30 * time.Second
	// cutTime is how long calls that were cut may take to kill their Executions.
	cutTime = 10 * time.Second
	// headerTime bounds the time of a request's headers, and idleTime that of an idle connection. Answers have no bound, because a
	// sync call takes as long as its program.
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10
)

// Serve serves handler on l until ctx ends, and then drains. It accepts no new connection. Followers of running Executions end at
// once, because they can resume at another server. Other calls may take 30 s. Then they are cut, which kills their sync Executions.
// The drain ends at once when now is closed, which may be nil. Serve closes l, and returns nil after a drain.
func Serve(ctx context.Context, now <-chan struct{}, l net.Listener, handler http.Handler, log *slog.Logger) error {
	return serve(ctx, now, l, handler, log, drainTime)
}

func serve(ctx context.Context, now <-chan struct{}, l net.Listener, handler http.Handler, log *slog.Logger, drainFor time.Duration) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// The ctx of requests ends after the drain, not with ctx.
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(work, drainKey{}, ctx) },
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	log.Info("http drains", "for", drainFor)
	bounded, cancel := context.WithTimeout(work, drainFor)
	defer cancel()
	go func() {
		select {
		case <-now:
			cancel()
		case <-bounded.Done():
		}
	}()
	if err := s.Shutdown(bounded); err != nil {
		log.Warn("http calls are cut", "after", drainFor)
		cut(errDraining)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime(now))
		defer cancel()
		if err := s.Shutdown(last); err != nil {
			_ = s.Close() // the calls had their time
		}
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("drain http: %w", err)
	}
	return nil
}

// lastTime returns how long calls may take after they were cut.
func lastTime(now <-chan struct{}) time.Duration {
	select {
	case <-now:
		return time.Second
	default:
		return cutTime
	}
}
