package wire

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// NewService returns the Service that is served at the other end of conn, which stays the caller's. The Principal of each
// call's ctx goes with it.
func NewService(conn grpc.ClientConnInterface) executor.Service {
	return &serviceClient{service: pb.NewExecutorServiceClient(conn)}
}

type serviceClient struct {
	service pb.ExecutorServiceClient
}

var (
	_ executor.Service  = (*serviceClient)(nil)
	_ executor.Admitter = (*serviceClient)(nil)
	_ executor.Follower = (*serviceClient)(nil)
)

// Admit implements executor.Admitter. A Service at the other end that is none promises nothing.
func (s *serviceClient) Admit(ctx context.Context) error {
	_, err := s.service.Admit(outgoing(ctx), &pb.AdmitRequest{})
	return fromStatus(ctx, err)
}

// Submit implements executor.Executions.
func (s *serviceClient) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	call, err := s.submit(ctx, spec, in, false)
	if err != nil {
		return executor.Execution{}, err
	}
	defer call.end()
	return call.accepted()
}

// SubmitAndFollow implements executor.Follower. With an input they are two exchanges: its feeding ends with the first.
func (s *serviceClient) SubmitAndFollow(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, iter.Seq2[executor.Event, error], error) {
	if in.Workspace != nil || in.Stdin != nil {
		x, err := s.Submit(ctx, spec, in)
		return x, s.Events(ctx, x.ID, 0), err
	}
	call, err := s.submit(ctx, spec, in, true)
	if err != nil {
		return executor.Execution{}, nil, err
	}
	x, err := call.accepted()
	if err != nil {
		call.end()
		return executor.Execution{}, nil, err
	}
	return x, func(yield func(executor.Event, error) bool) {
		defer call.end()
		none := true
		for {
			m, err := call.stream.Recv()
			if errors.Is(err, io.EOF) && none { // the other side knows Submit only
				s.Events(ctx, x.ID, 0)(yield)
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(executor.Event{}, fromStatus(ctx, err))
				return
			}
			if none = false; !yield(fromEvent(m.GetEvent()), nil) {
				return
			}
		}
	}, nil
}

// submitCall is the caller's side of one Submit.
type submitCall struct {
	ctx    context.Context //nolint:containedctx // it is the call's
	cut    context.CancelCauseFunc
	stream grpc.BidiStreamingClient[pb.SubmitRequest, pb.SubmitResponse]
	feed   *feeder
}

func (s *serviceClient) submit(ctx context.Context, spec executor.Spec, in executor.Input, follow bool) (*submitCall, error) {
	callCtx, cut := context.WithCancelCause(ctx)
	stream, err := s.service.Submit(outgoing(callCtx))
	if err != nil {
		cut(nil)
		return nil, fromStatus(ctx, err)
	}
	var sending sync.Mutex
	send := func(m *pb.SubmitRequest) error {
		sending.Lock()
		defer sending.Unlock()
		return stream.Send(m)
	}
	feed := newFeeder(in.Workspace, in.Stdin, nil, func(r *pb.SourceReply) error {
		return send(&pb.SubmitRequest{Message: &pb.SubmitRequest_Source{Source: r}})
	})
	// What Send fails with is only that the stream has ended; Recv knows why.
	_ = send(&pb.SubmitRequest{Message: &pb.SubmitRequest_Start{Start: &pb.SubmitStart{
		Spec: toSpec(spec), Workspace: announce(in.Workspace, false), Stdin: announce(in.Stdin, false), Follow: follow,
	}}})
	return &submitCall{ctx: ctx, cut: cut, stream: stream, feed: feed}, nil
}

// accepted feeds the sources until the service has accepted, and ends them.
func (c *submitCall) accepted() (executor.Execution, error) {
	for {
		m, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return executor.Execution{}, executor.Errorf(executor.Internal, "the service's side ended without an answer")
		}
		if err != nil {
			return executor.Execution{}, fromStatus(c.ctx, err)
		}
		switch m := m.GetMessage().(type) {
		case *pb.SubmitResponse_Source:
			c.feed.handle(m.Source)
		case *pb.SubmitResponse_Execution:
			return fromExecution(m.Execution), nil
		}
	}
}

func (c *submitCall) end() {
	c.cut(nil) // first: it ends a Send that waits for the other side
	c.feed.stop()
}

// Get implements executor.Executions.
func (s *serviceClient) Get(ctx context.Context, id string) (executor.Execution, error) {
	resp, err := s.service.Get(outgoing(ctx), &pb.GetRequest{Id: id})
	return fromExecution(resp.GetExecution()), fromStatus(ctx, err)
}

// List implements executor.Executions.
func (s *serviceClient) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	resp, err := s.service.List(outgoing(ctx), &pb.ListRequest{Filter: toFilter(f)})
	return each(resp.GetExecutions(), fromExecution), fromStatus(ctx, err)
}

// Cancel implements executor.Executions.
func (s *serviceClient) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	resp, err := s.service.Cancel(outgoing(ctx), &pb.CancelRequest{Id: id})
	return fromExecution(resp.GetExecution()), fromStatus(ctx, err)
}

// Events implements executor.Executions.
func (s *serviceClient) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		callCtx, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		stream, err := s.service.Events(outgoing(callCtx), &pb.EventsRequest{Id: id, After: after})
		if err != nil {
			yield(executor.Event{}, fromStatus(ctx, err))
			return
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(executor.Event{}, fromStatus(ctx, err))
				return
			}
			if !yield(fromEvent(m.GetEvent()), nil) {
				return
			}
		}
	}
}

// Artifacts implements executor.Executions.
func (s *serviceClient) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	callCtx, cut := context.WithCancelCause(ctx)
	stream, err := s.service.Artifacts(outgoing(callCtx), &pb.ArtifactsRequest{Id: id})
	if err == nil {
		// The first message is empty: it says that there is something to read.
		_, err = stream.Recv()
	}
	if err != nil {
		cut(nil)
		return nil, fromStatus(ctx, err)
	}
	return &pieces{ctx: ctx, cut: cut, next: func() ([]byte, error) {
		m, err := stream.Recv()
		return m.GetData(), err
	}}, nil
}

// Backends implements executor.Service.
func (s *serviceClient) Backends(ctx context.Context) ([]executor.Info, error) {
	resp, err := s.service.Backends(outgoing(ctx), &pb.BackendsRequest{})
	return each(resp.GetBackends(), fromInfo), fromStatus(ctx, err)
}

// Scripts implements executor.Service.
func (s *serviceClient) Scripts(ctx context.Context) ([]executor.Script, error) {
	resp, err := s.service.Scripts(outgoing(ctx), &pb.ScriptsRequest{})
	return each(resp.GetScripts(), fromScript), fromStatus(ctx, err)
}
