package dockertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tlsPort is the port on which a private daemon speaks TLS, at the address of its bridge.
const tlsPort = "2376"

// Remote returns how to reach the daemon by TCP and TLS, like a daemon on another machine: its host, and a folder with ca.pem,
// cert.pem and key.pem of a permitted client. It skips the test if neither this process nor Serve has started the daemon.
func Remote(t testing.TB) (host, certificates string) {
	t.Helper()
	Host(t)
	dir := os.Getenv(Variable)
	if daemon.own != nil {
		dir = daemon.own.dir
	}
	if dir == "" {
		t.Skip("SKIPPED, the daemon is not private, so it may not speak TLS")
	}
	bridge, err := os.ReadFile(filepath.Join(dir, "bridge")) //nolint:gosec // the folder of the shared daemon
	if err != nil {
		t.Fatal(err)
	}
	return "tcp://" + net.JoinHostPort(addressOf(string(bridge)), tlsPort), filepath.Join(dir, "client")
}

// secure creates a certificate authority, the daemon's certificate in the folder server and a client's in the folder client. It
// returns the arguments of dockerd.
func (p *private) secure(address string) ([]string, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ca.issue(p.path("server"), net.ParseIP(address)), ca.issue(p.path("client"), nil)); err != nil {
		return nil, err
	}
	return []string{
		"--host", "tcp://" + net.JoinHostPort(address, tlsPort), "--tlsverify", "--tlscacert", p.path("server/ca.pem"),
		"--tlscert", p.path("server/cert.pem"), "--tlskey", p.path("server/key.pem"),
	}, nil
}

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, cert: template("dockertest")}
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	raw, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(raw)
	return a, err
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// issue writes a certificate, its key and the authority's certificate into folder. With an address it is a server's
// certificate, else a client's.
func (a *authority) issue(folder string, address net.IP) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := template(filepath.Base(folder))
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if address != nil {
		cert.ExtKeyUsage, cert.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{address}
	}
	raw, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem":   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		"cert.pem": {Type: "CERTIFICATE", Bytes: raw},
		"key.pem":  {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
	}
	return nil
}
