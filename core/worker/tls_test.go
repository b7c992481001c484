package worker_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/wire"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestAWorkerTakesWorkOnlyFromServers(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	b := fake.New(fake.Options{})
	_, address := start(t, worker.Options{Backend: b, TLS: a.Issue(worker.WorkerName)})
	result, err := dial(t, a.Issue(worker.ServerName), "one", address).Run(t.Context(), job("exe_good", "print hello"), workertest.NewJournal())
	if err != nil || result.Status != executor.StatusSucceeded {
		t.Fatalf("a server is refused: %+v, %v", result, err)
	}
	foreign := workertest.NewAuthority(t).Issue(worker.ServerName)
	ours := a.Issue(worker.ServerName)
	foreign.CACert = ours.CACert // it trusts the worker
	for name, id := range map[string]worker.TLS{
		"of another authority": foreign, "of another worker": a.Issue(worker.WorkerName), "whose time is over": a.IssueExpired(worker.ServerName),
	} {
		_, err := dial(t, id, "one", address).Run(t.Context(), job("exe_bad", "print no"), workertest.NewJournal())
		if executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a certificate %s: %v", name, err)
		}
	}
	pool, err := os.ReadFile(ours.CACert)
	if err != nil {
		t.Fatal(err)
	}
	bare := &tls.Config{ServerName: worker.WorkerName, RootCAs: certPool(t, pool)}
	old := &tls.Config{ServerName: worker.WorkerName, RootCAs: certPool(t, pool), MaxVersion: tls.VersionTLS12}
	for name, c := range map[string]credentials.TransportCredentials{
		"without a certificate": credentials.NewTLS(bare), "without TLS": insecure.NewCredentials(), "with TLS 1.2": credentials.NewTLS(old),
	} {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(c))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.NewBackend(conn, nil, nil).Run(t.Context(), job("exe_bad", "print no"), workertest.NewJournal()); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a caller %s: %v", name, err)
		}
		if err := wire.NewBackend(conn, nil, nil).Remove(t.Context(), "exe_good"); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("remove by a caller %s: %v", name, err)
		}
		_ = conn.Close()
	}
	if runs := b.Runs(); len(runs) != 1 {
		t.Errorf("the backend got %v", runs)
	}
}

func TestAServerTalksOnlyToWorkers(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	b := fake.New(fake.Options{})
	id := a.Issue(worker.ServerName)
	for name, theirs := range map[string]worker.TLS{
		"another server": a.Issue(worker.ServerName), "one of another authority": workertest.NewAuthority(t).Issue(worker.WorkerName),
	} {
		theirs.CACert = id.CACert // it trusts us
		_, address := start(t, worker.Options{Backend: b, TLS: theirs})
		_, err := dial(t, id, "one", address).Run(t.Context(), job("exe_bad", "print no"), workertest.NewJournal())
		if executor.CodeOf(err) != executor.Unavailable || !worker.Unstarted(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.Runs()) > 0 {
		t.Errorf("the backend got %v", b.Runs())
	}
}

func TestRenewedCertificatesAreUsed(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	worked, served := a.Issue(worker.WorkerName), a.Issue(worker.ServerName)
	_, address := start(t, worker.Options{Backend: fake.New(fake.Options{}), TLS: worked})
	d, err := worker.NewDialer(served, "tls", "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	asks := func() error {
		c, err := d.Dial(address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Info(t.Context())
		return err
	}
	if err := asks(); err != nil {
		t.Fatal(err)
	}
	next := workertest.NewAuthority(t)
	next.Renew(worked, worker.WorkerName)
	if err := asks(); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a certificate of the former authority: %v", err)
	}
	next.Renew(served, worker.ServerName)
	if err := asks(); err != nil {
		t.Errorf("renewed on both ends: %v", err)
	}
	// A certificate that does not fit its key, because one of both is still to be written.
	if err := os.Rename(next.Issue(worker.WorkerName).Key, worked.Key); err != nil {
		t.Fatal(err)
	}
	if err := asks(); err != nil {
		t.Errorf("with half of a renewal: %v", err)
	}
}

func TestCertificatesThatAreWrittenInPlaceAreUsed(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	worked, served := a.Issue(worker.WorkerName), a.Issue(worker.ServerName)
	began := time.Now()
	overwrite(t, worked, worked, began)
	_, address := start(t, worker.Options{Backend: fake.New(fake.Options{}), TLS: worked})
	if _, err := dial(t, served, "one", address).Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	overwrite(t, worked, workertest.NewAuthority(t).Issue(worker.WorkerName), began.Add(time.Hour))
	if _, err := dial(t, served, "one", address).Info(t.Context()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a certificate of the former authority: %v", err)
	}
}

// overwrite gives the files of to the content of from and that time of change. Every file keeps its inode and one size.
func overwrite(t *testing.T, to, from worker.TLS, at time.Time) {
	t.Helper()
	for _, f := range [][2]string{{from.CACert, to.CACert}, {from.Cert, to.Cert}, {from.Key, to.Key}} {
		raw, err := os.ReadFile(f[0])
		if err == nil {
			err = os.WriteFile(f[1], append(raw, bytes.Repeat([]byte("\n"), 4096-len(raw))...), 0o600)
		}
		if err = errors.Join(err, os.Chtimes(f[1], at, at)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	good := workertest.NewAuthority(t).Issue(worker.WorkerName)
	other := workertest.NewAuthority(t).Issue(worker.WorkerName)
	for want, id := range map[string]worker.TLS{
		"worker.tls.ca_cert: must be the path of a file":                           {Cert: good.Cert, Key: good.Key},
		"worker.tls.key: must be a readable file":                                  {CACert: good.CACert, Cert: good.Cert, Key: filepath.Join(t.TempDir(), "none")},
		"worker.tls.ca_cert: must have certificates in PEM":                        {CACert: good.Key, Cert: good.Cert, Key: good.Key},
		"worker.tls.cert: must be a certificate in PEM that fits worker.tls.key: ": {CACert: good.CACert, Cert: good.Cert, Key: other.Key},
	} {
		_, err := worker.New(worker.Options{Backend: fake.New(fake.Options{}), TLS: id, Slots: 1})
		if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func certPool(t *testing.T, raw []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		t.Fatal("no certificates")
	}
	return pool
}
