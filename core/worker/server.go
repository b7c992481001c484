package worker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

const (
	// handshakeLimit bounds a handshake.
	handshakeLimit = 10 * time.Second
	// pingAfter is the silence on a connection after which an end asks whether the other one is there. An end that does not answer within
	// pingLimit is gone.
	pingAfter = 10 * time.Second
	pingLimit = 10 * time.Second
	// farewell bounds the wait for the last answers at the end.
	farewell = 5 * time.Second
)

// Options configure a Server.
type Options struct {
	// Backend runs the programs. Its Sessions are served if it implements executor.SessionBackend.
	Backend executor.Backend
	TLS     TLS
	// Slots bounds the Executions that run at once.
	Slots int
	// Silence is how long a server that says nothing keeps its Sessions. Default 2 min.
	Silence time.Duration
	// Details are added to those of the backend's Info.
	Details map[string]string
	// Log may be nil.
	Log *slog.Logger
}

// Server serves a Backend to servers on other machines.
type Server struct {
	guard *guard
	grpc  *grpc.Server

	ending sync.Once
	end    context.CancelCauseFunc
	swept  chan struct{} // closed when the sweeper has ended
}

// New reads the certificates and returns a Server that Serve starts. The caller calls Close. Codes: invalid (with Fields below worker.tls).
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Silence == 0 {
		o.Silence = 2 * time.Minute
	}
	identity, err := newIdentity(o.TLS, "worker.tls", ServerName, o.Log)
	if err != nil {
		return nil, err
	}
	s := &Server{guard: newGuard(o), swept: make(chan struct{})}
	s.grpc = grpc.NewServer(append(wire.ServerOptions(nil),
		grpc.Creds(newServerCredentials(identity)), grpc.ConnectionTimeout(handshakeLimit),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingLimit}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
	)...)
	if sessions, ok := o.Backend.(executor.SessionBackend); ok {
		wire.RegisterRemoteBackend(s.grpc, &sessionGuard{s.guard, sessions})
	} else {
		wire.RegisterRemoteBackend(s.grpc, s.guard)
	}
	life, end := context.WithCancelCause(context.Background())
	s.end = end
	go func() {
		defer close(s.swept)
		s.guard.sweep(life, o.Silence)
	}()
	return s, nil
}

// Serve accepts connections from l until Close. It closes l.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Drain refuses new Executions and Sessions from now on. It returns nil when none is left, and the cause of ctx's end before that. What is
// there goes on, Executions in open Sessions included.
func (s *Server) Drain(ctx context.Context) error {
	s.guard.drain()
	return s.guard.wait(ctx)
}

// HandBack ends what is left after Drain. Its callers get unavailable: it is lost, and not killed by its owner. ctx bounds the wait for it.
func (s *Server) HandBack(ctx context.Context) error {
	s.guard.drain()
	s.guard.handBack(ctx)
	return s.guard.wait(ctx)
}

// Close ends all connections. Calls that are still under way get a few seconds to answer. Idempotent.
func (s *Server) Close() {
	s.ending.Do(func() {
		s.end(errors.New("the worker has stopped"))
		<-s.swept
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.grpc.GracefulStop()
		}()
		timer := time.NewTimer(farewell)
		defer timer.Stop()
		select {
		case <-stopped:
		case <-timer.C:
			s.grpc.Stop()
			<-stopped
		}
	})
}
