package fetchproxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
	xproxy "golang.org/x/net/proxy"
)

// dial connects to an endpoint, directly or through the proxy of this host. A *Refusal says that the policy forbids it.
func (p *Proxy) dial(ctx context.Context, endpoint string) (net.Conn, error) {
	addresses, err := p.options.Policy.addresses(ctx, endpoint)
	if _, refused := errors.AsType[*Refusal](err); refused {
		return nil, err
	}
	upstream, upErr := p.upstream(endpoint)
	switch {
	case upErr != nil:
		return nil, upErr
	case upstream != nil: // it may know names that this host does not
		return p.through(ctx, upstream, endpoint)
	case err != nil:
		return nil, err
	case len(addresses) == 0 && p.options.Policy.isSource(endpoint):
		return nil, fmt.Errorf("%s: no such host", endpoint)
	case len(addresses) == 0:
		// An unknown name and one with an address that is not public get the same answer.
		return nil, &Refusal{endpoint}
	}
	var errs error
	for _, a := range addresses {
		within, cancel := context.WithTimeout(ctx, dialTime)
		conn, err := new(net.Dialer).DialContext(within, "tcp", a.String())
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// upstream returns the proxy of this host for an endpoint, or nil.
func (p *Proxy) upstream(endpoint string) (*url.URL, error) {
	if p.options.Upstream == nil {
		return nil, nil
	}
	return p.options.Upstream(&url.URL{Scheme: "https", Host: endpoint})
}

// Upstream returns the choice of a proxy that a set of variables describes: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, and the same in lower
// case, which come first.
func Upstream(set map[string]string) func(*url.URL) (*url.URL, error) {
	value := func(name string) string { return cmp.Or(set[strings.ToLower(name)], set[name]) }
	all := value("ALL_PROXY")
	c := httpproxy.Config{HTTPProxy: cmp.Or(value("HTTP_PROXY"), all), HTTPSProxy: cmp.Or(value("HTTPS_PROXY"), all), NoProxy: value("NO_PROXY")}
	return c.ProxyFunc()
}

// through asks a proxy of this host for a connection to an endpoint.
func (p *Proxy) through(ctx context.Context, proxy *url.URL, endpoint string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTime)
	defer cancel()
	if strings.HasPrefix(proxy.Scheme, "socks5") {
		dialer, err := xproxy.FromURL(proxy, new(net.Dialer))
		if err != nil {
			return nil, err
		}
		return dialer.(xproxy.ContextDialer).DialContext(ctx, "tcp", endpoint) //nolint:forcetypeassert // that of SOCKS5 is one
	}
	at, ok := endpointOf(proxy)
	if !ok || proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, fmt.Errorf("the proxy of this host must be a URL of http, https or socks5 (got the scheme %q)", proxy.Scheme)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	}
	if err = ask(conn, proxy, endpoint); err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// ask sends CONNECT to a proxy and reads its answer, and no byte more.
func ask(conn net.Conn, proxy *url.URL, endpoint string) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: endpoint}, Host: endpoint, Header: http.Header{}}
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		user := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
		request.Header.Set("Proxy-Authorization", "Basic "+user)
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	head := &headReader{from: conn}
	answer, err := http.ReadResponse(bufio.NewReader(head), request) //nolint:bodyclose // an answer to CONNECT has none
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the proxy of this host answers %s", answer.Status)
	}
	return nil
}

// headReader reads the head of an answer byte by byte, because what follows is not for its reader.
type headReader struct {
	from io.Reader
	last [4]byte
}

// Read implements io.Reader.
func (r *headReader) Read(b []byte) (int, error) {
	if string(r.last[:]) == "\r\n\r\n" {
		return 0, io.EOF
	}
	n, err := r.from.Read(b[:min(1, len(b))])
	if n == 1 {
		copy(r.last[:], r.last[1:])
		r.last[3] = b[0]
	}
	return n, err
}
