package auth

import (
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// CheckHost checks the Host header of a request if there are no tokens. The name of a web page's server may later be made to
// resolve to this machine (DNS rebinding). The requests of that page have that name as Host, and no foreign Origin.
//
// bind is the listening address. With a loopback bind, or an empty one, the Host must be a loopback name or address. With any
// other bind it must be an address, a name without a dot, the name of the bind, or this host's own name. An empty host is
// accepted: clients of HTTP/1.0 send none, but web pages always do. Codes: denied.
func (a *Authenticator) CheckHost(host, bind string) error {
	switch {
	case a.Enabled() || host == "" || Loopback(host):
		return nil
	case bind == "" || Loopback(bind):
		return executor.Errorf(executor.Denied, "Host: must be a loopback name or address, because this server has no tokens")
	case !ownHost(host, bind):
		return executor.Errorf(executor.Denied, "Host: must be an address or a name of this server, because it has no tokens")
	}
	return nil
}

// Loopback reports whether a Host header or a listening address, with or without a port, names this machine only.
func Loopback(hostport string) bool {
	host := hostOf(hostport)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// ownHost reports whether a Host header cannot be the name of another server: it is an address, a name without a dot, or a
// name of this host.
func ownHost(hostport, bind string) bool {
	host := hostOf(hostport)
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") || host == hostOf(bind) {
		return true
	}
	name, err := os.Hostname()
	return err == nil && host == hostOf(name)
}

// hostOf returns the host of a Host header or an address: in lower case, without port, brackets and final dot.
func hostOf(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	} else if inner, ok := strings.CutPrefix(hostport, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			host = inner
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
