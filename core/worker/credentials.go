package worker

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// refusalPause is the minimum time between two log lines about refused connections. A port scanner must not fill the log.
const refusalPause = time.Second

// newServerCredentials returns credentials that log why a handshake failed, which the other end is not told.
func newServerCredentials(i *identity) credentials.TransportCredentials {
	return &serverCredentials{TransportCredentials: credentials.NewTLS(i.server()), log: i.log}
}

type serverCredentials struct {
	credentials.TransportCredentials
	log *slog.Logger

	mu     sync.Mutex
	logged time.Time
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		c.mu.Lock()
		quiet := time.Since(c.logged) < refusalPause
		if !quiet {
			c.logged = time.Now()
		}
		c.mu.Unlock()
		if !quiet {
			c.log.Warn("connection refused", "from", raw.RemoteAddr().String(), "error", err)
		}
	}
	return conn, info, err
}

// clientCredentials make each handshake with the certificates of its time.
type clientCredentials struct {
	credentials.TransportCredentials
	identity *identity
}

func newClientCredentials(i *identity) credentials.TransportCredentials {
	return &clientCredentials{credentials.NewTLS(nil), i}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.identity.client()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return newClientCredentials(c.identity)
}
