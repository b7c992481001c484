package plugin

import (
	"context"
	"os"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// The handshake tells a person who starts a plugin by hand that it is one. It is no secret.
const (
	cookieKey       = "PYEXEC_PLUGIN"
	cookieValue     = "e6b1c0f4-python-executor-plugin"
	protocolVersion = 1
	dispenseName    = "backend"
)

// Two timers let a plugin exit whose host is gone while nobody watches (prototypes.md §2.1).
const (
	// unsupervised: no supervising stream since the start.
	unsupervised = 10 * time.Second
	// unkilled: the stream has ended in order, and nobody came to kill.
	unkilled = 2 * time.Second
)

const (
	// stopGrace bounds how long a plugin whose host is gone waits for what it runs to stop. Closing the backend then ends the rest,
	// and must fit into the host's cutGrace.
	stopGrace = time.Second
	// closeGrace bounds the closing of its backend.
	closeGrace = 10 * time.Second
)

func handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{ProtocolVersion: protocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}
}

// Requested reports whether this process was started as a plugin by a host.
func Requested() bool { return os.Getenv(cookieKey) == cookieValue }

// grpcPlugin is what go-plugin needs to know of us: how to register on a server, and the bare connection on a client. The
// broker makes the connection back, from a frontend to its host's Service.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(*goplugin.GRPCBroker, *grpc.Server)
}

// dispensed is what a client gets.
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
