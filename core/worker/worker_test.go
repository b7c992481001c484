package worker_test

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/wire"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves b as a worker, and returns its address.
func start(t *testing.T, o worker.Options) (*worker.Server, string) {
	t.Helper()
	if o.Slots == 0 {
		o.Slots = 4
	}
	s, err := worker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, l.Addr().String()
}

// dial returns a client with the files of id, of that installation.
func dial(t *testing.T, id worker.TLS, instance, address string) *worker.Client {
	t.Helper()
	d, err := worker.NewDialer(id, "tls", instance, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pair is a worker around b and a client of it.
func pair(t *testing.T, b executor.Backend, change ...func(*worker.Options)) (*worker.Server, *worker.Client) {
	t.Helper()
	a := workertest.NewAuthority(t)
	o := worker.Options{Backend: b, TLS: a.Issue(worker.WorkerName)}
	for _, f := range change {
		f(&o)
	}
	s, address := start(t, o)
	return s, dial(t, a.Issue(worker.ServerName), "one", address)
}

func job(id, code string) executor.Job {
	return executor.Job{ID: id, Owner: "o", Attempt: 1, Spec: executor.Spec{Code: code}, Limits: executor.Limits{
		Timeout: time.Hour, MemoryBytes: 1 << 30, DiskBytes: 1 << 30, CPUShares: 1024, PIDs: 64, OutputBytes: 1 << 20, KillGrace: time.Second,
	}}
}

// journal is a Sink.
type journal struct {
	mu      sync.Mutex
	out     strings.Builder
	handle  []byte
	started chan struct{}
	// wrote gets a value for each output.
	wrote chan struct{}
}

func newJournal() *journal {
	return &journal{started: make(chan struct{}), wrote: make(chan struct{}, 100)}
}

func (j *journal) Emit(e executor.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch body := e.Body.(type) {
	case executor.Started:
		j.handle = body.Handle
		close(j.started)
	case executor.Output:
		j.out.Write(body.Data)
		j.wrote <- struct{}{}
	}
	return nil
}

func (j *journal) Artifact(*tar.Header, io.Reader) error { return nil }

// running starts a job and returns when its program has started.
func running(t *testing.T, b executor.Backend, j executor.Job) (*journal, func() (executor.Result, error)) {
	t.Helper()
	log, done := newJournal(), make(chan struct{})
	var result executor.Result
	var err error
	go func() {
		defer close(done)
		result, err = b.Run(t.Context(), j, log)
	}()
	select {
	case <-log.started:
	case <-done:
		t.Fatalf("%s did not start: %+v, %v", j.ID, result, err)
	}
	return log, func() (executor.Result, error) {
		<-done
		return result, err
	}
}

func attachable() *fake.Backend {
	can := fake.DefaultCapabilities()
	can.Attach, can.Sessions, can.LocalPath, can.HostDirectories = true, true, true, true
	return fake.New(fake.Options{Capabilities: &can})
}

func withSessions() *fake.Backend {
	can := fake.DefaultCapabilities()
	can.Sessions = true
	return fake.New(fake.Options{Capabilities: &can})
}

func TestAWorkerTakesWorkOnlyFromServers(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	b := fake.New(fake.Options{})
	_, address := start(t, worker.Options{Backend: b, TLS: a.Issue(worker.WorkerName)})
	result, err := dial(t, a.Issue(worker.ServerName), "one", address).Run(t.Context(), job("exe_good", "print hello"), newJournal())
	if err != nil || result.Status != executor.StatusSucceeded {
		t.Fatalf("a server is refused: %+v, %v", result, err)
	}
	foreign := workertest.NewAuthority(t).Issue(worker.ServerName)
	ours := a.Issue(worker.ServerName)
	foreign.CACert = ours.CACert // it trusts the worker
	for name, id := range map[string]worker.TLS{
		"of another authority": foreign, "of another worker": a.Issue(worker.WorkerName), "whose time is over": a.IssueExpired(worker.ServerName),
	} {
		_, err := dial(t, id, "one", address).Run(t.Context(), job("exe_bad", "print no"), newJournal())
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
		if _, err := wire.NewBackend(conn, nil).Run(t.Context(), job("exe_bad", "print no"), newJournal()); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a caller %s: %v", name, err)
		}
		if err := wire.NewBackend(conn, nil).Remove(t.Context(), "exe_good"); executor.CodeOf(err) != executor.Unavailable {
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
		_, err := dial(t, id, "one", address).Run(t.Context(), job("exe_bad", "print no"), newJournal())
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

func TestARefusalProvesThatNothingHasStarted(t *testing.T) {
	t.Parallel()
	b := withSessions()
	s, c := pair(t, b, func(o *worker.Options) { o.Slots = 1 })
	_, wait := running(t, c, job("exe_1", "wait gate"))
	_, err := c.Run(t.Context(), job("exe_2", "print no"), newJournal())
	if !worker.Unstarted(err) || !worker.Full(err) || executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("beyond the slots: %v", err)
	}
	b.Release("gate")
	if result, err := wait(); err != nil || result.Status != executor.StatusSucceeded {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := c.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancelCause(t.Context())
	end(errors.New("no patience"))
	if err := s.Drain(over); err == nil {
		t.Error("a drain with an open session has ended")
	}
	_, err = c.Run(t.Context(), job("exe_3", "print no"), newJournal())
	if !worker.Unstarted(err) || worker.Full(err) {
		t.Errorf("while it drains: %v", err)
	}
	if _, err = c.OpenSession(t.Context(), executor.Session{ID: "ctx-2"}); !worker.Unstarted(err) {
		t.Errorf("a session while it drains: %v", err)
	}
	if info, err := c.Info(t.Context()); err != nil || info.Healthy {
		t.Errorf("while it drains: %+v, %v", info, err)
	}
	inside := job("exe_4", "print yes")
	inside.Spec.Session = "ctx-1"
	if result, err := c.Run(t.Context(), inside, newJournal()); err != nil || result.Status != executor.StatusSucceeded {
		t.Errorf("in its open session: %+v, %v", result, err)
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	if err := c.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Error(err)
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	if got := strings.Join(b.Runs(), " "); got != "exe_1 exe_4" {
		t.Errorf("the backend got %s", got)
	}
}

func TestAWorkerThatIsNotThereHasStartedNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c := dial(t, workertest.NewAuthority(t).Issue(worker.ServerName), "one", address)
	j := job("exe_1", "print no")
	j.Stdin = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
		t.Error("the input was opened")
		return nil, io.EOF
	}}
	if _, err := c.Run(t.Context(), j, newJournal()); !worker.Unstarted(err) || worker.Full(err) || executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
	if worker.Unstarted(executor.Errorf(executor.Unavailable, "refused by the worker: it is full")) || worker.Unstarted(nil) {
		t.Error("a text is no proof")
	}
}

func TestWhatIsHandedBackIsLostAndNotKilled(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*fake.Backend{"a backend that cannot attach": withSessions(), "a backend that can attach": attachable()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := pair(t, b)
			_, wait := running(t, c, job("exe_1", "hang"))
			if _, err := c.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
				t.Fatal(err)
			}
			if err := s.HandBack(t.Context()); err != nil {
				t.Errorf("hand back: %v", err)
			}
			if result, err := wait(); executor.CodeOf(err) != executor.Unavailable || worker.Unstarted(err) {
				t.Errorf("got %+v, %v", result, err)
			}
			if len(b.Running()) > 0 || len(b.Sessions()) > 0 {
				t.Errorf("left are %v, %v", b.Running(), b.Sessions())
			}
		})
	}
}

