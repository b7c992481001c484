package wire

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// OpenSession implements executor.SessionBackend.
func (b *backendClient) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	resp, err := b.sessions.OpenSession(outgoing(ctx), &pb.SessionBackendServiceOpenSessionRequest{Session: to[pb.Session](s)})
	return from[executor.OpenedSession](resp.GetOpened()), fromStatus(ctx, err)
}

// AdoptSession implements executor.SessionBackend.
func (b *backendClient) AdoptSession(ctx context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	resp, err := b.sessions.AdoptSession(outgoing(ctx), &pb.SessionBackendServiceAdoptSessionRequest{Session: to[pb.Session](s), Handle: handle})
	return from[executor.OpenedSession](resp.GetOpened()), fromStatus(ctx, err)
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

type sessionBackendServer struct {
	pb.UnimplementedSessionBackendServiceServer
	backend executor.SessionBackend
}

// OpenSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) OpenSession(ctx context.Context, r *pb.SessionBackendServiceOpenSessionRequest) (*pb.SessionBackendServiceOpenSessionResponse, error) {
	opened, err := s.backend.OpenSession(ctx, from[executor.Session](r.GetSession()))
	return &pb.SessionBackendServiceOpenSessionResponse{Opened: to[pb.OpenedSession](opened)}, err
}

// AdoptSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) AdoptSession(ctx context.Context, r *pb.SessionBackendServiceAdoptSessionRequest) (*pb.SessionBackendServiceAdoptSessionResponse, error) {
	opened, err := s.backend.AdoptSession(ctx, from[executor.Session](r.GetSession()), r.GetHandle())
	return &pb.SessionBackendServiceAdoptSessionResponse{Opened: to[pb.OpenedSession](opened)}, err
}

// RestartSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) RestartSession(ctx context.Context, r *pb.SessionBackendServiceRestartSessionRequest) (*pb.SessionBackendServiceRestartSessionResponse, error) {
	return &pb.SessionBackendServiceRestartSessionResponse{}, s.backend.RestartSession(ctx, r.GetId(), r.GetWipe())
}

// CloseSession implements pb.SessionBackendServiceServer.
func (s *sessionBackendServer) CloseSession(ctx context.Context, r *pb.SessionBackendServiceCloseSessionRequest) (*pb.SessionBackendServiceCloseSessionResponse, error) {
	return &pb.SessionBackendServiceCloseSessionResponse{}, s.backend.CloseSession(ctx, r.GetId())
}
