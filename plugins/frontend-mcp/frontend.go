package mcpfrontend

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
)

// frontend is the configured plugin.
type frontend struct {
	config        Config
	log           *slog.Logger
	authenticator *auth.Authenticator
	listener      net.Listener // nil without HTTP.Bind
	socket        net.Listener // nil without HTTP.Socket
	in            io.Reader    // nil without Config.Stdio
	out           io.Writer    // nil without Config.Stdio
}

// ServeStdio serves svc over in and out until in or ctx ends. It runs in the caller's process.
// Codes: invalid.
func ServeStdio(ctx context.Context, c Config, svc executor.Service, in io.Reader, out io.Writer, log *slog.Logger) error {
	c.Stdio, c.HTTP.Bind, c.HTTP.Socket = true, "", ""
	if err := c.validate("mcp"); err != nil {
		return err
	}
	return (&frontend{config: c, log: log, in: in, out: out}).serve(ctx, svc)
}

func (f *frontend) close() error {
	var errs []error
	for _, l := range []net.Listener{f.listener, f.socket} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// serve implements executor.Frontend. With stdio it returns when the client has disconnected, otherwise when ctx ends.
func (f *frontend) serve(ctx context.Context, svc executor.Service) (err error) {
	tools, err := newTools(ctx, f.config, svc, f.log)
	if err != nil {
		return errors.Join(err, f.close())
	}
	ctx, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer func() {
		stop(errStopping)
		wg.Wait()
		tools.close(context.WithoutCancel(ctx))
	}()
	failed := make(chan error, 2)
	if f.listener != nil || f.socket != nil {
		f.serveHTTP(ctx, tools, &wg, failed)
	}
	if f.config.Stdio {
		logger := slog.NewLogLogger(f.log.Handler(), slog.LevelWarn)
		return serveStdio(ctx, tools.server, f.in, f.out, logger)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return executor.Errorf(executor.Unavailable, "mcp over http: %w", err)
	}
}

// serveHTTP serves the listeners until ctx ends.
func (f *frontend) serveHTTP(ctx context.Context, t *tools, wg *sync.WaitGroup, failed chan<- error) {
	t.sessions = newMCPSessions(f.config.HTTP, t.sessionEnded)
	wg.Go(func() { t.sessions.sweep(ctx) })
	buffers := buffered.New(f.config.HTTP.MaxBufferedBytes, f.authenticator.SeveralOwners())
	inner := newInner(t.server, t.sessions, f.log)
	for _, l := range []net.Listener{f.listener, f.socket} {
		if l == nil {
			continue
		}
		e := &endpoint{
			config: f.config.HTTP, authenticator: f.authenticator, sessions: t.sessions, inner: inner, buffers: buffers,
			socket: l == f.socket, log: f.log,
		}
		wg.Go(func() {
			if err := serveListener(ctx, l, e, f.log); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	wg.Go(func() {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpDrain)
		defer cancel()
		if err := inner.Shutdown(bounded); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			f.log.Debug("stop the sessions", "error", err)
		}
	})
}

// tools is the MCP server with its toolsets.
type tools struct {
	config   Config
	svc      executor.Service
	log      *slog.Logger
	server   *server.MCPServer
	hooks    *server.Hooks
	sessions *mcpSessions // nil without HTTP
	calls    *callSlots

	// offering is held while the tools are described anew.
	offering sync.Mutex
	offered  offered
	// toolsets add their tools for the backend as it is.
	toolsets []func()
	// life ends when the server stops.
	life context.Context //nolint:containedctx // bounds preparations
	end  context.CancelCauseFunc

	// onSessionEnd holds functions that are called with the id of each MCP session that has ended.
	onSessionEnd []func(ctx context.Context, id string)
	// onClose holds functions that are called when the server stops.
	onClose []func(ctx context.Context)

	wg sync.WaitGroup
}
