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

// maxMessageBytes bounds one message. Streams are cut in chunks. The largest messages hold the Code of a Spec or the list of
// artifacts of a Result. gRPC's own bound for a server is 4 MiB.
const maxMessageBytes = 256 << 20

// flowWindow is how much of a stream, and of a connection, is under way unread. gRPC does not hold up the connection for a
// stream that is not read. A fixed window keeps gRPC from measuring the connection, which is a socket of this machine: it
// would send a ping for nearly every message of a short run.
const flowWindow = 1 << 20

// bufferBytes is how much of a connection is read, and written, in one system call. gRPC's own 32 KiB are two of its frames.
const bufferBytes = 128 << 10

// streamWorkers is how many goroutines of a server wait for calls. A new goroutine would grow its stack again, which is a
// tenth of what a short run costs a backend's process. A call gets a new goroutine when no worker is free.
const streamWorkers = 4

// servicePrefix is how the methods of our services start. go-plugin's own streams share the connection and must stay as
// they are: otherwise go-plugin logs an error at every stop.
const servicePrefix = "/pyexec.v1."

// refusedKey is the metadata key of a RefusedScript, in JSON.
const refusedKey = "pyexec-refused-script-bin"

// principalKey is the metadata key of the Principal.
const principalKey = "pyexec-principal-bin"

// supervisionPrefix is how the methods of the service that supervises a plugin start.
const supervisionPrefix = "/pyexec.v1.PluginService/"

// SessionMethods is the prefix of the methods of executor.SessionBackend, as an Admit gets them.
const SessionMethods = "/pyexec.v1.Session"

// Admit decides whether a server takes a call, whose full gRPC name is method. It returns the ctx of the call and a
// function that the server calls when the call has ended, or the error that the caller gets.
type Admit func(ctx context.Context, method string) (context.Context, func(), error)

// ServerOptions returns the options of a gRPC server for RegisterBackend and RegisterService. On such a server a panic in
// a handler becomes an error with code internal and the process lives on. Every error becomes a status with details. The
// ctx of a call has the caller's Principal. The server asks admit before each call except supervision; nil admits all.
func ServerOptions(admit Admit) []grpc.ServerOption {
	i := interceptor{admit}
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.StaticStreamWindowSize(flowWindow),
		grpc.StaticConnWindowSize(flowWindow),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ChainUnaryInterceptor(i.unary),
		grpc.ChainStreamInterceptor(i.stream),
	}
}

// DialOptions returns the options of a gRPC connection for NewBackend and NewService.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.ForceCodecV2(newCodec())),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithStaticStreamWindowSize(flowWindow),
		grpc.WithStaticConnWindowSize(flowWindow),
	}
}

// interceptor is what every call of our services passes on its way to the handler.
type interceptor struct {
	admit Admit
}

func (i interceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !strings.HasPrefix(info.FullMethod, servicePrefix) {
		return handler(ctx, req)
	}
	defer func() {
		if v := recover(); v != nil {
			resp, err = nil, recovered(info.FullMethod, v)
		}
		err = toStatus(err)
	}()
	ctx, end, err := i.begin(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer end()
	return handler(ctx, req)
}

func (i interceptor) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !strings.HasPrefix(info.FullMethod, servicePrefix) {
		return handler(srv, stream)
	}
	defer func() {
		if v := recover(); v != nil {
			err = recovered(info.FullMethod, v)
		}
		err = toStatus(err)
	}()
	ctx, end, err := i.begin(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer end()
	return handler(srv, &admittedStream{stream, ctx})
}

// begin returns the ctx of a call and what ends it.
func (i interceptor) begin(ctx context.Context, method string) (context.Context, func(), error) {
	ctx, err := incomingPrincipal(ctx)
	if err != nil || i.admit == nil || strings.HasPrefix(method, supervisionPrefix) {
		return ctx, func() {}, err
	}
	return i.admit(ctx, method)
}

// recovered logs a panic and returns the caller's error, which has no detail.
func recovered(method string, v any) error {
	slog.Error("panic in a gRPC handler", "method", method, "panic", v, "stack", string(debug.Stack()))
	return executor.Errorf(executor.Internal, "a call to %s panicked", method)
}

// admittedStream is a stream with the ctx of its call.
type admittedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *admittedStream) Context() context.Context { return s.ctx }

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
		return executor.WithPrincipal(ctx, from[executor.Principal](&p)), nil
	default:
		return nil, executor.Errorf(executor.Unauthenticated, "%d principals where one is expected", len(values))
	}
}

// outgoing returns ctx with its Principal in the metadata of a call.
func outgoing(ctx context.Context) context.Context {
	raw, err := proto.Marshal(to[pb.Principal](executor.PrincipalFrom(ctx)))
	if err != nil {
		return ctx // cannot happen: the message has no field that can fail
	}
	return metadata.AppendToOutgoingContext(ctx, principalKey, string(raw))
}
