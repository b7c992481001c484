// Package agent has what a connection to an agent of Nomad and one to an agent of Consul have in common.
package agent

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/backend"
)

// Settings are those of a connection to an agent.
type Settings struct {
	// Address is http://HOST:PORT, https://HOST:PORT or unix://PATH.
	Address string
	// Token is the ACL token. TokenFile is a file with the token.
	Token, TokenFile string
	// TLS secures the connection.
	TLS TLS
}

// TLS has the files of this host that secure the connection to an agent. All are in PEM. An empty field means the variable of the
// agent's own command.
type TLS struct {
	// CACert has the certificates that the agent's is checked against. Default: NOMAD_CACERT or CONSUL_CACERT, else those that this
	// host trusts.
	CACert string `json:"ca_cert"`
	// Cert and Key are the client's certificate and its key. Default: NOMAD_CLIENT_CERT and NOMAD_CLIENT_KEY, or CONSUL_CLIENT_CERT
	// and CONSUL_CLIENT_KEY, else none.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// ServerName is the name in the agent's certificate, "server.global.nomad" for one. Default: NOMAD_TLS_SERVER_NAME or
	// CONSUL_TLS_SERVER_NAME, else the host of the address.
	ServerName string `json:"server_name"`
}

// Validate adds the problems of s to p. under is the path of s with a dot at its end, or empty. It reads no file.
func (s Settings) Validate(p *backend.Problems, under string) {
	check := func(ok bool, key, format string, args ...any) { p.Require(ok, under+key, format, args...) }
	check(s.Address == "" || isAddress(s.Address), "address", "must be http://HOST:PORT, https://HOST:PORT or unix://PATH")
	check(s.Token == "" || s.TokenFile == "", "token_file", "must be empty if token is given")
	for _, file := range []struct{ key, path string }{
		{"token_file", s.TokenFile}, {"tls.ca_cert", s.TLS.CACert}, {"tls.cert", s.TLS.Cert}, {"tls.key", s.TLS.Key},
	} {
		check(file.path == "" || filepath.IsAbs(file.path), file.key, "must be an absolute path (got %q)", file.path)
	}
	check((s.TLS.Cert == "") == (s.TLS.Key == ""), "tls.key", "must be given with tls.cert, and only with it")
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	if u.Scheme == "unix" {
		return u.Host == "" && filepath.IsAbs(u.Path)
	}
	return slices.Contains([]string{"http", "https"}, u.Scheme) && u.Host != "" && (u.Path == "" || u.Path == "/")
}

// Secret returns the token of s: Token, or what TokenFile holds. It is empty if s has neither. A file that cannot be read, and TLS for an
// address without it, are problems of p. address is the address in effect.
func (s Settings) Secret(p *backend.Problems, under, address string) string {
	token := s.Token
	if s.TokenFile != "" {
		raw, err := os.ReadFile(s.TokenFile)
		token = strings.TrimSpace(string(raw))
		p.Require(err == nil, under+"token_file", "must be a file that can be read: %v", err)
		p.Require(err != nil || token != "", under+"token_file", "must hold a token: %s is empty", s.TokenFile)
	}
	p.Require(s.TLS == TLS{} || strings.HasPrefix(address, "https://"), under+"address", "must begin with https:// if tls is given")
	return token
}

// IsOpen reports whether a connection to address crosses a network that anybody there can read.
func IsOpen(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip == nil || !ip.IsLoopback()
}
