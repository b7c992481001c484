package workers

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestExecutionsGoToTheLeastLoadedWorkerAndWaitForASlot(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		a, b := s.worker(1, fake.Options{}), s.worker(3, fake.Options{})
		p := s.pool()
		if i := info(t, p); !i.Healthy || i.Capacity != 4 {
			t.Fatalf("%+v", i)
		}
		var all []*call
		for range 4 {
			all = append(all, running(t, p, job("wait gate")))
		}
		if len(a.fake.Running()) != 1 || len(b.fake.Running()) != 3 {
			t.Errorf("running are %v and %v", a.fake.Running(), b.fake.Running())
		}
		last := start(t, p, job("print last"))
		killed := start(t, p, job("print no"))
		killed.cancel(errors.New("killed"))
		<-killed.done
		if killed.err != nil || killed.result.Status != executor.StatusKilled {
			t.Errorf("killed while it waits: %+v, %v", killed.result, killed.err)
		}
		a.fake.Release("gate")
		last.succeeds(t)
		b.fake.Release("gate")
		for _, c := range all {
			c.succeeds(t)
		}
		if got := a.fake.Runs(); len(got) != 2 || got[1] != last.job.ID {
			t.Errorf("the first worker got %v", got)
		}
	})
}

func TestAnExecutionIsTriedElsewhereOnlyIfNothingOfItHasStarted(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		// Nobody listens at the address of one worker; one is full with the work of another server.
		s.board.list1(registration{ID: "a0", Address: "127.0.0.1:1"})
		full := s.worker(1, fake.Options{})
		p := s.pool()
		other := running(t, s.poolOf("two"), job("wait gate"))
		s.n++
		good := s.worker(1, fake.Options{})
		awaittest.Until(t, "the answer of the new worker", func() bool { return info(t, p).Capacity == 2 })
		p.mu.Lock() // as before the last question
		for _, m := range p.members {
			m.others, m.err = 0, nil
			m.info.Healthy, m.info.Capacity = true, 1
			if m.ID == good.ID {
				m.used = 5 // the last choice
			}
		}
		p.mu.Unlock()
		j := job("read-stdin")
		opened := 0
		j.Stdin = &executor.Source{SizeBytes: 2, Open: func() (io.ReadCloser, error) {
			opened++
			return io.NopCloser(strings.NewReader("hi")), nil
		}}
		c := start(t, p, j)
		c.succeeds(t)
		if c.Text() != "hi" || opened != 1 || !slices.Equal(good.fake.Runs(), []string{j.ID}) || len(full.fake.Runs()) != 1 {
			t.Errorf("%q, opened %d times, ran on %v and %v", c.Text(), opened, good.fake.Runs(), full.fake.Runs())
		}
		full.fake.Release("gate")
		other.succeeds(t)
	})
}

func TestTheGroupCountIsFollowedUpAndDown(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		p := s.pool(func(c *Config) { c.SlotTimeoutSeconds = 1 })
		if i := info(t, p); i.Healthy || !strings.Contains(i.Message, "no worker is registered") {
			t.Errorf("%+v", i)
		}
		c := start(t, p, job("print no"))
		<-c.done
		if executor.CodeOf(c.err) != executor.Unavailable {
			t.Errorf("without a worker: %v", c.err)
		}
		var nodes []*node
		for n := 1; n <= 3; n++ {
			nodes = append(nodes, s.worker(2, fake.Options{}))
			awaittest.Until(t, "growth", func() bool { i := info(t, p); return i.Healthy && i.Capacity == 2*n })
		}
		var all []*call
		for range 6 {
			all = append(all, running(t, p, job("wait gate")))
		}
		late := start(t, p, job("print no"))
		<-late.done
		if e, ok := errors.AsType[*executor.Error](late.err); !ok || e.Code != executor.Exhausted || e.RetryAfter == 0 {
			t.Errorf("no slot comes free: %v", late.err)
		}
		for _, n := range nodes[1:] {
			s.board.unlist(n.ID)
		}
		awaittest.Until(t, "shrinking", func() bool { return info(t, p).Capacity == 2 })
		for _, n := range nodes {
			n.fake.Release("gate")
		}
		for _, c := range all {
			c.succeeds(t)
		}
		awaittest.Until(t, "the end of the members", func() bool { return info(t, p).Metrics["workers"] == 1 })
	})
}
