package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// RegisterBackend serves b on s, and its sessions if it implements executor.SessionBackend. s was made with
// ServerOptions.
func RegisterBackend(s grpc.ServiceRegistrar, b executor.Backend) {
	pb.RegisterBackendServiceServer(s, &backendServer{backend: b})
	if sessions, ok := b.(executor.SessionBackend); ok {
		pb.RegisterSessionBackendServiceServer(s, &sessionBackendServer{backend: sessions})
	}
}

type backendServer struct {
	pb.UnimplementedBackendServiceServer
	backend executor.Backend
}

// Info implements pb.BackendServiceServer.
func (s *backendServer) Info(ctx context.Context, _ *pb.InfoRequest) (*pb.InfoResponse, error) {
	info, err := s.backend.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.InfoResponse{Info: toInfo(info)}, nil
}

// Remove implements pb.BackendServiceServer.
func (s *backendServer) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	return &pb.RemoveResponse{}, s.backend.Remove(ctx, r.GetId())
}

// Run implements pb.BackendServiceServer.
func (s *backendServer) Run(stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start.GetJob() == nil {
		return executor.Errorf(executor.Invalid, "a run begins with a job")
	}
	// The loss of the stream has a cause of its own, so that the stream's ctx is not used.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stream.Context()))
	defer cancel(nil)
	if start.GetCancelled() {
		cancel(context.Canceled)
	}
	r := newRunServer(stream, cancel)
	defer r.close()
	job := fromJob(start.GetJob())
	job.Workspace = r.intake.source(start.GetJob().GetWorkspace(), workspaceName)
	job.Stdin = r.intake.source(start.GetJob().GetStdin(), stdinName)
	// Not waited for: it ends when the stream does, which is after this handler has returned.
	go r.receive()

	var result executor.Result
	if resume := start.GetResume(); resume != nil {
		result, err = s.backend.Attach(ctx, job, fromResume(resume), r)
	} else {
		result, err = s.backend.Run(ctx, job, r)
	}
	return r.finish(result, err)
}