func TestAServerThatComesBackFindsItsExecution(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	b := attachable()
	s, address := start(t, worker.Options{Backend: b, TLS: a.Issue(worker.WorkerName)})
	id := a.Issue(worker.ServerName)
	first := dial(t, id, "one", address)
	log, wait := running(t, first, job("exe_1", "print before\nwait gate\nprint after"))
	<-log.wrote
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the connection broke: %v", err)
	}
	if len(b.Running()) != 1 {
		t.Fatalf("running: %v", b.Running())
	}
	over, end := context.WithCancelCause(t.Context())
	end(errors.New("no patience"))
	_ = s.Drain(over) // a worker that drains is still the only one that has the program
	again := newJournal()
	next := dial(t, id, "one", address)
	for deadline := time.Now().Add(time.Minute); ; { // until the worker has seen the end of the connection, too
		info, err := next.Info(t.Context())
		if err == nil && info.Metrics[worker.MetricRunning] == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	done := make(chan error, 1)
	var result executor.Result
	go func() {
		var err error
		result, err = next.Attach(t.Context(), job("exe_1", ""), executor.Resume{Handle: log.handle, Stdout: int64(log.out.Len())}, again)
		done <- err
	}()
	b.Release("gate")
	if err := <-done; err != nil || result.Status != executor.StatusSucceeded || log.out.String()+again.out.String() != "before\nafter\n" {
		t.Errorf("%+v, %v, %q and %q", result, err, &log.out, &again.out)
	}
}

