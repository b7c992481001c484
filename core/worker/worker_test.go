package worker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestARefusalProvesThatNothingHasStarted(t *testing.T) {
	t.Parallel()
	b := withSessions()
	s, c := pair(t, b, func(o *worker.Options) { o.Slots = 1 })
	_, wait := running(t, c, job("exe_1", "wait gate"))
	_, err := c.Run(t.Context(), job("exe_2", "print no"), workertest.NewJournal())
	if !worker.Unstarted(err) || executor.CodeOf(err) != executor.Exhausted || retryAfter(err) <= 0 {
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
	_, err = c.Run(t.Context(), job("exe_3", "print no"), workertest.NewJournal())
	if !worker.Unstarted(err) || executor.CodeOf(err) == executor.Exhausted {
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
	if result, err := c.Run(t.Context(), inside, workertest.NewJournal()); err != nil || result.Status != executor.StatusSucceeded {
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

// retryAfter returns when the caller may ask again, as err says.
func retryAfter(err error) time.Duration {
	e, _ := errors.AsType[*executor.Error](err)
	if e == nil {
		return 0
	}
	return e.RetryAfter
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
	if _, err := c.Run(t.Context(), j, workertest.NewJournal()); !worker.Unstarted(err) || executor.CodeOf(err) != executor.Unavailable || retryAfter(err) <= 0 {
		t.Errorf("got %v", err)
	}
	if worker.Unstarted(executor.Errorf(executor.Unavailable, "refused by the worker: it is full")) || worker.Unstarted(nil) {
		t.Error("a text is no proof")
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
	if info.Capacity != 3 || can.LocalPath || can.HostDirectories || can.Scripts || !can.Attach || info.Details["allocation"] != "a1" ||
		info.Metrics[worker.MetricSessions] != 1 || info.Metrics[worker.MetricRunning] != 0 {
		t.Errorf("got %+v", info)
	}
	folder, script := job("exe_1", "print no"), job("exe_2", "")
	folder.Spec.HostDirectory, script.Spec.Script = t.TempDir(), "/srv/script"
	for field, here := range map[string]executor.Job{"host_directory": folder, "script": script} {
		_, err := c.Run(t.Context(), here, workertest.NewJournal())
		e, ok := errors.AsType[*executor.Error](err)
		if !ok || e.Code != executor.Unimplemented || len(e.Fields) != 1 || e.Fields[0].Field != field {
			t.Errorf("%s of the server's machine: %v", field, err)
		}
	}
}

func TestTheCapacityIsThatOfTheNarrowerBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ backend, slots, want int }{{0, 3, 3}, {2, 3, 2}, {9, 3, 3}} {
		_, client := pair(t, fake.New(fake.Options{Capacity: c.backend}), func(o *worker.Options) { o.Slots = c.slots })
		if info, err := client.Info(t.Context()); err != nil || info.Capacity != c.want {
			t.Errorf("a backend of %d with %d slots has %d, %v; want %d", c.backend, c.slots, info.Capacity, err, c.want)
		}
	}
}
