package plugin

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// The handshake lets a plugin that is started by hand explain itself. The cookie is not secret.
const (
	cookieKey   = "PYEXEC_PLUGIN"
	cookieValue = "e6b1c0f4-python-executor-plugin"
	// protocolVersion is the version of the gRPC services between host and plugin. A host starts only plugins that were
	// built for its version. Version 2 gave each source a stream of its own (docs/decisions/0012).
	protocolVersion = 2
	dispenseName    = "backend"
)

// Two timers end a plugin whose host is gone while no supervising stream is open.
const (
	// unsupervised is how long a plugin waits for its supervising stream.
	unsupervised = 10 * time.Second
	// unkilled is how long a plugin waits to be killed when its supervising stream has ended in order.
	unkilled = 2 * time.Second
)

// stopGrace bounds how long a plugin whose host is gone waits for its calls to end. Closing the backend then ends the rest, and must
// fit into the host's CutGrace. Only tests change it.
var stopGrace = time.Second

// closeGrace bounds the closing of the backend.
const closeGrace = 10 * time.Second

func handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{ProtocolVersion: protocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}
}

// Requested reports whether this process was started as a plugin by a host.
func Requested() bool { return os.Getenv(cookieKey) == cookieValue }

// Version returns the version for the Info of a Backend: that of this build. In a plugin process it is empty, because
// ServeBackend got the version of the program.
func Version() string {
	if Requested() {
		return ""
	}
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "unknown"
}

// grpcPlugin registers the services of package wire on a server of go-plugin. On a client it returns the bare connection. The
// broker makes the connection from a frontend to its host's Service.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(*goplugin.GRPCBroker, *grpc.Server)
}

// dispensed is what go-plugin gives to a client.
type dispensed struct {
	conn   *grpc.ClientConn
	broker *goplugin.GRPCBroker
}

var _ goplugin.GRPCPlugin = (*grpcPlugin)(nil)

// GRPCServer implements goplugin.GRPCPlugin.
func (p *grpcPlugin) GRPCServer(broker *goplugin.GRPCBroker, s *grpc.Server) error {
	p.register(broker, s)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (p *grpcPlugin) GRPCClient(_ context.Context, broker *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &dispensed{conn, broker}, nil
}
