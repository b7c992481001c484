package worker_test

import (
	"net"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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

// running starts a job and returns when its program has started.
func running(t *testing.T, b executor.Backend, j executor.Job) (*workertest.Journal, func() (executor.Result, error)) {
	t.Helper()
	log, done := workertest.NewJournal(), make(chan struct{})
	var result executor.Result
	var err error
	go func() {
		defer close(done)
		result, err = b.Run(t.Context(), j, log)
	}()
	select {
	case <-log.Started:
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
	can.Attach, can.Sessions, can.LocalPath, can.HostDirectories, can.Scripts = true, true, true, true, true
	return fake.New(fake.Options{Capabilities: &can})
}

func withSessions() *fake.Backend {
	can := fake.DefaultCapabilities()
	can.Sessions = true
	return fake.New(fake.Options{Capabilities: &can})
}
