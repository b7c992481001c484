//go:build linux

package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// counted counts lookups.
type counted struct {
	table
	n atomic.Int64
}

func (c *counted) owner(local, remote *net.TCPAddr) (int, error) {
	c.n.Add(1)
	return c.table.owner(local, remote)
}

// serving serves handler behind g.
func serving(t *testing.T, g *Guard, handler http.Handler) net.Listener {
	t.Helper()
	l := listen(t)
	s := &http.Server{Handler: handler} //nolint:gosec // clients are the test's
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(g.Listener(l)) })
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return l
}

// exchange sends request and returns the whole answer.
func exchange(t *testing.T, c *net.TCPConn, request string) string {
	t.Helper()
	_, _ = io.WriteString(c, request) // a refused request may not be read to its end
	all, _ := io.ReadAll(c)
	return string(all)
}

func TestProgramsAreRefusedAndOthersServed(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for sockets of another user
	var log bytes.Buffer
	g := New(programs, slog.New(slog.NewTextHandler(&log, nil)))
	var served atomic.Int64
	l := serving(t, g, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = io.WriteString(w, "served")
	}))
	requests := map[string]string{
		"a request":  "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"an upgrade": "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"a pipeline": "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"a body":     "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 50000\r\n\r\n" + strings.Repeat("x", 50000),
		"old HTTP":   "GET / HTTP/1.0\r\n\r\n",
	}
	onEveryHost(t, func(host string, fail func(format string, args ...any)) {
		answerTo := func(uid int, request string) string {
			c, err := tryDialAs(t, uid, at(host, l))
			if err != nil {
				fail("%v", err)
				return ""
			}
			return exchange(t, c, request)
		}
		served.Store(0)
		for name, request := range requests {
			answer := answerTo(programUID, request)
			if !strings.HasPrefix(answer, "HTTP/1.1 403 ") || strings.Count(answer, "HTTP/1.1") != 1 || !strings.Contains(answer, `"denied"`) {
				fail("%s: %q", name, answer)
			}
		}
		if n := served.Load(); n != 0 {
			fail("%d requests of a program were served", n)
		}
		if answer := answerTo(0, requests["a request"]); !strings.Contains(answer, "served") {
			fail("root is answered %q", answer)
		}
	})
	for _, uid := range []int{60600, 60610} {
		if answer := exchange(t, dialAs(t, uid, at("127.0.0.1", l)), requests["a request"]); !strings.Contains(answer, " 403 ") {
			t.Errorf("uid %d: %q", uid, answer)
		}
	}
	for _, uid := range []int{60599, 60611, 1000} {
		if answer := exchange(t, dialAs(t, uid, at("127.0.0.1", l)), requests["a request"]); !strings.Contains(answer, "served") {
			t.Errorf("uid %d: %q", uid, answer)
		}
	}
	if n := strings.Count(log.String(), "peer_uid=60601"); n < 1 {
		t.Errorf("no refusal was logged:\n%s", &log)
	}
}

// A program that closes its socket behind the request leaves no owner in the kernel's tables but root.
func TestARequestWhoseSocketIsClosedIsRefused(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for sockets of another user
	g := New(programs, nil)
	l := listen(t)
	guarded := g.Listener(l)
	for range 20 {
		c := dialAs(t, programUID, at("127.0.0.1", l))
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		accepted, err := guarded.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := accepted.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v", n, err)
		}
		if n, err := accepted.(io.WriterTo).WriteTo(io.Discard); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("copied %d bytes, %v", n, err)
		}
		accepted.Close()
	}
}

func TestAConnectionIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	g := New(programs, nil)
	table := &counted{table: g.table}
	g.table = table
	l := serving(t, g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	for range 10 {
		r, err := (&http.Client{Transport: transport}).Get("http://" + at("127.0.0.1", l)) //nolint:noctx // to this process
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	if n := table.n.Load(); n != 1 {
		t.Errorf("%d lookups", n)
	}
	if err := g.check(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 77), Port: 80}, &net.TCPAddr{IP: net.IPv4(198, 51, 100, 9), Port: 8000}); err != nil || table.n.Load() != 1 {
		t.Errorf("a peer on another host: %v, %d lookups", err, table.n.Load())
	}
}

// stuck is a table that answers when it is told to.
type stuck struct{ release chan struct{} }

func (s stuck) owner(_, _ *net.TCPAddr) (int, error) {
	<-s.release
	return 0, errors.New("no owner")
}

func TestAcceptDoesNotWaitForALookup(t *testing.T) {
	t.Parallel()
	g := New(programs, nil)
	table := stuck{make(chan struct{})}
	g.table = table
	l := listen(t)
	guarded := g.Listener(l)
	var wg sync.WaitGroup
	for range 3 {
		dialAs(t, os.Geteuid(), at("127.0.0.1", l))
		c, err := guarded.Accept()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a peer without an owner: %v", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a write to a peer that was refused: %v", err)
			}
		})
	}
	close(table.release)
	wg.Wait()
}

func TestWithoutProgramsNothingIsRefused(t *testing.T) {
	t.Parallel()
	g := New(nil, nil)
	l := listen(t)
	if g != nil || g.Listener(l) != l {
		t.Error("a guard without uids is not nil")
	}
}

func TestAGuardThatGrowsRefusesWhatIsAdded(t *testing.T) {
	t.Parallel()
	g := NewEmpty(nil)
	l := listen(t)
	own := UIDRange{os.Geteuid(), os.Geteuid()}
	c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := g.check(c.RemoteAddr(), c.LocalAddr()); err != nil {
		t.Errorf("without uids: %v", err)
	}
	check := func(what string, refused bool) {
		t.Helper()
		if err := g.check(c.RemoteAddr(), c.LocalAddr()); (err != nil) != refused || len(g.Refused()) > 1 || slices.Contains(g.Refused(), own) != refused {
			t.Errorf("%s: %v, %v", what, err, g.Refused())
		}
	}
	first := g.Refuse([]UIDRange{own})
	second := g.Refuse([]UIDRange{own})
	check("with its uid, twice", true)
	first()
	first()
	check("taken back once", true)
	second()
	check("taken back by both", false)
	g.Refuse([]UIDRange{own})
	check("again", true)
}

func TestOnlyTCPIsServed(t *testing.T) {
	t.Parallel()
	name := t.TempDir() + "/socket"
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := (&net.Dialer{}).DialContext(context.Background(), "unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := New(programs, nil).Listener(l).Accept(); err == nil {
		t.Error("it was accepted")
	}
	if _, err := bufio.NewReader(c).ReadByte(); err == nil {
		t.Error("it was not closed")
	}
	if New(programs, nil).check(l.Addr(), l.Addr()) == nil {
		t.Error("its peer passed")
	}
}
