package wire

import (
	"context"
	"io"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// OpenSession implements executor.SessionBackend.
func (b *backendClient) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	resp, err := b.sessions.OpenSession(outgoing(ctx), &pb.SessionBackendServiceOpenSessionRequest{Session: toSession(s)})
	return fromOpened(resp), fromStatus(ctx, err)
}

// AdoptSession implements executor.SessionBackend.
func (b *backendClient) AdoptSession(ctx context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	resp, err := b.sessions.AdoptSession(outgoing(ctx), &pb.SessionBackendServiceAdoptSessionRequest{Session: toSession(s), Handle: handle})
	return fromOpened(resp), fromStatus(ctx, err)
}

// RestartSession implements executor.SessionBackend.
func (b *backendClient) RestartSession(ctx context.Context, id string, wipe bool) error {
	_, err := b.sessions.RestartSession(outgoing(ctx), &pb.SessionBackendServiceRestartSessionRequest{Id: id, Wipe: wipe})
	return fromStatus(ctx, err)
}

// CloseSession implements executor.SessionBackend.
func (b *backendClient) CloseSession(ctx context.Context, id string) error {
	_, err := b.sessions.CloseSession(outgoing(ctx), &pb.SessionBackendServiceCloseSessionRequest{Id: id})
	return fromStatus(ctx, err)
}

// Variables implements executor.SessionTools.
func (b *backendClient) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	resp, err := b.sessions.Variables(outgoing(ctx), &pb.SessionBackendServiceVariablesRequest{Id: id})
	return each(resp.GetVariables(), fromVariable), fromStatus(ctx, err)
}

// AddRequirements implements executor.SessionTools.
func (b *backendClient) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	resp, err := b.sessions.AddRequirements(outgoing(ctx), &pb.SessionBackendServiceAddRequirementsRequest{Id: id, Requirements: requirements})
	return resp.GetRequirements(), fromStatus(ctx, err)
}

// ListFiles implements executor.SessionFiles.
func (b *backendClient) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	resp, err := b.sessions.ListFiles(outgoing(ctx), &pb.SessionBackendServiceListFilesRequest{Id: id, Path: path, Recursive: recursive})
	return each(resp.GetFiles(), fromFile), fromStatus(ctx, err)
}

// ReadFile implements executor.SessionFiles.
func (b *backendClient) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	return readFile[pb.SessionBackendServiceReadFileResponse](ctx, func(ctx context.Context) (grpc.ServerStreamingClient[pb.SessionBackendServiceReadFileResponse], error) {
		return b.sessions.ReadFile(ctx, &pb.SessionBackendServiceReadFileRequest{Id: id, Path: path})
	})
}

// WriteFile implements executor.SessionFiles.
func (b *backendClient) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	target := &pb.FileTarget{Id: id, Path: path, SizeBytes: size}
	return writeFile[pb.SessionBackendServiceWriteFileRequest, pb.SessionBackendServiceWriteFileResponse](ctx, b.sessions.WriteFile,
		func(p *pb.FilePiece) *pb.SessionBackendServiceWriteFileRequest {
			return &pb.SessionBackendServiceWriteFileRequest{Piece: p}
		}, target, r)
}

// RemoveFile implements executor.SessionFiles.
func (b *backendClient) RemoveFile(ctx context.Context, id, path string) error {
	_, err := b.sessions.RemoveFile(outgoing(ctx), &pb.SessionBackendServiceRemoveFileRequest{Id: id, Path: path})
	return fromStatus(ctx, err)
}

type sessionBackendServer struct {
	pb.UnimplementedSessionBackendServiceServer
	backend executor.SessionBackend
}

// OpenSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) OpenSession(ctx context.Context, r *pb.SessionBackendServiceOpenSessionRequest) (*pb.SessionBackendServiceOpenSessionResponse, error) {
	opened, err := s.backend.OpenSession(ctx, fromSession(r.GetSession()))
	if err != nil {
		return nil, err
	}
	return toOpened(opened), nil
}

// AdoptSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) AdoptSession(ctx context.Context, r *pb.SessionBackendServiceAdoptSessionRequest) (*pb.SessionBackendServiceAdoptSessionResponse, error) {
	opened, err := s.backend.AdoptSession(ctx, fromSession(r.GetSession()), r.GetHandle())
	if err != nil {
		return nil, err
	}
	return toAdopted(opened), nil
}

// RestartSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) RestartSession(ctx context.Context, r *pb.SessionBackendServiceRestartSessionRequest) (*pb.SessionBackendServiceRestartSessionResponse, error) {
	return &pb.SessionBackendServiceRestartSessionResponse{}, s.backend.RestartSession(ctx, r.GetId(), r.GetWipe())
}

// CloseSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) CloseSession(ctx context.Context, r *pb.SessionBackendServiceCloseSessionRequest) (*pb.SessionBackendServiceCloseSessionResponse, error) {
	return &pb.SessionBackendServiceCloseSessionResponse{}, s.backend.CloseSession(ctx, r.GetId())
}

// Variables implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) Variables(ctx context.Context, r *pb.SessionBackendServiceVariablesRequest) (*pb.SessionBackendServiceVariablesResponse, error) {
	got, err := s.backend.Variables(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &pb.SessionBackendServiceVariablesResponse{Variables: each(got, toVariable)}, nil
}

// AddRequirements implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) AddRequirements(ctx context.Context, r *pb.SessionBackendServiceAddRequirementsRequest) (*pb.SessionBackendServiceAddRequirementsResponse, error) {
	got, err := s.backend.AddRequirements(ctx, r.GetId(), r.GetRequirements())
	if err != nil {
		return nil, err
	}
	return &pb.SessionBackendServiceAddRequirementsResponse{Requirements: got}, nil
}

// ListFiles implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) ListFiles(ctx context.Context, r *pb.SessionBackendServiceListFilesRequest) (*pb.SessionBackendServiceListFilesResponse, error) {
	got, err := s.backend.ListFiles(ctx, r.GetId(), r.GetPath(), r.GetRecursive())
	if err != nil {
		return nil, err
	}
	return &pb.SessionBackendServiceListFilesResponse{Files: each(got, toFile)}, nil
}

// ReadFile implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) ReadFile(r *pb.SessionBackendServiceReadFileRequest, stream grpc.ServerStreamingServer[pb.SessionBackendServiceReadFileResponse]) error {
	return serveRead(stream.Context(), s.backend, r.GetId(), r.GetPath(), func(p *pb.FilePiece) error {
		return stream.Send(&pb.SessionBackendServiceReadFileResponse{Piece: p})
	})
}

// WriteFile implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) WriteFile(stream grpc.ClientStreamingServer[pb.SessionBackendServiceWriteFileRequest, pb.SessionBackendServiceWriteFileResponse]) error {
	file, err := serveWrite(stream.Context(), s.backend, func() (*pb.FilePiece, error) {
		m, err := stream.Recv()
		return m.GetPiece(), err
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.SessionBackendServiceWriteFileResponse{File: toFile(file)})
}

// RemoveFile implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) RemoveFile(ctx context.Context, r *pb.SessionBackendServiceRemoveFileRequest) (*pb.SessionBackendServiceRemoveFileResponse, error) {
	return &pb.SessionBackendServiceRemoveFileResponse{}, s.backend.RemoveFile(ctx, r.GetId(), r.GetPath())
}
