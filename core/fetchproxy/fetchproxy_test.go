package fetchproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/runner/network"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a Policy in which 127.0.0.2 stands for a public address: nothing of a test leaves the machine.
func world(t *testing.T, sources ...string) Policy {
	t.Helper()
	ranges, err := network.ParseRanges([]string{"127.0.0.2/32"})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{
		"public.test": "127.0.0.2", "inside.test": "127.0.0.1", "mixed.test": "127.0.0.2 127.0.0.1", "private.test": "10.0.0.1",
		"mapped.test": "::ffff:127.0.0.1", "index.test": "127.0.0.1", "intranet": "127.0.0.2",
	}
	return Policy{
		Sources: sources, Ranges: ranges, Own: func(netip.Addr) (bool, error) { return false, nil },
		Lookup: func(_ context.Context, name string) (found []netip.Addr, err error) {
			for text := range strings.FieldsSeq(names[name]) {
				found = append(found, netip.MustParseAddr(text))
			}
			if len(found) == 0 {
				err = &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
			}
			return found, err
		},
	}
}

// server is a server at an address of this host that counts connections.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	conns int
}

func serve(t *testing.T, address string, secure bool, h http.HandlerFunc) *server {
	t.Helper()
	l, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Server: httptest.NewUnstartedServer(h)}
	s.Listener.Close()
	s.Listener = l
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conns++
		}
	}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String()) // an address of TCP
	return port
}

func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// through returns a client that uses a Proxy, and the endpoints that were refused.
func through(t *testing.T, o Options, trusts *server) (*http.Client, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var refused []string
	o.OnRefusal = func(r *Refusal) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, r.Host)
	}
	p, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}
	if trusts != nil {
		tr := trusts.Client().Transport.(*http.Transport).Clone()
		tr.Proxy, tr.TLSClientConfig.ServerName = http.ProxyURL(at), "example.com"
		client.Transport = tr
	}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		p.Close()
		p.Close() // harmless
	})
	return client, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(refused)
	}
}

func get(t *testing.T, c *http.Client, address string) (status int, body string, err error) {
	t.Helper()
	r, err := c.Get(address)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	return r.StatusCode, string(raw), err
}

func TestOnlyPublicAddressesAreReachedOverTLS(t *testing.T) {
	t.Parallel()
	hello := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	public, inside := serve(t, "127.0.0.2:0", true, hello), serve(t, "127.0.0.1:0", true, hello)
	c, refused := through(t, Options{Policy: world(t)}, public)
	for _, host := range []string{"public.test", "127.0.0.2"} {
		if status, body, err := get(t, c, "https://"+host+":"+public.port()); status != 200 || body != "hello" || err != nil {
			t.Errorf("%s: %d %q, %v", host, status, body, err)
		}
	}
	answers := map[string]bool{}
	hosts := []string{
		"127.0.0.1", "127.1", "0x7f.1", "2130706433", "localhost", "foo.localhost", "[::1]", "[::ffff:127.0.0.1]", "inside.test", "mixed.test", "mapped.test",
		"private.test", "nothing.test", "10.0.0.1", "169.254.169.254", "[64:ff9b::7f00:1]", "intranet",
	}
	for _, host := range hosts {
		for _, port := range []string{inside.port(), "1"} {
			_, _, err := get(t, c, "https://"+host+":"+port)
			if err == nil {
				t.Errorf("%s:%s was reached", host, port)
				continue
			}
			answers[strings.NewReplacer(host, "HOST", port, "PORT").Replace(err.Error())] = true
		}
	}
	if n := inside.connections(); n != 0 {
		t.Errorf("%d connections to a server inside", n)
	}
	if len(answers) != 1 {
		t.Errorf("refusals differ: %v", answers)
	}
	if got := refused(); len(got) != 2*len(hosts) {
		t.Errorf("%d refusals were told, want %d: %q", len(got), 2*len(hosts), got)
	}
}

