// Package workertest has what tests of workers share: certificates and a Sink.
package workertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/worker"
)

// Authority signs certificates. Its files are in a temporary folder of the test.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.dir, "ca.pem"), "CERTIFICATE", raw)
	return a
}

// Issue returns the files of a new certificate with that DNS name.
func (a *Authority) Issue(name string) worker.TLS {
	a.t.Helper()
	return a.issue(a.t.TempDir(), name, time.Now().Add(24*time.Hour))
}

// IssueExpired is Issue for a certificate whose time is over.
func (a *Authority) IssueExpired(name string) worker.TLS {
	a.t.Helper()
	return a.issue(a.t.TempDir(), name, time.Now().Add(-time.Minute))
}

// Renew replaces the files of t by a new certificate with that DNS name, signed by a.
func (a *Authority) Renew(t worker.TLS, name string) {
	a.t.Helper()
	next := a.issue(a.t.TempDir(), name, time.Now().Add(24*time.Hour))
	for _, f := range [][2]string{{next.CACert, t.CACert}, {next.Key, t.Key}, {next.Cert, t.Cert}} {
		if err := os.Rename(f[0], f[1]); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *Authority) issue(dir, name string, until time.Time) worker.TLS {
	a.t.Helper()
	key := newKey(a.t)
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	t := worker.TLS{CACert: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	write(a.t, t.CACert, "CERTIFICATE", a.cert.Raw)
	write(a.t, t.Cert, "CERTIFICATE", raw)
	write(a.t, t.Key, "PRIVATE KEY", der)
	return t
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t testing.TB, path, kind string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
}
