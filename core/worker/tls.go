package worker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The DNS names that the certificates of both roles must have, unless TLS.PeerName says otherwise.
const (
	ServerName = "server.python-executor"
	WorkerName = "worker.python-executor"
)

// TLS names the files of one end, in PEM.
type TLS struct {
	// CACert has the certificates of the authorities that sign the other end's certificate.
	CACert string `json:"ca_cert"`
	// Cert has this end's certificate, with the intermediate ones. Key has its private key.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// PeerName is the DNS name that the other end's certificate must have. Default: ServerName for a worker's peers, WorkerName for a
	// server's.
	PeerName string `json:"peer_name"`
}

// files returns the key and the value of each file.
func (t TLS) files() [3][2]string {
	return [3][2]string{{"ca_cert", t.CACert}, {"cert", t.Cert}, {"key", t.Key}}
}

// Check reports every file of t that is not named or cannot be used, below the path at ("worker.tls"). It reads the files.
func (t TLS) Check(at string) error {
	var p executor.Problems
	for _, f := range t.files() {
		if f[1] == "" {
			p.Add(at+"."+f[0], "must be the path of a file")
		} else if _, err := os.ReadFile(f[1]); err != nil {
			p.Add(at+"."+f[0], "must be a readable file: %v", err)
		}
	}
	if len(p) > 0 {
		return p.Err(executor.Invalid, "", "\n")
	}
	if _, err := authorities(t.CACert); err != nil {
		p.Add(at+".ca_cert", "%v", err)
	}
	if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
		p.Add(at+".cert", "must be a certificate in PEM that fits %s.key: %v", at, err)
	}
	return p.Err(executor.Invalid, "", "\n")
}

// Expiry returns when the certificate at t.Cert ends.
func (t TLS) Expiry() (time.Time, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return time.Time{}, err
	}
	return pair.Leaf.NotAfter, nil
}

// Names returns the DNS names of the certificate at t.Cert.
func (t TLS) Names() ([]string, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	return pair.Leaf.DNSNames, nil
}

func authorities(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, errors.New("must have certificates in PEM")
	}
	return pool, nil
}

// identity has the content of the files of a TLS. It is safe for concurrent use.
type identity struct {
	tls TLS
	log *slog.Logger

	mu     sync.Mutex
	seen   [3]os.FileInfo
	pair   tls.Certificate
	pool   *x509.CertPool
	failed string // why the present files are not in use; empty: they are
}

// newIdentity reads the files. Codes: invalid.
func newIdentity(t TLS, at, peer string, log *slog.Logger) (*identity, error) {
	if t.PeerName == "" {
		t.PeerName = peer
	}
	if err := t.Check(at); err != nil {
		return nil, err
	}
	i := &identity{tls: t, log: log}
	_, _, err := i.current()
	return i, err
}

// current returns the certificates of the files as they are now. Files that cannot be used, such as a certificate whose key is still to be
// written, leave the former certificates in use.
func (i *identity) current() (tls.Certificate, *x509.CertPool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.readLocked(); err != nil {
		if i.pool == nil {
			return tls.Certificate{}, nil, executor.Errorf(executor.Unavailable, "certificates: %w", err)
		}
		if i.failed != err.Error() {
			i.failed = err.Error()
			i.log.Warn("the changed certificates cannot be used: the former ones stay", "error", err)
		}
	}
	return i.pair, i.pool, nil
}

func (i *identity) readLocked() error {
	var now [3]os.FileInfo
	same := true
	for n, f := range i.tls.files() {
		info, err := os.Stat(f[1])
		if err != nil {
			return err
		}
		now[n] = info
		was := i.seen[n]
		same = same && was != nil && os.SameFile(was, info) && was.ModTime().Equal(info.ModTime()) && was.Size() == info.Size()
	}
	if same {
		return nil
	}
	pool, err := authorities(i.tls.CACert)
	if err != nil {
		return fmt.Errorf("%s: %w", i.tls.CACert, err)
	}
	pair, err := tls.LoadX509KeyPair(i.tls.Cert, i.tls.Key)
	if err != nil {
		return err
	}
	if i.pool != nil {
		i.log.Info("the certificates were read again", "until", pair.Leaf.NotAfter)
	}
	i.seen, i.pair, i.pool, i.failed = now, pair, pool, ""
	return nil
}

// server returns the configuration of a listener. Each handshake has the certificates of its time.
func (i *identity) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, pool, err := i.current()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			VerifyConnection: func(s tls.ConnectionState) error {
				if names := s.PeerCertificates[0].DNSNames; !slices.Contains(names, i.tls.PeerName) {
					return fmt.Errorf("the certificate must have the DNS name %s (got %q)", i.tls.PeerName, names)
				}
				return nil
			},
		}, nil
	}}
}

// client returns the configuration of one handshake. gRPC adds the name that the peer must have, which is the connection's authority.
func (i *identity) client() (*tls.Config, error) {
	pair, pool, err := i.current()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair},
	}, nil
}
