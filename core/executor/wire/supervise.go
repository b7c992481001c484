package wire

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// Configuration is what a plugin process gets at its start.
type Configuration struct {
	Name     string
	Instance string
	Embedded bool
	Personal bool
	DataDir  string
	// Options is JSON.
	Options []byte
}

// Supervised is the plugin's side of the supervising stream. Configure is called first, then Drain if the host drains the
// plugin, and last Gone.
type Supervised interface {
	// Configure makes the plugin ready. ctx ends when the host goes away.
	Configure(ctx context.Context, c Configuration) (executor.Info, error)
	// Drain refuses new calls, waits for the calls that are under way and closes the backend. ctx ends when the host goes
	// away.
	Drain(ctx context.Context) error
	// Gone is called once, when the stream has ended. cause is nil after a drain or a refused configuration.
	Gone(cause error)
}

// RegisterSupervised serves the supervising stream on s, which must have been made with ServerOptions.
func RegisterSupervised(s grpc.ServiceRegistrar, p Supervised) {
	pb.RegisterPluginServiceServer(s, &superviseServer{plugin: p})
}

type superviseServer struct {
	pb.UnimplementedPluginServiceServer
	plugin Supervised

	mu   sync.Mutex
	used bool
}

// Supervise implements pb.PluginServiceServer.
func (s *superviseServer) Supervise(stream grpc.BidiStreamingServer[pb.SuperviseRequest, pb.SuperviseResponse]) error {
	s.mu.Lock()
	used := s.used
	s.used = true
	s.mu.Unlock()
	if used {
		return executor.Errorf(executor.Conflict, "the plugin has a host already")
	}
	var cause error
	defer func() { s.plugin.Gone(cause) }() // after a panic in Configure too
	cause, err := s.supervise(stream)
	return err
}

// supervise returns why the host is gone, which is nil if the stream ended in order, and the error of the stream.
func (s *superviseServer) supervise(stream grpc.BidiStreamingServer[pb.SuperviseRequest, pb.SuperviseResponse]) (cause, err error) {
	first, err := stream.Recv()
	if err != nil {
		return executor.ErrCallerGone, err
	}
	c := first.GetConfigure()
	if c == nil {
		return nil, executor.Errorf(executor.Invalid, "supervision must begin with configure")
	}
	info, err := s.plugin.Configure(stream.Context(), from[Configuration](c))
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.SuperviseResponse{Message: &pb.SuperviseResponse_Ready{Ready: &pb.Ready{Info: to[pb.Info](info), InlineSources: true}}}); err != nil {
		return executor.ErrCallerGone, err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return executor.ErrCallerGone, err
		}
		if ping := m.GetPing(); ping != nil {
			if err := stream.Send(&pb.SuperviseResponse{Message: &pb.SuperviseResponse_Pong{Pong: &pb.Pong{Number: ping.GetNumber()}}}); err != nil {
				return executor.ErrCallerGone, err
			}
		}
	}
	err = s.plugin.Drain(stream.Context())
	if stream.Context().Err() != nil {
		return executor.ErrCallerGone, nil
	}
	return nil, stream.Send(&pb.SuperviseResponse{Message: &pb.SuperviseResponse_Drained{Drained: &pb.Drained{Error: toError(err)}}})
}

// Supervision is the host's side of the supervising stream.
type Supervision struct {
	info   executor.Info
	inline bool
	stream grpc.BidiStreamingClient[pb.SuperviseRequest, pb.SuperviseResponse]
	cut    context.CancelCauseFunc
	pongs  chan uint64
	done   chan struct{}

	// sending guards the stream's sending half and ping.
	sending sync.Mutex
	ping    uint64

	mu      sync.Mutex
	drained *pb.Drained
	err     error
}