// The former connection has not noticed that its caller is gone, as after the loss of a network.
func TestAnAttachTakesOverFromAConnectionThatIsStillOpen(t *testing.T) {
	t.Parallel()
	b := attachable()
	_, c := pair(t, b)
	log, wait := running(t, c, job("exe_1", "wait gate\nprint after"))
	done := make(chan error, 1)
	again := newJournal()
	go func() {
		_, err := c.Attach(t.Context(), job("exe_1", ""), executor.Resume{Handle: log.handle}, again)
		done <- err
	}()
	if _, err := wait(); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the former call: %v", err)
	}
	b.Release("gate")
	if err := <-done; err != nil || again.out.String() != "after\n" {
		t.Errorf("%v, %q", err, &again.out)
	}
}

func TestAServerReachesOnlyWhatItHasStarted(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	b := withSessions()
	_, address := start(t, worker.Options{Backend: b, TLS: a.Issue(worker.WorkerName)})
	one, two := dial(t, a.Issue(worker.ServerName), "one", address), dial(t, a.Issue(worker.ServerName), "two", address)
	_, wait := running(t, one, job("exe_1", "wait gate"))
	if _, err := one.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	if err := two.Remove(t.Context(), "exe_1"); err != nil {
		t.Error(err)
	}
	if err := two.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Error(err)
	}
	if _, err := two.Run(t.Context(), job("exe_1", "print no"), newJournal()); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("its id: %v", err)
	}
	if _, err := two.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("the id of its session: %v", err)
	}
	inside := job("exe_2", "print no")
	inside.Spec.Session = "ctx-1"
	if _, err := two.Run(t.Context(), inside, newJournal()); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("in its session: %v", err)
	}
	if _, err := two.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("adopt its session: %v", err)
	}
	if _, err := two.ListFiles(t.Context(), "ctx-1", "", false); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("its files: %v", err)
	}
	if _, err := two.Attach(t.Context(), job("exe_1", ""), executor.Resume{}, newJournal()); executor.CodeOf(err) == "" {
		t.Error("attach to its execution")
	}
	b.Release("gate")
	if result, err := wait(); err != nil || result.Status != executor.StatusSucceeded {
		t.Errorf("%+v, %v", result, err)
	}
	// It is there for its own server, also for the next life of it, although this backend adopts nothing by itself.
	if _, err := one.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); err != nil {
		t.Errorf("adopt: %v", err)
	}
	if _, err := one.WriteFile(t.Context(), "ctx-1", "a.txt", 1, strings.NewReader("a")); err != nil {
		t.Error(err)
	}
	if err := one.CloseSession(t.Context(), "ctx-1"); err != nil || len(b.Sessions()) > 0 {
		t.Errorf("%v, %v", err, b.Sessions())
	}
}

func TestASessionThatTheBackendHasLostIsForgotten(t *testing.T) {
	t.Parallel()
	b := withSessions()
	_, c := pair(t, b)
	if _, err := c.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadFile(t.Context(), "ctx-1", "none"); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	if _, err := c.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); err != nil {
		t.Errorf("a missing file is not a missing session: %v", err)
	}
	b.DropSession("ctx-1")
	if _, err := c.Variables(t.Context(), "ctx-1"); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	if _, err := c.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("adopt a lost session: %v", err)
	}
}

func TestInfoIsThatOfAnotherMachine(t *testing.T) {
	t.Parallel()
	_, c := pair(t, attachable(), func(o *worker.Options) { o.Slots, o.Details = 3, map[string]string{"allocation": "a1"} })
	if _, err := c.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	can := info.Capabilities
	if info.Capacity != 3 || can.LocalPath || can.HostDirectories || !can.Attach || info.Details["allocation"] != "a1" ||
		info.Metrics[worker.MetricSessions] != 1 || info.Metrics[worker.MetricRunning] != 0 {
		t.Errorf("got %+v", info)
	}
	here := job("exe_1", "print no")
	here.Spec.HostDirectory = t.TempDir()
	_, err = c.Run(t.Context(), here, newJournal())
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || e.Code != executor.Unimplemented || len(e.Fields) != 1 || e.Fields[0].Field != "host_directory" {
		t.Errorf("a folder of the server's machine: %v", err)
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
