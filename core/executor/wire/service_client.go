package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// NewService returns the Service that is served at the other end of conn, which stays the caller's. The Principal of each
// call's ctx goes with it.
func NewService(conn grpc.ClientConnInterface) executor.Service {
	return &serviceClient{
		sessionToolsClient: sessionToolsClient{pb.NewSessionToolsServiceClient(conn)},

		service: pb.NewExecutorServiceClient(conn),
		sources: pb.NewSourceServiceClient(conn),
	}
}

type serviceClient struct {
	sessionToolsClient
	service pb.ExecutorServiceClient
	sources pb.SourceServiceClient
}

var (
	_ executor.Service  = (*serviceClient)(nil)
	_ executor.Admitter = (*serviceClient)(nil)
	_ executor.Follower = (*serviceClient)(nil)
)

// Admit implements executor.Admitter. If the Service at the other end is not an Admitter, Admit promises nothing.
func (s *serviceClient) Admit(ctx context.Context) error {
	_, err := s.service.Admit(outgoing(ctx), &pb.AdmitRequest{})
	return fromStatus(ctx, err)
}

// Submit implements executor.Executions.
func (s *serviceClient) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	x, call, err := s.submit(ctx, spec, in, false)
	if err == nil {
		call.cut(nil)
	}
	return x, err
}

// SubmitAndFollow implements executor.Follower.
func (s *serviceClient) SubmitAndFollow(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, iter.Seq2[executor.Event, error], error) {
	x, call, err := s.submit(ctx, spec, in, true)
	if err != nil {
		return executor.Execution{}, nil, err
	}
	return x, func(yield func(executor.Event, error) bool) {
		defer call.cut(nil)
		receiveEvents(ctx, call.stream.Recv, yield)
	}, nil
}

// submitCall is a Submit that was accepted.
type submitCall struct {
	stream grpc.ServerStreamingClient[pb.SubmitResponse]
	cut    context.CancelCauseFunc
}

// submit returns when the service has accepted. The sources are fed until then.
func (s *serviceClient) submit(ctx context.Context, spec executor.Spec, in executor.Input, follow bool) (_ executor.Execution, _ *submitCall, err error) {
	callCtx, cut := context.WithCancelCause(ctx)
	feeder := newFeeder(callCtx, cut, s.sources)
	defer feeder.stop()
	defer func() {
		if err != nil {
			cut(nil) // before stop: it ends a message that waits for the other side
		}
	}()
	req := &pb.SubmitRequest{Spec: to[pb.Spec](spec), Follow: follow}
	if req.Workspace, err = feeder.announce(in.Workspace, inChunks, ""); err != nil {
		return executor.Execution{}, nil, err
	}
	if req.Stdin, err = feeder.announce(in.Stdin, atOnce, ""); err != nil {
		return executor.Execution{}, nil, err
	}
	stream, err := s.service.Submit(outgoing(callCtx), req)
	var first *pb.SubmitResponse
	if err == nil {
		first, err = stream.Recv()
	}
	switch {
	case errors.Is(err, io.EOF):
		return executor.Execution{}, nil, executor.Errorf(executor.Internal, "the service's side ended without an answer")
	case err != nil:
		return executor.Execution{}, nil, fromStatus(callCtx, err)
	}
	return from[executor.Execution](first.GetExecution()), &submitCall{stream, cut}, nil
}

// receiveEvents yields the events of a stream to its end.
func receiveEvents[M interface{ GetEvent() *pb.Event }](ctx context.Context, recv func() (M, error), yield func(executor.Event, error) bool) {
	for {
		m, err := recv()
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

// Get implements executor.Executions.
func (s *serviceClient) Get(ctx context.Context, id string) (executor.Execution, error) {
	resp, err := s.service.Get(outgoing(ctx), &pb.GetRequest{Id: id})
	return from[executor.Execution](resp.GetExecution()), fromStatus(ctx, err)
}

// List implements executor.Executions.
func (s *serviceClient) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	resp, err := s.service.List(outgoing(ctx), &pb.ListRequest{Filter: to[pb.Filter](f)})
	return each(resp.GetExecutions(), from[executor.Execution]), fromStatus(ctx, err)
}

// Cancel implements executor.Executions.
func (s *serviceClient) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	resp, err := s.service.Cancel(outgoing(ctx), &pb.CancelRequest{Id: id})
	return from[executor.Execution](resp.GetExecution()), fromStatus(ctx, err)
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
		receiveEvents(ctx, stream.Recv, yield)
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
	return newDownload(ctx, cut, stream.Recv), nil
}

// Backends implements executor.Service.
func (s *serviceClient) Backends(ctx context.Context) ([]executor.Info, error) {
	resp, err := s.service.Backends(outgoing(ctx), &pb.BackendsRequest{})
	return each(resp.GetBackends(), from[executor.Info]), fromStatus(ctx, err)
}

// Scripts implements executor.Service.
func (s *serviceClient) Scripts(ctx context.Context) ([]executor.Script, error) {
	call := outgoing(ctx)
	if r, ok := executor.RefusedScriptFrom(ctx); ok {
		raw, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		call = metadata.AppendToOutgoingContext(call, refusedKey, string(raw))
	}
	resp, err := s.service.Scripts(call, &pb.ScriptsRequest{})
	return each(resp.GetScripts(), from[executor.Script]), fromStatus(ctx, err)
}
