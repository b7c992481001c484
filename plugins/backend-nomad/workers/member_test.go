package workers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestAWorkerThatDiesLosesWhatItHasAndGetsNothingNew(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		sent := make(chan struct{})
		a := s.worker(2, fake.Options{Hook: func(ctx context.Context, j executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
			if j.Spec.Code != "silent" {
				return run(ctx, j, sink)
			}
			close(sent)
			<-ctx.Done()
			return executor.Result{}, context.Cause(ctx)
		}})
		p := s.pool()
		begun := running(t, p, job("hang"))
		// This one has been sent, and has not said anything: it may have started.
		silent := start(t, p, job("silent"))
		<-sent
		b := s.worker(2, fake.Options{})
		awaittest.Until(t, "the second worker's answer", func() bool { return info(t, p).Capacity == 4 })
		a.kill()
		for _, c := range []*call{begun, silent} {
			<-c.done
			if executor.CodeOf(c.err) != executor.Unavailable || !strings.Contains(c.err.Error(), "worker w1") {
				t.Errorf("%+v, %v", c.result, c.err)
			}
		}
		if len(b.fake.Runs()) > 0 {
			t.Errorf("it was run again: %v", b.fake.Runs())
		}
		for range 5 {
			runs(t, p, "print on")
		}
		awaittest.Until(t, "the end of its slots", func() bool { return info(t, p).Capacity == 2 })
		if i := info(t, p); !i.Healthy || !slices.ContainsFunc(i.Warnings, func(w string) bool { return strings.Contains(w, "w1") }) {
			t.Errorf("%+v", i)
		}
		s.board.unlist(a.ID)
		awaittest.Until(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 1 })
	})
}

func TestAWorkerThatDrainsKeepsItsSessionsAndGetsNothingNew(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		a := s.worker(2, fake.Options{})
		p := s.pool()
		if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
			t.Fatal(err)
		}
		begun := running(t, p, job("wait gate"))
		b := s.worker(2, fake.Options{})
		awaittest.Until(t, "the second worker's answer", func() bool { return info(t, p).Capacity == 4 })
		drained := make(chan error, 1)
		go func() { drained <- a.server.Drain(t.Context()) }()
		for range 4 {
			runs(t, p, "print on") // also before p has heard of it
		}
		s.board.unlist(a.ID) // Nomad does so at once
		awaittest.Until(t, "the end of the registration", func() bool { return info(t, p).Capacity == 2 })
		inside := start(t, p, inSession("ctx-1", "set x 1\nget x"))
		inside.succeeds(t)
		if len(b.fake.Runs()) < 4 || !slices.Contains(a.fake.Runs(), inside.job.ID) {
			t.Errorf("they ran on %v and %v", a.fake.Runs(), b.fake.Runs())
		}
		a.fake.Release("gate")
		begun.succeeds(t)
		if err := p.CloseSession(t.Context(), "ctx-1"); err != nil {
			t.Error(err)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		awaittest.Until(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 1 })
	})
}

func TestARegistryThatIsAwayChangesNothing(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.worker(2, fake.Options{})
		p := s.pool()
		s.board.fail(errors.New("no leader"))
		asked := func() int { s.board.mu.Lock(); defer s.board.mu.Unlock(); return s.board.asked }
		before := asked()
		awaittest.Until(t, "another question", func() bool { return asked() > before+1 })
		runs(t, p, "print on")
		if _, err := newPool(t.Context(), p.config, pluginConfigure(), s.board, s.net.dial); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a start without a registry: %v", err)
		}
		s.worker(2, fake.Options{})
		s.board.fail(nil)
		awaittest.Until(t, "the second worker", func() bool { return info(t, p).Capacity == 4 })
	})
}
