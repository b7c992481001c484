package app

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

// addresses is a log that tells where a worker listens.
type addresses struct{ address chan string }

func (a *addresses) Enabled(context.Context, slog.Level) bool { return true }
func (a *addresses) WithAttrs([]slog.Attr) slog.Handler       { return a }
func (a *addresses) WithGroup(string) slog.Handler            { return a }
func (a *addresses) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "worker is listening" {
		r.Attrs(func(attr slog.Attr) bool {
			if attr.Key == "address" {
				a.address <- attr.Value.String()
			}
			return true
		})
	}
	return nil
}

// workerConfig returns the configuration of a worker around the fake.
func workerConfig(t *testing.T, id worker.TLS) config.Config {
	t.Helper()
	c := fakeConfig(t)
	c.Worker.Bind = "127.0.0.1:0"
	c.Worker.TLS = config.WorkerTLS(id)
	c.Worker.TLS.PeerName = worker.ServerName
	return c
}

// working starts a worker. stop tells it to stop, and end waits for what Worker returns.
func working(t *testing.T, c config.Config) (address string, stop func(), end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	log, done := &addresses{make(chan string, 1)}, make(chan error, 1)
	go func() { done <- Worker(ctx, WorkerOptions{Config: c, Bundle: testBundle(), Log: slog.New(log)}) }()
	select {
	case address = <-log.address:
	case err := <-done:
		cancel(nil)
		t.Fatalf("worker ended: %v", err)
	}
	return address, func() { cancel(errors.New("stop")) }, func() error { return <-done }
}

// eventLog is a Sink.
type eventLog struct{ started chan struct{} }

func (l *eventLog) Emit(e executor.Event) error {
	if _, ok := e.Body.(executor.Started); ok {
		close(l.started)
	}
	return nil
}
func (l *eventLog) Artifact(*tar.Header, io.Reader) error { return nil }

func workerJob(id, code string) executor.Job {
	return executor.Job{ID: id, Owner: "o", Attempt: 1, Spec: executor.Spec{Code: code}, Limits: executor.Limits{
		Timeout: time.Hour, MemoryBytes: 1 << 30, DiskBytes: 1 << 30, CPUShares: 1024, PIDs: 64, OutputBytes: 1 << 20, KillGrace: time.Second,
	}}
}

func TestAWorkerDrainsAndLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_RUNTIME_DIR", temp)
	t.Setenv("NOMAD_ALLOC_ID", "alloc-1")
	t.Setenv("NOMAD_ALLOC_NAME", "job.group[0]")
	a := workertest.NewAuthority(t)
	dialer, err := worker.NewDialer(a.Issue(worker.ServerName), "tls", "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		patience float64
		code     string
		want     executor.Status
		lost     bool
	}{
		"what ends in time":      {3600, "sleep 300ms", executor.StatusSucceeded, false},
		"what does not":          {0.1, "hang", executor.StatusUnknown, true},
		"what ignores the signs": {0, "ignore-term\nhang", executor.StatusUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := workerConfig(t, a.Issue(worker.WorkerName))
			c.Worker.DrainTimeoutSeconds, c.Worker.MaxConcurrent = test.patience, 7
			address, stop, end := working(t, c)
			client, err := dialer.Dial(address)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			info, err := client.Info(t.Context())
			if err != nil || info.Capacity != 7 || info.Type != "fake" || info.Details["allocation"] != "alloc-1" || info.Details["worker"] != "job.group[0]" || info.Details["pid"] == "" {
				t.Errorf("%+v, %v", info, err)
			}
			log := &eventLog{make(chan struct{})}
			type answer struct {
				result executor.Result
				err    error
			}
			answers := make(chan answer, 1)
			go func() {
				result, err := client.Run(t.Context(), workerJob("exe_1", test.code), log)
				answers <- answer{result, err}
			}()
			<-log.started
			stop()
			got := <-answers
			if got.result.Status != test.want || (executor.CodeOf(got.err) == executor.Unavailable) != test.lost || worker.Unstarted(got.err) {
				t.Errorf("%+v, %v", got.result, got.err)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(temp, prefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestAWorkerSaysWhyItCannotStart(t *testing.T) {
	good := workertest.NewAuthority(t).Issue(worker.WorkerName)
	for want, change := range map[string]func(*config.Config){
		"worker.tls.ca_cert: must be the path of a file":                func(c *config.Config) { c.Worker.TLS = config.WorkerTLS{} },
		"worker.tls.key: must be a readable file":                       func(c *config.Config) { c.Worker.TLS.Key = "/no/such/file" },
		"backend: must be a backend that runs programs on this machine": func(c *config.Config) { c.Backends["fake"] = config.Backend{Type: "nomad"} },
		"worker.bind: ": func(c *config.Config) { c.Worker.Bind = "256.0.0.1:1" },
		"data_dir: ":    func(c *config.Config) { c.DataDir = "/dev/null/x" },
		"unknown field": func(c *config.Config) { c.Backends["fake"] = config.Backend{Options: []byte(`{"x":1}`)} },
	} {
		c := workerConfig(t, good)
		change(&c)
		err := Worker(t.Context(), WorkerOptions{Config: c, Bundle: testBundle(), Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheDoctorLooksAtTheCertificatesOfAWorker(t *testing.T) {
	a := workertest.NewAuthority(t)
	if list := WorkerFindings(fakeConfig(t)); list != nil {
		t.Errorf("without a worker: %+v", list)
	}
	broken := a.Issue(worker.WorkerName)
	if err := os.WriteFile(broken.Cert, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, test := range map[string]struct {
		id    worker.TLS
		level backend.Level
	}{
		"the certificate ends at": {a.Issue(worker.WorkerName), backend.LevelWarn}, // a day is left
		"must be a certificate":   {broken, backend.LevelError},
		"the certificate ends":    {a.IssueExpired(worker.WorkerName), backend.LevelError},
		"has no DNS name":         {a.Issue("elsewhere"), backend.LevelWarn},
	} {
		list := WorkerFindings(workerConfig(t, test.id))
		if len(list) != 1 || list[0].Level != test.level || !strings.Contains(list[0].Message, says) || list[0].Remedy == "" {
			t.Errorf("%s: %+v", says, list)
		}
	}
}
