package plugin

import (
	"context"
	"sync"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// FrontendFactory makes the Frontend of a plugin from Configure.Options. The Frontend may listen already: details, an
// address for example, become Info.Details. Bad options are an executor.Error with code invalid whose Fields name
// "<name>.<key>". Unknown keys are bad. serve is called once. It serves its Service until ctx ends, drains, and returns nil.
type FrontendFactory func(ctx context.Context, c Configure) (serve executor.Frontend, details map[string]string, err error)

// ServeFrontend is the whole of the main of a frontend plugin. It returns when the host has stopped the plugin. It exits the
// process with status 0 when the host is gone.
func ServeFrontend(typ, version string, f FrontendFactory) {
	part := &frontendPart{}
	make := func(ctx context.Context, c Configure) (executor.Backend, error) {
		serve, details, err := f(ctx, c)
		if err != nil {
			return nil, err
		}
		part.configure(serve, details)
		return part, nil
	}
	servePlugin(typ, version, make, func(s *server, broker *goplugin.GRPCBroker, g *grpc.Server) {
		s.draining = part.stop
		wire.RegisterFrontend(g, func(ctx context.Context, service uint32) error { return part.serve(ctx, broker, service) })
	})
}

// frontendPart takes the place of the Backend in a frontend plugin. Only its Info is called: no BackendService is registered.
type frontendPart struct {
	executor.Backend

	mu       sync.Mutex
	frontend executor.Frontend
	details  map[string]string
	end      context.CancelCauseFunc // nil until serve is called
}

func (p *frontendPart) configure(f executor.Frontend, details map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frontend, p.details = f, details
}

// Info implements executor.Backend.
func (p *frontendPart) Info(context.Context) (executor.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return executor.Info{Healthy: true, Details: p.details}, nil
}

// stop asks a serving frontend to drain.
func (p *frontendPart) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end(errDraining)
	}
}

var errDraining = executor.Errorf(executor.Unavailable, "the frontend is stopping")

func (p *frontendPart) serve(ctx context.Context, broker *goplugin.GRPCBroker, service uint32) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	p.mu.Lock()
	f := p.frontend
	taken := f != nil && p.end == nil
	if taken {
		p.end = end
	}
	p.mu.Unlock()
	if !taken {
		return executor.Errorf(executor.Conflict, "a frontend must be configured and can serve only once")
	}
	conn, err := broker.DialWithOptions(service, wire.DialOptions()...)
	if err != nil {
		return executor.Errorf(executor.Unavailable, "the host's service: %w", err)
	}
	defer conn.Close() //nolint:errcheck // it is only read
	return f(ctx, wire.NewService(conn))
}

// Frontend is a running frontend plugin.
type Frontend struct {
	*Process
	stop  context.CancelCauseFunc
	ended chan struct{}
	err   error
}

// LaunchFrontend starts a frontend plugin, configures it, waits until it is ready, and asks it to serve svc. ctx bounds the
// start only. Codes: as Launch.
func LaunchFrontend(ctx context.Context, o LaunchOptions, svc executor.Service) (*Frontend, error) {
	p, err := Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &Frontend{Process: p, stop: stop, ended: make(chan struct{})}
	broker := p.dispensed.broker
	id := broker.NextId()
	// The broker stops this goroutine at the end of the process, which Kill brings about.
	go broker.AcceptAndServe(id, func(opts []grpc.ServerOption) *grpc.Server {
		s := grpc.NewServer(append(opts, wire.ServerOptions(nil)...)...)
		wire.RegisterService(s, svc)
		context.AfterFunc(serving, s.Stop)
		return s
	})
	go func() {
		defer close(f.ended)
		f.err = wire.ServeFrontend(serving, p.dispensed.conn, id)
	}()
	return f, nil
}

// Ended returns a channel that is closed when the frontend has ended by itself (a stdio client has gone) or its process is
// gone.
func (f *Frontend) Ended() <-chan struct{} { return f.ended }

// EndErr returns why the frontend has ended, after Ended. It is nil if the frontend ended in order. Codes: those of the
// frontend; unavailable if its process is gone.
func (f *Frontend) EndErr() error { return f.err }

// Close asks the frontend to drain, which ctx bounds, and ends its process. Idempotent. Codes: unavailable (it did not drain in time).
func (f *Frontend) Close(ctx context.Context) error {
	err := f.drain(ctx)
	f.Kill()
	f.stop(errDraining)
	<-f.ended
	return err
}

// drain returns nil if the process is gone already.
func (f *Frontend) drain(ctx context.Context) error {
	select {
	case <-f.Done():
		return nil
	default:
	}
	err := f.Drain(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return executor.Errorf(executor.Unavailable, "the frontend did not drain in time: %w", context.Cause(ctx))
	case executor.CodeOf(err) == executor.Unavailable:
		return nil
	}
	return err
}
