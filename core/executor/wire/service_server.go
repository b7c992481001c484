package wire

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// RegisterService serves svc on s, which was made with ServerOptions.
func RegisterService(s grpc.ServiceRegistrar, svc executor.Service) {
	pb.RegisterExecutorServiceServer(s, &serviceServer{service: svc})
}

type serviceServer struct {
	pb.UnimplementedExecutorServiceServer
	service executor.Service
}

// Submit implements pb.ExecutorServiceServer.
func (s *serviceServer) Submit(stream grpc.BidiStreamingServer[pb.SubmitRequest, pb.SubmitResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return executor.Errorf(executor.Invalid, "a submit begins with a start")
	}
	call := &submitServer{stream: stream}
	call.intake = newIntake(call.request)
	defer call.close()
	// Not waited for: it ends when the stream does, which is after this handler has returned.
	go call.receive()
	execution, err := s.service.Submit(stream.Context(), fromSpec(start.GetSpec()), executor.Input{
		Workspace: call.intake.source(start.GetWorkspace(), workspaceName),
		Stdin:     call.intake.source(start.GetStdin(), stdinName),
	})
	if err != nil {
		return err
	}
	if err := call.send(&pb.SubmitResponse{Message: &pb.SubmitResponse_Execution{Execution: toExecution(execution)}}); err != nil || !start.GetFollow() {
		return err
	}
	call.close() // what the caller sends from now on is too late
	return s.follow(stream.Context(), execution.ID, 0, func(e *pb.Event) error {
		return stream.Send(&pb.SubmitResponse{Message: &pb.SubmitResponse_Event{Event: e}})
	})
}

// submitServer is the service's side of one Submit.
type submitServer struct {
	stream grpc.BidiStreamingServer[pb.SubmitRequest, pb.SubmitResponse]
	intake *intake

	sending sync.Mutex
	over    bool
}

func (c *submitServer) send(m *pb.SubmitResponse) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.over {
		return errRunEnded()
	}
	return c.stream.Send(m)
}

func (c *submitServer) request(m *pb.SourceRequest) error {
	return c.send(&pb.SubmitResponse{Message: &pb.SubmitResponse_Source{Source: m}})
}

func (c *submitServer) receive() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.intake.fail(executor.ErrCallerGone)
			return
		}
		if err := c.intake.deliver(m.GetSource()); err != nil {
			c.intake.fail(err)
			return
		}
	}
}

func (c *submitServer) close() {
	c.intake.fail(executor.Errorf(executor.Internal, "the submit has ended: its sources are closed"))
	c.sending.Lock()
	c.over = true
	c.sending.Unlock()
}

// Admit implements pb.ExecutorServiceServer.
func (s *serviceServer) Admit(ctx context.Context, _ *pb.AdmitRequest) (*pb.AdmitResponse, error) {
	if a, ok := s.service.(executor.Admitter); ok {
		return &pb.AdmitResponse{}, a.Admit(ctx)
	}
	return &pb.AdmitResponse{}, nil
}

// Get implements pb.ExecutorServiceServer.
func (s *serviceServer) Get(ctx context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	e, err := s.service.Get(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.GetResponse{Execution: toExecution(e)}, nil
}

// List implements pb.ExecutorServiceServer.
func (s *serviceServer) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	list, err := s.service.List(ctx, fromFilter(r.GetFilter()))
	if err != nil {
		return nil, err
	}
	return &pb.ListResponse{Executions: each(list, toExecution)}, nil
}

// Cancel implements pb.ExecutorServiceServer.
func (s *serviceServer) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.CancelResponse, error) {
	e, err := s.service.Cancel(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.CancelResponse{Execution: toExecution(e)}, nil
}

// Events implements pb.ExecutorServiceServer.
func (s *serviceServer) Events(r *pb.EventsRequest, stream grpc.ServerStreamingServer[pb.EventsResponse]) error {
	return s.follow(stream.Context(), r.GetId(), r.GetAfter(), func(e *pb.Event) error { return stream.Send(&pb.EventsResponse{Event: e}) })
}

func (s *serviceServer) follow(ctx context.Context, id string, after uint64, send func(*pb.Event) error) error {
	for e, err := range s.service.Events(ctx, id, after) {
		if err != nil {
			return err
		}
		m, err := toEvent(e)
		if err != nil {
			return err
		}
		if err := send(m); err != nil {
			return err
		}
	}
	return nil
}

// Artifacts implements pb.ExecutorServiceServer.
func (s *serviceServer) Artifacts(r *pb.ArtifactsRequest, stream grpc.ServerStreamingServer[pb.ArtifactsResponse]) (err error) {
	rc, err := s.service.Artifacts(stream.Context(), r.GetId())
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rc.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := stream.Send(&pb.ArtifactsResponse{}); err != nil {
		return err
	}
	return inPieces(rc, func(data []byte) error { return stream.Send(&pb.ArtifactsResponse{Data: data}) })
}

// Backends implements pb.ExecutorServiceServer.
func (s *serviceServer) Backends(ctx context.Context, _ *pb.BackendsRequest) (*pb.BackendsResponse, error) {
	list, err := s.service.Backends(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.BackendsResponse{Backends: each(list, toInfo)}, nil
}

// Scripts implements pb.ExecutorServiceServer.
func (s *serviceServer) Scripts(ctx context.Context, _ *pb.ScriptsRequest) (*pb.ScriptsResponse, error) {
	list, err := s.service.Scripts(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.ScriptsResponse{Scripts: each(list, toScript)}, nil
}
