package wire

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// maxMessageBytes bounds one message. Streams are cut in chunks; what is large in one message is a Spec's Code or a
// Result's list of artifacts. gRPC's own bound for what a server receives is 4 MiB.
const maxMessageBytes = 256 << 20

// flowWindow is how much of a stream, and of a connection, is on its way unread. A fixed one keeps gRPC from measuring the
// connection, which is a socket of this machine: it would send a ping for nearly every message of a short run.
const flowWindow = 1 << 20

// streamWorkers is how many goroutines of a server wait for calls. A new one would grow its stack anew, which is a tenth
// of what a short run costs a backend's process; a call for which none is free has its own.
const streamWorkers = 4

// servicePrefix is how the methods of our services start. go-plugin's own streams share the connection; an interceptor
// that touched them would make it log an error at every stop (prototypes.md §3).
const servicePrefix = "/pyexec.v1."

// principalKey is the metadata key of the Principal.
const principalKey = "pyexec-principal-bin"

// ServerOptions make a gRPC server fit for RegisterBackend and RegisterService: a panic in a handler becomes internal and
// the process lives on, every error becomes a status with details, the caller's Principal is in ctx.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.StaticStreamWindowSize(flowWindow),
		grpc.StaticConnWindowSize(flowWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ChainUnaryInterceptor(unaryServer),
		grpc.ChainStreamInterceptor(streamServer),
	}
}

// DialOptions make a gRPC connection fit for NewBackend and NewService.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithStaticStreamWindowSize(flowWindow),
		grpc.WithStaticConnWindowSize(flowWindow),
	}
}

func unaryServer(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !strings.HasPrefix(info.FullMethod, servicePrefix) {
		return handler(ctx, req)
	}
	defer func() {
		if v := recover(); v != nil {
			resp, err = nil, recovered(info.FullMethod, v)
		}
		err = toStatus(err)
	}()
	ctx, err = incomingPrincipal(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func streamServer(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !strings.HasPrefix(info.FullMethod, servicePrefix) {
		return handler(srv, stream)
	}
	defer func() {
		if v := recover(); v != nil {
			err = recovered(info.FullMethod, v)
		}
		err = toStatus(err)
	}()
	ctx, err := incomingPrincipal(stream.Context())
	if err != nil {
		return err
	}
	return handler(srv, &principalStream{stream, ctx})
}

// recovered logs a panic and gives the caller an error without its detail.
func recovered(method string, v any) error {
	slog.Error("panic in a gRPC handler", "method", method, "panic", v, "stack", string(debug.Stack()))
	return executor.Errorf(executor.Internal, "a call to %s panicked", method)
}

type principalStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *principalStream) Context() context.Context { return s.ctx }

func incomingPrincipal(ctx context.Context) (context.Context, error) {
	values := metadata.ValueFromIncomingContext(ctx, principalKey)
	switch len(values) {
	case 0:
		return ctx, nil
	case 1:
		var p pb.Principal
		if err := proto.Unmarshal([]byte(values[0]), &p); err != nil {
			return nil, executor.Errorf(executor.Unauthenticated, "the principal cannot be read: %w", err)
		}
		return executor.WithPrincipal(ctx, fromPrincipal(&p)), nil
	default:
		return nil, executor.Errorf(executor.Unauthenticated, "%d principals where one is expected", len(values))
	}
}

// outgoing adds the Principal of ctx to what a call sends.
func outgoing(ctx context.Context) context.Context {
	raw, err := proto.Marshal(toPrincipal(executor.PrincipalFrom(ctx)))
	if err != nil {
		return ctx // cannot happen: the message has no field that can fail
	}
	return metadata.AppendToOutgoingContext(ctx, principalKey, string(raw))
}
