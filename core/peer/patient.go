package peer

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// Patient returns l with an Accept whose errors are temporary until l is closed, so that a server of net/http or gRPC pauses for up to a
// second and tries again. Programs of an ordinary user's server share with it what the kernel counts by user, such as watches of epoll: what
// they use up must not end the server. An error is logged once a minute; log may be nil.
func Patient(l net.Listener, log *slog.Logger) net.Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &patient{Listener: l, log: log}
}

type patient struct {
	net.Listener
	log    *slog.Logger
	logged atomic.Int64 // when the last error was logged
}

// Accept implements net.Listener.
func (l *patient) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil || errors.Is(err, net.ErrClosed) {
		return c, err
	}
	if now, last := time.Now().UnixNano(), l.logged.Load(); (last == 0 || now-last > int64(logEvery)) && l.logged.CompareAndSwap(last, now) {
		l.log.Warn("connections are not accepted", "address", l.Addr().String(), "error", err)
	}
	return nil, passing{err}
}

// passing is an error of Accept after which it may be called again.
type passing struct{ error }

var _ net.Error = passing{}

// Temporary is what servers ask.
func (passing) Temporary() bool { return true }

// Timeout implements net.Error.
func (passing) Timeout() bool { return false }

// Unwrap returns the cause.
func (p passing) Unwrap() error { return p.error }
