package wire

import (
	"context"
	"io"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// OpenSession implements executor.Sessions.
func (s *serviceClient) OpenSession(ctx context.Context, session executor.Session) (executor.Session, error) {
	resp, err := s.service.OpenSession(outgoing(ctx), &pb.OpenSessionRequest{Session: toSession(session)})
	return fromSession(resp.GetSession()), fromStatus(ctx, err)
}

// GetSession implements executor.Sessions.
func (s *serviceClient) GetSession(ctx context.Context, id string) (executor.Session, error) {
	resp, err := s.service.GetSession(outgoing(ctx), &pb.GetSessionRequest{Id: id})
	return fromSession(resp.GetSession()), fromStatus(ctx, err)
}

// ListSessions implements executor.Sessions.
func (s *serviceClient) ListSessions(ctx context.Context) ([]executor.Session, error) {
	resp, err := s.service.ListSessions(outgoing(ctx), &pb.ListSessionsRequest{})
	return each(resp.GetSessions(), fromSession), fromStatus(ctx, err)
}

// InterruptSession implements executor.Sessions.
func (s *serviceClient) InterruptSession(ctx context.Context, id string) (executor.Session, error) {
	resp, err := s.service.InterruptSession(outgoing(ctx), &pb.InterruptSessionRequest{Id: id})
	return fromSession(resp.GetSession()), fromStatus(ctx, err)
}

// RestartSession implements executor.Sessions.
func (s *serviceClient) RestartSession(ctx context.Context, id string, wipe bool) (executor.Session, error) {
	resp, err := s.service.RestartSession(outgoing(ctx), &pb.RestartSessionRequest{Id: id, Wipe: wipe})
	return fromSession(resp.GetSession()), fromStatus(ctx, err)
}

// CloseSession implements executor.Sessions.
func (s *serviceClient) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	resp, err := s.service.CloseSession(outgoing(ctx), &pb.CloseSessionRequest{Id: id})
	return fromSession(resp.GetSession()), fromStatus(ctx, err)
}

// Variables implements executor.SessionTools.
func (s *serviceClient) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	resp, err := s.service.Variables(outgoing(ctx), &pb.VariablesRequest{Id: id})
	return each(resp.GetVariables(), fromVariable), fromStatus(ctx, err)
}

// AddRequirements implements executor.SessionTools.
func (s *serviceClient) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	resp, err := s.service.AddRequirements(outgoing(ctx), &pb.AddRequirementsRequest{Id: id, Requirements: requirements})
	return resp.GetRequirements(), fromStatus(ctx, err)
}

// ListFiles implements executor.SessionFiles.
func (s *serviceClient) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	resp, err := s.service.ListFiles(outgoing(ctx), &pb.ListFilesRequest{Id: id, Path: path, Recursive: recursive})
	return each(resp.GetFiles(), fromFile), fromStatus(ctx, err)
}

// ReadFile implements executor.SessionFiles.
func (s *serviceClient) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	return readFile[pb.ReadFileResponse](ctx, func(ctx context.Context) (grpc.ServerStreamingClient[pb.ReadFileResponse], error) {
		return s.service.ReadFile(ctx, &pb.ReadFileRequest{Id: id, Path: path})
	})
}

// WriteFile implements executor.SessionFiles.
func (s *serviceClient) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	target := &pb.FileTarget{Id: id, Path: path, SizeBytes: size}
	return writeFile[pb.WriteFileRequest, pb.WriteFileResponse](ctx, s.service.WriteFile,
		func(p *pb.FilePiece) *pb.WriteFileRequest { return &pb.WriteFileRequest{Piece: p} }, target, r)
}

// RemoveFile implements executor.SessionFiles.
func (s *serviceClient) RemoveFile(ctx context.Context, id, path string) error {
	_, err := s.service.RemoveFile(outgoing(ctx), &pb.RemoveFileRequest{Id: id, Path: path})
	return fromStatus(ctx, err)
}

