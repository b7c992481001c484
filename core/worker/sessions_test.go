package worker_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestAServerReachesOnlyWhatItHasStarted(t *testing.T) {
	t.Parallel()
	a := workertest.NewAuthority(t)
	b := withSessions()
	_, address := start(t, worker.Options{Backend: b, TLS: a.Issue(worker.WorkerName), Slots: 1}) // a full worker says conflict, not exhausted
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
	if _, err := two.Run(t.Context(), job("exe_1", "print no"), workertest.NewJournal()); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("its id: %v", err)
	}
	if _, err := two.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("the id of its session: %v", err)
	}
	inside := job("exe_2", "print no")
	inside.Spec.Session = "ctx-1"
	if _, err := two.Run(t.Context(), inside, workertest.NewJournal()); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("in its session: %v", err)
	}
	if _, err := two.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("adopt its session: %v", err)
	}
	if _, err := two.ListFiles(t.Context(), "ctx-1", "", false); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("its files: %v", err)
	}
	if _, err := two.Attach(t.Context(), job("exe_1", ""), executor.Resume{}, workertest.NewJournal()); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("attach to its execution: %v", err)
	}
	b.Release("gate")
	if result, err := wait(); err != nil || result.Status != executor.StatusSucceeded {
		t.Errorf("%+v, %v", result, err)
	}
	// It is there for its own server, also for the next life of it, although this backend adopts nothing by itself.
	if _, err := one.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); err != nil {
		t.Errorf("adopt: %v", err)
	}
	if _, err := one.WriteFile(t.Context(), "ctx-1", executor.File{Path: "a.txt", SizeBytes: 1}, strings.NewReader("a")); err != nil {
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
	for name, call := range map[string]func() error{
		"a tool": func() error { _, err := c.Variables(t.Context(), "ctx-1"); return err },
		"a run": func() error {
			inside := job("exe_1", "print no")
			inside.Spec.Session = "ctx-1"
			_, err := c.Run(t.Context(), inside, workertest.NewJournal())
			return err
		},
	} {
		b.DropSession("ctx-1")
		if err := call(); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); executor.CodeOf(err) != executor.Unimplemented {
			t.Errorf("adopt a session after %s has shown that it is lost: %v", name, err)
		}
		if _, err := c.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
			t.Error(err)
		}
	}
}

// sessionsOf returns the number of sessions that the worker of c has registered.
func sessionsOf(t *testing.T, c *worker.Client) float64 {
	t.Helper()
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.Metrics[worker.MetricSessions]
}

func TestAnAdoptedSessionIsHeldLikeAnOpenedOne(t *testing.T) {
	t.Parallel()
	b := attachable()
	s := executor.Session{ID: "ctx-1", Spec: executor.Spec{Requirements: "good"}}
	opened, err := b.OpenSession(t.Context(), s) // by a former life of the worker
	if err != nil {
		t.Fatal(err)
	}
	_, c := pair(t, b)
	for range 2 { // the second time it is held
		adopted, err := c.AdoptSession(t.Context(), s, opened.Handle)
		if err != nil || !reflect.DeepEqual(adopted, opened) || sessionsOf(t, c) != 1 {
			t.Errorf("%+v, %v, %v sessions; want %+v", adopted, err, sessionsOf(t, c), opened)
		}
	}
	if err := c.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Error(err)
	}
	if opened, err = c.OpenSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if adopted, err := c.AdoptSession(t.Context(), s, nil); err != nil || !reflect.DeepEqual(adopted, opened) {
		t.Errorf("a session of this life: %+v, %v; want %+v", adopted, err, opened)
	}
}

func TestASessionThatDidNotCloseIsStillHeld(t *testing.T) {
	t.Parallel()
	b := withSessions()
	_, c := pair(t, b)
	if _, err := c.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	b.SetDown(executor.Errorf(executor.Unavailable, "not now"))
	if err := c.CloseSession(t.Context(), "ctx-1"); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("close: %v", err)
	}
	b.SetDown(nil)
	if n := sessionsOf(t, c); n != 1 {
		t.Errorf("%v sessions are held", n)
	}
	if err := c.CloseSession(t.Context(), "ctx-1"); err != nil || sessionsOf(t, c) != 0 {
		t.Errorf("close again: %v, %v sessions", err, sessionsOf(t, c))
	}
}
