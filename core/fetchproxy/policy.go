package fetchproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner/network"
)

// Policy says what may be fetched from. The zero value allows public addresses only.
type Policy struct {
	// Sources are the sources of the configuration, "host:port" in lower case. They are reached whatever their addresses are.
	Sources []string
	// Ranges are the addresses that count as public. The zero value opens none besides.
	Ranges network.Ranges
	// Lookup looks a name up. nil means net.DefaultResolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Own reports whether an address belongs to this host. nil asks the kernel.
	Own func(netip.Addr) (bool, error)
}

// Sources returns the endpoints ("host:port") of the URLs in texts, which may hold several URLs each. What is no URL of http or https is left
// out.
func Sources(texts ...string) []string {
	var list []string
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' || r == '\n' }) {
			if _, after, named := strings.Cut(word, "="); named && !strings.Contains(strings.SplitN(word, "=", 2)[0], "/") {
				word = after // UV_INDEX has NAME=URL
			}
			if u, err := url.Parse(word); err == nil {
				endpoint, ok := endpointOf(u)
				if !ok || slices.Contains(list, endpoint) {
					continue
				}
				list = append(list, endpoint)
				if host, plain := strings.CutSuffix(endpoint, ":80"); plain { // it may lead to the same host over https
					list = append(list, host+":443")
				}
			}
		}
	}
	return list
}

// endpointOf returns the host and port of a URL.
func endpointOf(u *url.URL) (string, bool) {
	port := u.Port()
	switch {
	case u.Hostname() == "":
		return "", false
	case port != "":
	case u.Scheme == "http":
		port = "80"
	case u.Scheme == "https" || strings.HasSuffix(u.Scheme, "+https"):
		port = "443"
	default:
		return "", false
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port), true
}

// Refusal is why nothing is fetched from an address. It says the same of every address that is refused, so that it does not tell what is
// there.
type Refusal struct {
	// Host is the host and port that were asked for.
	Host string
}

func (r *Refusal) Error() string { return requirements.NotPublic(r.Host) }

// CheckURL refuses a URL whose host is visibly not public: an address, or a name of this host. It looks nothing up.
func (p Policy) CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("must be a URL")
	}
	endpoint, ok := endpointOf(u)
	if !ok {
		return errors.New("must have a host")
	}
	if p.isSource(endpoint) {
		return nil
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		if !p.Ranges.Public(a) {
			return &Refusal{endpoint}
		}
		return nil
	}
	if !isName(host) {
		return &Refusal{endpoint}
	}
	return nil
}

// Check looks up the host of a server over https, "host" or "host:port". It returns a *Refusal if one of its addresses is not public. A name that
// this host does not know, or cannot look up, is no reason.
func (p Policy) Check(ctx context.Context, server string) error {
	endpoint, ok := endpointOf(&url.URL{Scheme: "https", Host: server})
	if !ok {
		return &Refusal{server}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	_, err := p.addresses(ctx, endpoint)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal
	}
	return nil
}

// lookupTime bounds the lookup of Check.
const lookupTime = 10 * time.Second

// Closed returns the prefixes of addresses that are not public, and those of this host, for a proxy that is not this one (requirements.Driver).
func Closed() []string {
	var list []string
	for _, prefix := range network.Closed() {
		list = append(list, prefix.String())
	}
	own, _ := net.InterfaceAddrs() // without them the others count
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				a = a.Unmap()
				list = append(list, netip.PrefixFrom(a, a.BitLen()).String())
			}
		}
	}
	return list
}

func (p Policy) isSource(endpoint string) bool { return slices.Contains(p.Sources, endpoint) }

// isName reports whether host may be a public name. Names of one label are those of a site. A last label that begins with a digit is a form of
// an IPv4 address that some resolvers and proxies accept, such as 127.1 and 0x7f.1.
func isName(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != host && last != "" && last != "localhost" && (last[0] < '0' || last[0] > '9')
}

// addresses returns the addresses of an endpoint that may be connected to, or a *Refusal. It returns none, and no error, for a name that this
// host does not know.
func (p Policy) addresses(ctx context.Context, endpoint string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(endpoint)
	if err != nil {
		return nil, &Refusal{endpoint}
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, &Refusal{endpoint}
	}
	source := p.isSource(endpoint)
	var found []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		found = []netip.Addr{a}
	} else if !source && !isName(host) {
		return nil, &Refusal{endpoint}
	} else if found, err = p.lookup(ctx, host); err != nil {
		if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
			return nil, nil
		}
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	var list []netip.AddrPort
	for _, a := range found {
		if a = a.Unmap(); !source && !p.permits(a) {
			return nil, &Refusal{endpoint}
		}
		list = append(list, netip.AddrPortFrom(a, uint16(port)))
	}
	return list, nil
}

func (p Policy) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if p.Lookup != nil {
		return p.Lookup(ctx, name)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// permits reports whether a is public, and not an address of this host.
func (p Policy) permits(a netip.Addr) bool {
	if p.Own == nil {
		return p.Ranges.Check(a) == nil
	}
	own, err := p.Own(a)
	return err == nil && !own && p.Ranges.Public(a)
}
