package wire

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// OpenSession implements executor.Sessions.
func (s *serviceClient) OpenSession(ctx context.Context, session executor.Session) (executor.Session, error) {
	resp, err := s.service.OpenSession(outgoing(ctx), &pb.OpenSessionRequest{Session: to[pb.Session](session)})
	return from[executor.Session](resp.GetSession()), fromStatus(ctx, err)
}

// GetSession implements executor.Sessions.
func (s *serviceClient) GetSession(ctx context.Context, id string) (executor.Session, error) {
	resp, err := s.service.GetSession(outgoing(ctx), &pb.GetSessionRequest{Id: id})
	return from[executor.Session](resp.GetSession()), fromStatus(ctx, err)
}

// ListSessions implements executor.Sessions.
func (s *serviceClient) ListSessions(ctx context.Context) ([]executor.Session, error) {
	resp, err := s.service.ListSessions(outgoing(ctx), &pb.ListSessionsRequest{})
	return each(resp.GetSessions(), from[executor.Session]), fromStatus(ctx, err)
}

// InterruptSession implements executor.Sessions.
func (s *serviceClient) InterruptSession(ctx context.Context, id string) (executor.Session, error) {
	resp, err := s.service.InterruptSession(outgoing(ctx), &pb.InterruptSessionRequest{Id: id})
	return from[executor.Session](resp.GetSession()), fromStatus(ctx, err)
}

// RestartSession implements executor.Sessions.
func (s *serviceClient) RestartSession(ctx context.Context, id string, wipe bool) (executor.Session, error) {
	resp, err := s.service.RestartSession(outgoing(ctx), &pb.RestartSessionRequest{Id: id, Wipe: wipe})
	return from[executor.Session](resp.GetSession()), fromStatus(ctx, err)
}

// CloseSession implements executor.Sessions.
func (s *serviceClient) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	resp, err := s.service.CloseSession(outgoing(ctx), &pb.CloseSessionRequest{Id: id})
	return from[executor.Session](resp.GetSession()), fromStatus(ctx, err)
}

// OpenSession implements pb.ExecutorServiceServer.
func (s *serviceServer) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	session, err := s.service.OpenSession(ctx, from[executor.Session](r.GetSession()))
	return &pb.OpenSessionResponse{Session: to[pb.Session](session)}, err
}

// GetSession implements pb.ExecutorServiceServer.
func (s *serviceServer) GetSession(ctx context.Context, r *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	session, err := s.service.GetSession(ctx, r.GetId())
	return &pb.GetSessionResponse{Session: to[pb.Session](session)}, err
}

// ListSessions implements pb.ExecutorServiceServer.
func (s *serviceServer) ListSessions(ctx context.Context, _ *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	list, err := s.service.ListSessions(ctx)
	return &pb.ListSessionsResponse{Sessions: each(list, to[pb.Session])}, err
}

// InterruptSession implements pb.ExecutorServiceServer.
func (s *serviceServer) InterruptSession(ctx context.Context, r *pb.InterruptSessionRequest) (*pb.InterruptSessionResponse, error) {
	session, err := s.service.InterruptSession(ctx, r.GetId())
	return &pb.InterruptSessionResponse{Session: to[pb.Session](session)}, err
}

// RestartSession implements pb.ExecutorServiceServer.
func (s *serviceServer) RestartSession(ctx context.Context, r *pb.RestartSessionRequest) (*pb.RestartSessionResponse, error) {
	session, err := s.service.RestartSession(ctx, r.GetId(), r.GetWipe())
	return &pb.RestartSessionResponse{Session: to[pb.Session](session)}, err
}

// CloseSession implements pb.ExecutorServiceServer.
func (s *serviceServer) CloseSession(ctx context.Context, r *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	session, err := s.service.CloseSession(ctx, r.GetId())
	return &pb.CloseSessionResponse{Session: to[pb.Session](session)}, err
}
