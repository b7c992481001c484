package worker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestWhatIsHandedBackIsLostAndNotKilled(t *testing.T) {
	t.Parallel()
	can := fake.DefaultCapabilities()
	can.Sessions = true
	failing := fake.New(fake.Options{Capabilities: &can, Hook: func(ctx context.Context, j executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
		_, _ = run(ctx, j, s)
		return executor.Result{}, executor.Errorf(executor.Internal, "its end was not orderly")
	}})
	for name, b := range map[string]*fake.Backend{
		"a backend that cannot attach": withSessions(), "a backend that can attach": attachable(), "a backend that fails": failing,
	} {
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
			if _, err := c.Run(t.Context(), job("exe_2", "print no"), workertest.NewJournal()); !worker.Unstarted(err) {
				t.Errorf("a run after it: %v", err)
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
	<-log.Wrote
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
	again := workertest.NewJournal()
	next := dial(t, id, "one", address)
	awaittest.Until(t, "the worker's sight of the end of the connection", func() bool {
		info, err := next.Info(t.Context())
		return err == nil && info.Metrics[worker.MetricRunning] == 0
	})
	done := make(chan error, 1)
	var result executor.Result
	go func() {
		var err error
		result, err = next.Attach(t.Context(), job("exe_1", ""), executor.Resume{Handle: log.Handle(), Stdout: int64(len(log.Text()))}, again)
		done <- err
	}()
	b.Release("gate")
	if err := <-done; err != nil || result.Status != executor.StatusSucceeded || log.Text()+again.Text() != "before\nafter\n" {
		t.Errorf("%+v, %v, %q and %q", result, err, log.Text(), again.Text())
	}
}

// The former connection has not noticed that its caller is gone, as after the loss of a network.
func TestAnAttachTakesOverFromAConnectionThatIsStillOpen(t *testing.T) {
	t.Parallel()
	b := attachable()
	_, c := pair(t, b)
	log, wait := running(t, c, job("exe_1", "wait gate\nprint after"))
	done := make(chan error, 1)
	again := workertest.NewJournal()
	go func() {
		_, err := c.Attach(t.Context(), job("exe_1", ""), executor.Resume{Handle: log.Handle()}, again)
		done <- err
	}()
	if _, err := wait(); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the former call: %v", err)
	}
	b.Release("gate")
	if err := <-done; err != nil || again.Text() != "after\n" {
		t.Errorf("%v, %q", err, again.Text())
	}
}
