package workers

import (
	"context"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestAProgramIsFollowedWhereItsWorkerIsNow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{Capabilities: capable(attaches)})
	b := s.worker(2, fake.Options{Capabilities: capable(attaches)})
	p := s.pool()
	c := running(t, p, job("print before\nwait gate\nprint after"))
	<-c.Wrote
	at, other := a, b
	if len(b.fake.Running()) > 0 {
		at, other = b, a
	}
	at.kill()
	<-c.done
	if executor.CodeOf(c.err) != executor.Unavailable {
		t.Fatalf("%+v, %v", c.result, c.err)
	}
	attach := func(b executor.Backend) *call {
		return begin(t, c.job, func(ctx context.Context, sink executor.Sink) (executor.Result, error) {
			return b.Attach(ctx, c.job, executor.Resume{Handle: c.Handle(), Stdout: int64(len(c.Text()))}, sink)
		})
	}
	// The worker's process comes back at another address, while somebody waits for it. The server has another life, too.
	next := s.pool()
	waiting := attach(next)
	back := s.serve(at.ID, 2, at.fake.Abandon())
	s.board.list1(back.registration)
	back.fake.Release("gate")
	waiting.succeeds(t)
	if got := c.Text() + waiting.Text(); got != "before\nafter\n" {
		t.Errorf("the output is %q", got)
	}
	// It is kept until it is removed.
	attach(next).succeeds(t)
	if err := next.Remove(t.Context(), c.job.ID); err != nil {
		t.Error(err)
	}
	gone := attach(next)
	<-gone.done
	if executor.CodeOf(gone.err) != executor.NotFound {
		t.Errorf("after Remove: %v", gone.err)
	}
	if slices.Contains(other.fake.Removed(), c.job.ID) {
		t.Error("a worker that never had it was asked")
	}
}

func TestAProgramWhoseWorkerIsGoneIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{Capabilities: capable(attaches)})
	p := s.pool(func(c *Config) { c.ReturnTimeoutSeconds = 1 })
	c := running(t, p, job("hang"))
	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	a.kill()
	<-c.done
	attach := func(handle []byte) error {
		_, err := p.Attach(t.Context(), c.job, executor.Resume{Handle: handle}, workertest.NewJournal())
		return err
	}
	if err := attach(c.Handle()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("while it is registered: %v", err)
	}
	if err := p.Remove(t.Context(), c.job.ID); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("remove while it is registered: %v", err)
	}
	if !info(t, p).Capabilities.Attach {
		t.Error("the promise does not outlast a moment without workers")
	}
	s.board.unlist(a.ID)
	eventually(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 0 })
	if err := attach(c.Handle()); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("afterwards: %v", err)
	}
	if err := p.Remove(t.Context(), c.job.ID); err != nil {
		t.Errorf("remove afterwards: %v", err)
	}
	if err := attach([]byte("foreign")); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("a foreign handle: %v", err)
	}
	if _, err := p.Variables(t.Context(), "ctx-1"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("its session: %v", err)
	}
}