// OpenSession implements pb.ExecutorServiceServer.
func (s *serviceServer) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	session, err := s.service.OpenSession(ctx, fromSession(r.GetSession()))
	if err != nil {
		return nil, err
	}
	return &pb.OpenSessionResponse{Session: toSession(session)}, nil
}

// GetSession implements pb.ExecutorServiceServer.
func (s *serviceServer) GetSession(ctx context.Context, r *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	session, err := s.service.GetSession(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.GetSessionResponse{Session: toSession(session)}, nil
}

// ListSessions implements pb.ExecutorServiceServer.
func (s *serviceServer) ListSessions(ctx context.Context, _ *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	list, err := s.service.ListSessions(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.ListSessionsResponse{Sessions: each(list, toSession)}, nil
}

// InterruptSession implements pb.ExecutorServiceServer.
func (s *serviceServer) InterruptSession(ctx context.Context, r *pb.InterruptSessionRequest) (*pb.InterruptSessionResponse, error) {
	session, err := s.service.InterruptSession(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.InterruptSessionResponse{Session: toSession(session)}, nil
}

// RestartSession implements pb.ExecutorServiceServer.
func (s *serviceServer) RestartSession(ctx context.Context, r *pb.RestartSessionRequest) (*pb.RestartSessionResponse, error) {
	session, err := s.service.RestartSession(ctx, r.GetId(), r.GetWipe())
	if err != nil {
		return nil, err
	}
	return &pb.RestartSessionResponse{Session: toSession(session)}, nil
}

// CloseSession implements pb.ExecutorServiceServer.
func (s *serviceServer) CloseSession(ctx context.Context, r *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	session, err := s.service.CloseSession(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.CloseSessionResponse{Session: toSession(session)}, nil
}

// Variables implements pb.ExecutorServiceServer.
func (s *serviceServer) Variables(ctx context.Context, r *pb.VariablesRequest) (*pb.VariablesResponse, error) {
	got, err := s.service.Variables(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.VariablesResponse{Variables: each(got, toVariable)}, nil
}

// AddRequirements implements pb.ExecutorServiceServer.
func (s *serviceServer) AddRequirements(ctx context.Context, r *pb.AddRequirementsRequest) (*pb.AddRequirementsResponse, error) {
	got, err := s.service.AddRequirements(ctx, r.GetId(), r.GetRequirements())
	if err != nil {
		return nil, err
	}
	return &pb.AddRequirementsResponse{Requirements: got}, nil
}

// ListFiles implements pb.ExecutorServiceServer.
func (s *serviceServer) ListFiles(ctx context.Context, r *pb.ListFilesRequest) (*pb.ListFilesResponse, error) {
	got, err := s.service.ListFiles(ctx, r.GetId(), r.GetPath(), r.GetRecursive())
	if err != nil {
		return nil, err
	}
	return &pb.ListFilesResponse{Files: each(got, toFile)}, nil
}

// ReadFile implements pb.ExecutorServiceServer.
func (s *serviceServer) ReadFile(r *pb.ReadFileRequest, stream grpc.ServerStreamingServer[pb.ReadFileResponse]) error {
	return serveRead(stream.Context(), s.service, r.GetId(), r.GetPath(), func(p *pb.FilePiece) error {
		return stream.Send(&pb.ReadFileResponse{Piece: p})
	})
}

// WriteFile implements pb.ExecutorServiceServer.
func (s *serviceServer) WriteFile(stream grpc.ClientStreamingServer[pb.WriteFileRequest, pb.WriteFileResponse]) error {
	file, err := serveWrite(stream.Context(), s.service, func() (*pb.FilePiece, error) {
		m, err := stream.Recv()
		return m.GetPiece(), err
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.WriteFileResponse{File: toFile(file)})
}

// RemoveFile implements pb.ExecutorServiceServer.
func (s *serviceServer) RemoveFile(ctx context.Context, r *pb.RemoveFileRequest) (*pb.RemoveFileResponse, error) {
	return &pb.RemoveFileResponse{}, s.service.RemoveFile(ctx, r.GetId(), r.GetPath())
}
