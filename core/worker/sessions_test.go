package worker_test

import (
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
	if _, err := two.Attach(t.Context(), job("exe_1", ""), executor.Resume{}, workertest.NewJournal()); executor.CodeOf(err) == "" {
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