func TestSourcesAreReachedWhereverTheyAre(t *testing.T) {
	t.Parallel()
	plain := serve(t, "127.0.0.1:0", false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "" {
			t.Error("the token of the proxy was passed on")
		}
		user, password, _ := r.BasicAuth()
		fmt.Fprint(w, r.URL.Path, user, password)
	})
	other := serve(t, "127.0.0.1:0", false, func(http.ResponseWriter, *http.Request) {})
	c, refused := through(t, Options{Policy: world(t, "127.0.0.1:"+plain.port(), "index.test:"+plain.port())}, nil)
	if status, body, err := get(t, c, "http://u:p@127.0.0.1:"+plain.port()+"/simple"); status != 200 || body != "/simpleup" || err != nil {
		t.Errorf("%d %q, %v", status, body, err)
	}
	for _, address := range []string{"http://127.0.0.1:" + other.port(), "http://inside.test:" + plain.port(), "http://127.0.0.2:" + plain.port(), "http://public.test/"} {
		if status, _, err := get(t, c, address); status != http.StatusForbidden || err != nil {
			t.Errorf("%s: %d, %v", address, status, err)
		}
	}
	if n := other.connections(); n != 0 || len(refused()) != 4 {
		t.Errorf("%d connections, refused %q", n, refused())
	}
}

