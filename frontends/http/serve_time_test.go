package httpfrontend

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	closed := make(chan struct{})
	return &pipes{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) Close() error {
	p.close()
	return nil
}

// dial returns the client's end of a connection that has sent text.
func (p *pipes) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	p.conns <- server
	if err := client.SetDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	return client
}

const plainGet = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestAConnectionThatSaysNothingIsClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text  string
		bound time.Duration
	}{
		"at all":            {"", headerTime},
		"of its headers":    {plainGet[:20], headerTime},
		"behind its answer": {plainGet, idleTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newPipes()
				ctx, end := context.WithCancelCause(t.Context())
				h := handlerOf(t, hello().service())
				returned := make(chan error, 1)
				go func() { returned <- Serve(ctx, nil, l, h, nil) }()
				client := l.dial(t, tt.text)
				began := time.Now()
				if _, err := io.ReadAll(client); err != nil || time.Since(began) != tt.bound {
					t.Errorf("closed after %s with %v, want %s", time.Since(began), err, tt.bound)
				}
				client.Close()
				end(nil)
				if err := <-returned; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACallThatDoesNotEndIsLeftBehind(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		now   bool
		bound time.Duration
	}{
		"after the drain":                       {false, drainTime + cutTime},
		"after a second where there is no time": {true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, now, free := newPipes(), make(chan struct{}), make(chan struct{})
				ctx, end := context.WithCancelCause(t.Context())
				h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-free })
				returned := make(chan error, 1)
				go func() { returned <- serve(ctx, now, l, h, slog.New(slog.DiscardHandler), drainTime) }()
				client := l.dial(t, plainGet)
				synctest.Wait()
				began := time.Now()
				if tt.now {
					close(now)
				}
				end(nil)
				if err := <-returned; err != nil || time.Since(began) != tt.bound {
					t.Errorf("serve returned %v after %s, want %s", err, time.Since(began), tt.bound)
				}
				if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != tt.bound {
					t.Errorf("the connection is left open: %v after %s", err, time.Since(began))
				}
				client.Close()
				close(free)
			})
		})
	}
}

func TestACallThatIsCutHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, end := context.WithCancelCause(t.Context())
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		returned := make(chan error, 1)
		go func() { returned <- serve(ctx, nil, l, h, slog.New(slog.DiscardHandler), drainTime) }()
		client := l.dial(t, plainGet)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		synctest.Wait()
		began := time.Now()
		end(nil)
		if err := <-returned; err != nil || time.Since(began) > drainTime+cutTime/2 {
			t.Errorf("serve returned %v after %s, want %s", err, time.Since(began), drainTime)
		}
		client.Close()
	})
}
