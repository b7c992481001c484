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
	// drainTime is what calls in flight get when the server ends.
	drainTime = 30 * time.Second
	// cutTime is what they get after they were cut, to kill what they run.
	cutTime = 10 * time.Second
	// headerTime bounds a request's headers, idleTime an idle connection. Answers have no bound: a sync call takes as
	// long as its program.
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10
)

// Serve serves handler on l until ctx ends, then drains: no new connection, followers of what still runs end at once
// (they can resume elsewhere), calls in flight get 30 s, and what is left then is cut, which ends sync Executions as a client that
// disconnects does. When now is closed the drain ends at once; nil: it does not. Serve returns nil after a drain. l is closed.
func Serve(ctx context.Context, now <-chan struct{}, l net.Listener, handler http.Handler, log *slog.Logger) error {
	return serve(ctx, now, l, handler, log, drainTime)
}

func serve(ctx context.Context, now <-chan struct{}, l net.Listener, handler http.Handler, log *slog.Logger, drainFor time.Duration) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// Requests outlive ctx: they are drained, then cut.
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
			_ = s.Close() // nothing is left to lose
		}
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("drain http: %w", err)
	}
	return nil
}

// lastTime is what calls get after they were cut.
func lastTime(now <-chan struct{}) time.Duration {
	select {
	case <-now:
		return time.Second
	default:
		return cutTime
	}
}
