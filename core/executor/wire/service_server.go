package wire

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// RegisterService serves svc on s, which must have been made with ServerOptions.
func RegisterService(s grpc.ServiceRegistrar, svc executor.Service) {
	pb.RegisterExecutorServiceServer(s, &serviceServer{service: svc, feeds: registerFeeds(s, false)})
	pb.RegisterSessionToolsServiceServer(s, &sessionToolsServer{tools: svc})
}

// serviceServer answers also where the Service fails: gRPC sends the error and drops the response.
type serviceServer struct {
	pb.UnimplementedExecutorServiceServer
	service executor.Service
	feeds   *feeds
}

// Submit implements pb.ExecutorServiceServer.
func (s *serviceServer) Submit(r *pb.SubmitRequest, stream grpc.ServerStreamingServer[pb.SubmitResponse]) error {
	inputs := newInputs(s.feeds, r.GetWorkspace(), r.GetStdin())
	ended := executor.Errorf(executor.Internal, "the submit has ended: its sources are closed")
	defer inputs.end(ended)
	execution, err := s.service.Submit(stream.Context(), from[executor.Spec](r.GetSpec()), executor.Input{
		Workspace: inputs.source(r.GetWorkspace()), Stdin: inputs.source(r.GetStdin()),
	})
	if err != nil {
		return err
	}
	inputs.end(ended)
	if err := stream.Send(&pb.SubmitResponse{Message: &pb.SubmitResponse_Execution{Execution: to[pb.Execution](execution)}}); err != nil || !r.GetFollow() {
		return err
	}
	return s.follow(stream.Context(), execution.ID, 0, func(e *pb.Event) error {
		return stream.Send(&pb.SubmitResponse{Message: &pb.SubmitResponse_Event{Event: e}})
	})
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
	return &pb.GetResponse{Execution: to[pb.Execution](e)}, err
}

// List implements pb.ExecutorServiceServer.
func (s *serviceServer) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	list, err := s.service.List(ctx, from[executor.Filter](r.GetFilter()))
	return &pb.ListResponse{Executions: each(list, to[pb.Execution])}, err
}

// Cancel implements pb.ExecutorServiceServer.
func (s *serviceServer) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.CancelResponse, error) {
	e, err := s.service.Cancel(ctx, r.GetId())
	return &pb.CancelResponse{Execution: to[pb.Execution](e)}, err
}

// Events implements pb.ExecutorServiceServer.
func (s *serviceServer) Events(r *pb.EventsRequest, stream grpc.ServerStreamingServer[pb.EventsResponse]) error {
	return s.follow(stream.Context(), r.GetId(), r.GetAfter(), func(e *pb.Event) error { return stream.Send(&pb.EventsResponse{Event: e}) })
}

func (s *serviceServer) follow(ctx context.Context, id string, after uint64, send func(*pb.Event) error) error {
	for e, err := range s.service.Events(executor.WithBorrowedData(ctx), id, after) {
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
	return &pb.BackendsResponse{Backends: each(list, to[pb.Info])}, err
}

// Scripts implements pb.ExecutorServiceServer.
func (s *serviceServer) Scripts(ctx context.Context, _ *pb.ScriptsRequest) (*pb.ScriptsResponse, error) {
	if values := metadata.ValueFromIncomingContext(ctx, refusedKey); len(values) > 0 {
		var r executor.RefusedScript
		if err := json.Unmarshal([]byte(values[0]), &r); err != nil {
			return nil, executor.Errorf(executor.Invalid, "the refused request cannot be read: %w", err)
		}
		ctx = executor.WithRefusedScript(ctx, r)
	}
	list, err := s.service.Scripts(ctx)
	return &pb.ScriptsResponse{Scripts: each(list, to[pb.Script])}, err
}