// Supervise configures the plugin at the other end of conn and returns when it is ready. ctx bounds that only.
// Codes: invalid (the configuration), unavailable.
func Supervise(ctx context.Context, conn grpc.ClientConnInterface, c Configuration) (*Supervision, error) {
	streamCtx, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cut(context.Cause(ctx)) })
	s, err := supervise(streamCtx, cut, conn, c)
	if !stop() && err == nil {
		cut(nil)
		return nil, ctx.Err()
	}
	if err != nil {
		cut(nil)
		return nil, fromStatus(ctx, err)
	}
	go s.receive() //nolint:gosec // it outlives the start, which is all that ctx bounds
	return s, nil
}

func supervise(ctx context.Context, cut context.CancelCauseFunc, conn grpc.ClientConnInterface, c Configuration) (*Supervision, error) {
	stream, err := pb.NewPluginServiceClient(conn).Supervise(ctx)
	if err != nil {
		return nil, err
	}
	// Why a message cannot be sent is what Recv returns.
	_ = stream.Send(&pb.SuperviseRequest{Message: &pb.SuperviseRequest_Configure{Configure: to[pb.Configure](c)}})
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, executor.Errorf(executor.Unavailable, "the plugin ended the stream before it was ready")
	}
	if err != nil {
		return nil, err
	}
	if m.GetReady() == nil {
		return nil, executor.Errorf(executor.Internal, "the plugin must answer ready")
	}
	return &Supervision{
		info: from[executor.Info](m.GetReady().GetInfo()), inline: m.GetReady().GetInlineSources(), stream: stream, cut: cut,
		pongs: make(chan uint64, 1), done: make(chan struct{}),
	}, nil
}

func (s *Supervision) receive() {
	defer close(s.done)
	for {
		m, err := s.stream.Recv()
		if err != nil {
			s.mu.Lock()
			if !errors.Is(err, io.EOF) {
				s.err = fromStatus(context.Background(), err)
			}
			s.mu.Unlock()
			return
		}
		switch m := m.GetMessage().(type) {
		case *pb.SuperviseResponse_Pong:
			select {
			case s.pongs <- m.Pong.GetNumber():
			default: // no Ping waits
			}
		case *pb.SuperviseResponse_Drained:
			s.mu.Lock()
			s.drained = m.Drained
			s.mu.Unlock()
		}
	}
}

// Info returns the Info that the plugin sent when it was ready.
func (s *Supervision) Info() executor.Info { return s.info }

// InlineSources reports whether the plugin takes the content of a small source in the message that announces it.
func (s *Supervision) InlineSources() bool { return s.inline }

// Done returns a channel that is closed when the stream has ended: the plugin is gone, or has drained.
func (s *Supervision) Done() <-chan struct{} { return s.done }

// Err returns why the stream ended, after Done. It is nil after a drain.
func (s *Supervision) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Ping returns when the plugin has answered. One Ping at a time. Codes: unavailable.
func (s *Supervision) Ping(ctx context.Context) error {
	s.sending.Lock()
	s.ping++
	number := s.ping
	err := s.stream.Send(&pb.SuperviseRequest{Message: &pb.SuperviseRequest_Ping{Ping: &pb.Ping{Number: number}}})
	s.sending.Unlock()
	if err != nil {
		return executor.Errorf(executor.Unavailable, "ping: %w", err)
	}
	for {
		select {
		case pong := <-s.pongs:
			if pong == number {
				return nil
			}
		case <-s.done:
			return executor.Errorf(executor.Unavailable, "ping: the plugin is gone")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Drain asks the plugin to wait for its calls and to close its backend. It returns when the stream has ended. Its error is
// that of closing the backend, or unavailable if the plugin went away instead.
func (s *Supervision) Drain(ctx context.Context) error {
	s.sending.Lock()
	err := s.stream.CloseSend()
	s.sending.Unlock()
	if err != nil {
		return executor.Errorf(executor.Unavailable, "drain: %w", err)
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained == nil {
		return executor.Errorf(executor.Unavailable, "the plugin went away instead of draining")
	}
	return fromError(s.drained.GetError())
}

// Cut breaks the stream. The plugin then ends its calls and exits.
func (s *Supervision) Cut() { s.cut(executor.ErrCallerGone) }
