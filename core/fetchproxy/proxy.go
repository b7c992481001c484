package fetchproxy

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of Listen.
type Options struct {
	Policy Policy
	// Upstream returns the proxy through which this host reaches a URL, or nil. nil means that there is none.
	Upstream func(*url.URL) (*url.URL, error)
	// OnRefusal is called for each refused request, concurrently. It may be nil.
	OnRefusal func(*Refusal)
}

const (
	// dialTime bounds an attempt to connect to one address.
	dialTime = 15 * time.Second
	// headTime bounds the time from a connection to its first request.
	headTime = 30 * time.Second
)

// Proxy serves one preparation. Only who knows its URL can use it.
type Proxy struct {
	options   Options
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	pass      *httputil.ReverseProxy
	token     string

	ctx  context.Context //nolint:containedctx // the life of the Proxy
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	troubles map[string]error // the errors of sources that have not answered since, by endpoint
}

var errClosed = errors.New("the proxy is closed")

// Listen starts a Proxy on a port of the loopback. Close ends it.
func Listen(o Options) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{options: o, listener: listener, token: rand.Text(), troubles: map[string]error{}}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	p.transport = &http.Transport{DisableCompression: true, MaxIdleConns: 16, IdleConnTimeout: time.Minute} // only for sources
	if o.Upstream != nil {
		p.transport.Proxy = func(r *http.Request) (*url.URL, error) { return o.Upstream(r.URL) }
	}
	quiet := log.New(io.Discard, "", 0)
	p.pass = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.Header.Del("Proxy-Authorization") },
		Transport: p.transport, ErrorLog: quiet, FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			endpoint, _ := endpointOf(r.Request.URL)
			p.answered(endpoint)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			endpoint, _ := endpointOf(r.URL)
			p.fail(w, endpoint, err)
		},
	}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: headTime, ErrorLog: quiet}
	p.wg.Go(func() { _ = p.server.Serve(listener) }) // until Close
	return p, nil
}

// Address is where the proxy listens.
func (p *Proxy) Address() netip.AddrPort {
	return p.listener.Addr().(*net.TCPAddr).AddrPort() //nolint:forcetypeassert // a TCP listener
}

// URL is the address of the proxy with the token that it requires.
func (p *Proxy) URL() string { return "http://fetch:" + p.token + "@" + p.listener.Addr().String() }

// Environment returns the variables that make uv, pip and git use the proxy, and none of this host's. Git is kept to https.
func (p *Proxy) Environment() map[string]string {
	set := map[string]string{"NO_PROXY": "", "no_proxy": "", "GIT_ALLOW_PROTOCOL": "https", "GIT_TERMINAL_PROMPT": "0"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "PIP_PROXY"} {
		set[name] = p.URL()
	}
	return set
}

// Close ends the proxy and all its connections, and waits for them.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop(errClosed)
	_ = p.server.Close() // closes the listener, and no connection that was taken over
	p.transport.CloseIdleConnections()
	p.wg.Wait()
}

// begin reports whether a request may begin. Close waits until it calls p.wg.Done.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if !p.begin() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer p.wg.Done()
	if !p.knows(r) {
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method == http.MethodConnect {
		p.serveConnect(w, r)
		return
	}
	endpoint, ok := endpointOf(r.URL)
	if r.URL.Scheme != "http" || !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !p.options.Policy.isSource(endpoint) { // also a public address: nothing protects what comes over plain http
		p.refuse(w, &Refusal{endpoint})
		return
	}
	p.pass.ServeHTTP(w, r)
}

// knows reports whether a request has the token.
func (p *Proxy) knows(r *http.Request) bool {
	raw, basic := strings.CutPrefix(r.Header.Get("Proxy-Authorization"), "Basic ")
	given, err := base64.StdEncoding.DecodeString(raw)
	_, password, _ := strings.Cut(string(given), ":")
	return basic && err == nil && subtle.ConstantTimeCompare([]byte(password), []byte(p.token)) == 1
}

func (p *Proxy) refuse(w http.ResponseWriter, r *Refusal) {
	if p.options.OnRefusal != nil {
		p.options.OnRefusal(r)
	}
	http.Error(w, r.Error(), http.StatusForbidden)
}

// fail answers that a source cannot be reached. Clients do not show why, so Trouble tells it.
func (p *Proxy) fail(w http.ResponseWriter, endpoint string, err error) {
	p.mu.Lock()
	p.troubles[endpoint] = err
	p.mu.Unlock()
	w.WriteHeader(http.StatusBadGateway)
}

// answered forgets why a source could not be reached, because what it answers now is what its client shows.
func (p *Proxy) answered(endpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.troubles, endpoint)
}

// Trouble returns why sources could not be reached that have not answered since, or nil.
func (p *Proxy) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, endpoint := range slices.Sorted(maps.Keys(p.troubles)) {
		errs = append(errs, p.troubles[endpoint])
	}
	return errors.Join(errs...)
}

func (p *Proxy) serveConnect(w http.ResponseWriter, r *http.Request) {
	endpoint := strings.ToLower(r.Host)
	outside, err := p.dial(r.Context(), endpoint)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		p.refuse(w, refusal)
		return
	}
	if err != nil {
		if p.options.Policy.isSource(endpoint) {
			p.fail(w, endpoint, err)
		} else {
			w.WriteHeader(http.StatusBadGateway)
		}
		return
	}
	p.answered(endpoint)
	inside, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = outside.Close()
		return
	}
	defer context.AfterFunc(p.ctx, func() { _ = errors.Join(inside.Close(), outside.Close()) })()
	if _, err := io.WriteString(inside, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		relay(inside, buffered, outside)
	}
	_ = errors.Join(inside.Close(), outside.Close())
}

// relay copies both ways until both have ended. early has what was read of inside already.
func relay(inside net.Conn, early io.Reader, outside net.Conn) {
	var other sync.WaitGroup
	other.Go(func() {
		_, _ = io.Copy(inside, outside)
		endWrites(inside)
	})
	_, _ = io.Copy(outside, early)
	endWrites(outside)
	other.Wait()
}

// endWrites tells the other end that nothing more comes.
func endWrites(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}
