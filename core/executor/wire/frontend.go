package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// RegisterFrontend serves a frontend on s, which must have been made with ServerOptions. service is the broker's number of
// the connection at which the host serves its Service. serve returns when the frontend has ended, or when it has drained
// after the end of ctx.
func RegisterFrontend(s grpc.ServiceRegistrar, serve func(ctx context.Context, service uint32) error) {
	pb.RegisterFrontendServiceServer(s, &frontendServer{serve: serve})
}

type frontendServer struct {
	pb.UnimplementedFrontendServiceServer
	serve func(ctx context.Context, service uint32) error
}

// Serve implements pb.FrontendServiceServer.
func (s *frontendServer) Serve(ctx context.Context, r *pb.ServeRequest) (*pb.ServeResponse, error) {
	if err := s.serve(ctx, r.GetService()); err != nil {
		return nil, err
	}
	return &pb.ServeResponse{}, nil
}

// ServeFrontend asks the frontend at the other end of conn to serve the host's Service, which is at the broker's connection
// service. It returns when the frontend has ended by itself; the error is nil if it ended in order. The end of ctx ends the
// call while the frontend drains. Codes: those of the frontend, unavailable when its process is gone.
func ServeFrontend(ctx context.Context, conn grpc.ClientConnInterface, service uint32) error {
	_, err := pb.NewFrontendServiceClient(conn).Serve(ctx, &pb.ServeRequest{Service: service})
	return fromStatus(ctx, err)
}
