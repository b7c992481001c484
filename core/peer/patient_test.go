package peer

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// exhausted is a listener that fails before it accepts, as where the user has no watch of epoll left.
type exhausted struct {
	net.Listener
	left atomic.Int64
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.ENOSPC}
	}
	return l.Listener.Accept()
}

func TestAServerOutlivesErrorsOfAccept(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := &exhausted{Listener: listen(t)}
	l.left.Store(3)
	s := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)} //nolint:gosec // clients are the test's
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.Serve(New(programs, nil).Listener(Patient(l, slog.New(slog.NewTextHandler(&log, nil))))) })
	c, err := net.Dial("tcp", at("127.0.0.1", l)) //nolint:noctx // on this host
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if answer := exchange(t, c.(*net.TCPConn), "GET / HTTP/1.0\r\n\r\n"); !strings.Contains(answer, "404") { //nolint:forcetypeassert // tcp was dialed
		t.Error(answer)
	}
	if err := s.Close(); err != nil { // the closed listener ends Serve
		t.Error(err)
	}
	ended.Wait()
	if n := strings.Count(log.String(), "no space left on device"); n != 1 {
		t.Errorf("the log has %d errors: %s", n, &log)
	}
}