// TestARedirectIsAskedAbout: a redirect leads to an address that is not public, or gives up TLS.
func TestARedirectIsAskedAbout(t *testing.T) {
	t.Parallel()
	inside := serve(t, "127.0.0.1:0", true, func(http.ResponseWriter, *http.Request) {})
	plain := serve(t, "127.0.0.2:0", false, func(http.ResponseWriter, *http.Request) {})
	public := serve(t, "127.0.0.2:0", true, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	c, refused := through(t, Options{Policy: world(t)}, public)
	for _, to := range []string{"https://127.0.0.1:" + inside.port(), "https://inside.test:" + inside.port(), "http://public.test:" + plain.port()} {
		status, _, err := get(t, c, "https://public.test:"+public.port()+"?to="+url.QueryEscape(to))
		if err == nil && status != http.StatusForbidden {
			t.Errorf("%s: %d", to, status)
		}
	}
	if inside.connections()+plain.connections() != 0 || len(refused()) != 3 {
		t.Errorf("%d and %d connections, refused %q", inside.connections(), plain.connections(), refused())
	}
}

func TestOnlyWhoKnowsTheTokenIsServed(t *testing.T) {
	t.Parallel()
	p, err := Listen(Options{Policy: world(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, header := range []string{"", "Proxy-Authorization: Basic Zm9vOmJhcg==\r\n", "Proxy-Authorization: Bearer x\r\n"} {
		conn, err := net.Dial("tcp", p.Address().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, "CONNECT public.test:443 HTTP/1.1\r\nHost: public.test:443\r\n"+header+"\r\n")
		answer, readErr := http.ReadResponse(bufio.NewReader(conn), nil)
		if err := errors.Join(err, readErr); err != nil || answer.StatusCode != http.StatusProxyAuthRequired {
			t.Errorf("%q: %+v, %v", header, answer, err)
		}
		conn.Close()
	}
}

// TestTheHostsProxyIsUsed: what is public, or unknown here, goes through the proxy of this host. What is known not to be public does not.
func TestTheHostsProxyIsUsed(t *testing.T) {
	t.Parallel()
	public := serve(t, "127.0.0.2:0", true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	var mu sync.Mutex
	var asked []string
	theirs := serve(t, "127.0.0.1:0", false, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
		mu.Unlock()
		outside, err := net.Dial("tcp", "127.0.0.2:"+public.port())
		if err != nil {
			t.Error(err)
			return
		}
		inside, early, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(inside, "HTTP/1.1 200 OK\r\n\r\n")
		relay(inside, early, outside)
		inside.Close()
		outside.Close()
	})
	up := Upstream(map[string]string{"HTTPS_PROXY": "http://u:p@" + theirs.Listener.Addr().String()})
	c, refused := through(t, Options{Policy: world(t), Upstream: up}, public)
	for _, host := range []string{"public.test", "nothing.test"} {
		if status, body, err := get(t, c, "https://"+host+":"+public.port()); status != 200 || body != "hello" || err != nil {
			t.Errorf("%s: %d %q, %v", host, status, body, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "inside.test", "private.test", "localhost", "127.1"} {
		if _, _, err := get(t, c, "https://"+host+":"+public.port()); err == nil {
			t.Errorf("%s was reached", host)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"CONNECT public.test:" + public.port() + " Basic dTpw", "CONNECT nothing.test:" + public.port() + " Basic dTpw"}; !slices.Equal(asked, want) || len(refused()) != 5 {
		t.Errorf("the host's proxy was asked for %q, refused %q", asked, refused())
	}
}

// TestASourceOutOfReachIsNoRefusal: it says why, because clients show the answer of a proxy only.
func TestASourceOutOfReachIsNoRefusal(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"https://127.0.0.1:1", "http://127.0.0.1:1", "https://gone.test"} {
		p, err := Listen(Options{Policy: world(t, "127.0.0.1:1", "gone.test:443"), OnRefusal: func(r *Refusal) { t.Errorf("refused: %v", r) }})
		if err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(p.URL())
		if err != nil {
			t.Fatal(err)
		}
		c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}
		if status, _, err := get(t, c, address); err == nil && status != http.StatusBadGateway || p.Trouble() == nil {
			t.Errorf("%s: %d, %v, trouble %v", address, status, err, p.Trouble())
		}
		c.CloseIdleConnections()
		p.Close()
	}
}

// TestTheTroubleOfASourceIsForgottenOnceItAnswers: what it answered then is the reason of a failure.
func TestTheTroubleOfASourceIsForgottenOnceItAnswers(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	lost.Store(true)
	index := serve(t, "127.0.0.1:0", false, func(w http.ResponseWriter, _ *http.Request) {
		if lost.Load() {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNotFound)
	})
	at := index.Listener.Addr().String()
	p, err := Listen(Options{Policy: world(t, at, "127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	proxy, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	ask := func(address string, want int) {
		t.Helper()
		if status, _, err := get(t, c, "http://"+address); status != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", address, status, err, want)
		}
	}
	ask(at, http.StatusBadGateway)
	ask("127.0.0.1:1", http.StatusBadGateway)
	both := p.Trouble()
	lost.Store(false)
	ask(at, http.StatusNotFound)
	if left := p.Trouble(); left == nil || !strings.Contains(left.Error(), "127.0.0.1:1") || left.Error() == both.Error() {
		t.Errorf("before the answer %v, after it %v, want that of the other source", both, left)
	}
}

func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p, err := Listen(Options{Policy: world(t)})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := ask(conn, at, silent.Addr().String()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}

func TestSourcesAreTheEndpointsOfURLs(t *testing.T) {
	t.Parallel()
	got := Sources("https://u:p@Index.test/simple", "http://a.test:8080/x,https://b.test corp=https://c.test/simple?q=1 /srv/wheels", "http://d.test", "ftp://e.test", "https://[2001:DB8::1]/", "")
	want := []string{"index.test:443", "a.test:8080", "b.test:443", "c.test:443", "d.test:80", "d.test:443", "[2001:db8::1]:443"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAURLIsJudgedByItsHost(t *testing.T) {
	t.Parallel()
	p := world(t, "10.0.0.1:443")
	for address, ok := range map[string]bool{
		"https://public.test/x": true, "https://127.0.0.2/x": true, "git+https://public.test/x": true, "https://10.0.0.1/x": true, "https://unknown.example/x": true,
		"https://10.0.0.1:8443/x": false, "https://127.0.0.1/x": false, "git+https://127.0.0.1/x": false, "https://[::1]/x": false, "https://localhost/x": false,
		"https://LOCALHOST./x": false, "https://intranet/x": false, "https://127.1/x": false, "https://0x7f000001/x": false, "https:///x": false, "https://a b/x": false,
		`https://127.0.0.1\@public.test/x`: false, "https://public.test@127.0.0.1/x": false, "https://[fe80::1%25eth0]/x": false,
	} {
		if err := p.CheckURL(address); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}
