package worker

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// maxDialPause bounds the pause between two attempts to connect, so that a worker that comes back is there within seconds.
const maxDialPause = 2 * time.Second

// Dialer connects to workers with the certificates of one server.
type Dialer struct {
	// Connect opens a connection to host:port; nil means by TCP. A test sets it before Dial, for workers in memory.
	Connect func(ctx context.Context, address string) (net.Conn, error)

	identity *identity
	instance string
}

// NewDialer reads the certificates. at is the path of t in the configuration, for errors. instance names the server's installation.
// log may be nil. Codes: invalid.
func NewDialer(t TLS, at, instance string, log *slog.Logger) (*Dialer, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	identity, err := newIdentity(t, at, WorkerName, log)
	if err != nil {
		return nil, err
	}
	return &Dialer{identity: identity, instance: instance}, nil
}

// Client is the Backend of one worker. A call while the worker cannot be reached is unavailable. The Client connects again by itself.
type Client struct {
	wire.Backend
	conn *grpc.ClientConn
}

// Dial returns the Client of the worker at address, which is host:port, and begins to connect. The caller calls Close.
func (d *Dialer) Dial(address string) (*Client, error) {
	options := wire.DialOptions()
	if d.Connect != nil {
		options = append(options, grpc.WithContextDialer(d.Connect))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(newClientCredentials(d.identity)), grpc.WithAuthority(d.identity.tls.PeerName), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxDialPause},
			MinConnectTimeout: handshakeLimit,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingLimit, PermitWithoutStream: true}),
	)...)
	if err != nil {
		return nil, executor.Errorf(executor.Invalid, "worker %s: %w", address, err)
	}
	conn.Connect()
	return &Client{wire.NewBackend(&caller{conn, d.instance}, nil, nil), conn}, nil
}

// Close ends the connection and all calls on it.
func (c *Client) Close() error { return c.conn.Close() }

// caller adds the caller's installation to each call.
type caller struct {
	conn     *grpc.ClientConn
	instance string
}

var _ grpc.ClientConnInterface = (*caller)(nil)

// Invoke implements grpc.ClientConnInterface.
func (c *caller) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.conn.Invoke(metadata.AppendToOutgoingContext(ctx, instanceKey, c.instance), method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface. A Run whose stream cannot be opened has not started: the job is the first message on it.
func (c *caller) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.conn.NewStream(metadata.AppendToOutgoingContext(ctx, instanceKey, c.instance), desc, method, opts...)
	if err != nil && ctx.Err() == nil && status.Code(err) == codes.Unavailable {
		return nil, &executor.Error{Code: executor.Unavailable, Op: opUnsent, Message: status.Convert(err).Message(), RetryAfter: refusalRetry, Err: err}
	}
	return stream, err
}
