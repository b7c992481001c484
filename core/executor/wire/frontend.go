package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// RegisterFrontend serves a frontend on s, which was made with ServerOptions. serve gets the broker's number of the
// connection at which the host serves its Service; it returns when the frontend has ended, or has drained after ctx.
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

// ServeFrontend has the frontend at the other end of conn serve what the host serves at the broker's connection service.
// It returns when the frontend has ended by itself (nil: in order). The end of ctx cuts the call: the frontend drains on
// its own then. Codes: those of the frontend, unavailable when its process is gone.
func ServeFrontend(ctx context.Context, conn grpc.ClientConnInterface, service uint32) error {
	_, err := pb.NewFrontendServiceClient(conn).Serve(ctx, &pb.ServeRequest{Service: service})
	return fromStatus(ctx, err)
}
