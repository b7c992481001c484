package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// RegisterBackend serves b on s, which must have been made with ServerOptions. It also serves the sessions of b if b
// implements executor.SessionBackend.
func RegisterBackend(s grpc.ServiceRegistrar, b executor.Backend) { register(s, b, false) }

// RegisterRemoteBackend is RegisterBackend for callers on other machines: names of files and sockets in their calls mean nothing here.
// The workspace of such a caller crosses in messages. Without them it cannot be opened (invalid).
func RegisterRemoteBackend(s grpc.ServiceRegistrar, b executor.Backend) { register(s, b, true) }

func register(s grpc.ServiceRegistrar, b executor.Backend, remote bool) {
	pb.RegisterBackendServiceServer(s, &backendServer{backend: b, feeds: registerFeeds(s, remote)})
	if sessions, ok := b.(executor.SessionBackend); ok {
		pb.RegisterSessionBackendServiceServer(s, &sessionBackendServer{backend: sessions})
		pb.RegisterSessionToolsServiceServer(s, &sessionToolsServer{tools: sessions})
	}
}

type backendServer struct {
	pb.UnimplementedBackendServiceServer
	backend executor.Backend
	feeds   *feeds
}

// Info implements pb.BackendServiceServer.
func (s *backendServer) Info(ctx context.Context, _ *pb.InfoRequest) (*pb.InfoResponse, error) {
	info, err := s.backend.Info(ctx)
	return &pb.InfoResponse{Info: to[pb.Info](info)}, err
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
		return executor.Errorf(executor.Invalid, "a run must begin with a job")
	}
	// The end of the stream's ctx has a cause of its own here.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stream.Context()))
	defer cancel(nil)
	defer context.AfterFunc(stream.Context(), func() { cancel(executor.ErrCallerGone) })()
	if start.GetCancelled() {
		cancel(context.Canceled)
	}
	workspace, stdin := start.GetJob().GetWorkspace(), start.GetJob().GetStdin()
	inputs := newInputs(s.feeds, workspace, stdin)
	r := newRunServer(stream, cancel, inputs)
	defer r.close()
	job := from[executor.Job](start.GetJob())
	job.Workspace, job.Stdin = inputs.source(workspace), inputs.source(stdin)
	// The handler does not wait for receive, which ends with the stream, after the handler has returned.
	go r.receive()

	var result executor.Result
	if resume := start.GetResume(); resume != nil {
		result, err = s.backend.Attach(ctx, job, from[executor.Resume](resume), r)
	} else {
		result, err = s.backend.Run(ctx, job, r)
	}
	return r.finish(result, err)
}
