package workers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// poolWith is a Pool of these members. Nobody asks them.
func poolWith(all ...*member) *Pool {
	p := &Pool{config: Default(), members: map[string]*member{}, sessions: map[string]string{}, changed: make(chan struct{})}
	for _, m := range all {
		p.members[m.ID] = m
		m.soon, m.end = make(chan struct{}, 1), func(error) {}
		for id := range m.sessions {
			p.sessions[id] = m.ID
		}
	}
	return p
}

// A place that comes free wakes those who wait for one. They would get it late if they waited for the next question.
func TestWhatFreesAPlaceGivesItToAWaitingExecutionAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		only string
		free func(p *Pool, m *member)
		code executor.Code
	}{
		"an end":                            {"", func(p *Pool, m *member) { p.release(m) }, ""},
		"an end on the worker of a session": {"a", func(p *Pool, m *member) { p.release(m) }, ""},
		"the end of the session's worker": {"a", func(p *Pool, m *member) {
			m.running, m.listed = 0, false
			p.drop(m)
		}, executor.NotFound},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := idle("a", func(m *member) { m.info.Capacity = 1 })
			p := poolWith(m)
			if _, err := p.lease(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := p.lease(t.Context(), c.only)
				ended <- err
			}()
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatalf("%s: it did not wait: %v", name, <-ended)
			}
			begin := time.Now()
			c.free(p, m)
			if err := <-ended; executor.CodeOf(err) != c.code || time.Since(begin) != 0 {
				t.Errorf("%s: after %s: %v", name, time.Since(begin), err)
			}
		})
	}
}

// A worker that is not registered any more goes when nothing of ours can be on it.
func TestAWorkerThatDrainsGoesWhenItHasNothingOfOurs(t *testing.T) {
	t.Parallel()
	session := func(m *member) { m.sessions = map[string]bool{"ctx-1": true} }
	away := func(m *member) { session(m); m.err = errors.New("away") }
	back := Default().returnTimeout()
	for name, c := range map[string]struct {
		change func(m *member)
		since  time.Duration
		goes   bool
	}{
		"nothing":                                   {nil, 0, true},
		"an execution":                              {func(m *member) { m.running = 1 }, 24 * time.Hour, false},
		"a session and nothing beside it":           {session, 24 * time.Hour, false},
		"a session, and no answer for a moment":     {away, back - time.Second, false},
		"a session, and no answer for too long":     {away, back, true},
		"an execution, and no answer for too long":  {func(m *member) { away(m); m.running = 1 }, back, false},
		"nothing, but it was registered once again": {func(m *member) { m.listed = true }, 24 * time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := idle("a", c.change)
			m.listed, m.since = m.listed && name == "nothing, but it was registered once again", time.Now()
			p := poolWith(m)
			time.Sleep(c.since)
			p.drop(m)
			if gone := len(p.members) == 0; gone != c.goes || gone && len(p.sessions) > 0 {
				t.Errorf("%s: gone %v, and sessions %v", name, gone, p.sessions)
			}
		})
	}
}

func TestTheOnlySessionOfAWorkerOutlivesItsRegistration(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{})
	p := s.pool()
	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	m := p.members[a.ID]
	p.mu.Unlock()
	s.board.unlist(a.ID)
	awaittest.Until(t, "the end of the registration", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return !m.listed })
	p.drop(m) // as after the next question
	inside := start(t, p, inSession("ctx-1", "set x 1\nget x"))
	inside.succeeds(t)
	if err := p.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Error(err)
	}
	awaittest.Until(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 0 })
}

// Another server, or an earlier process of this one, may have started the execution. A worker that runs it refuses it as conflict.
func TestAnExecutionThatRunsOnAWorkerIsStartedOnNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	busy := s.worker(2, fake.Options{})
	p := s.pool()
	beside := running(t, p, job("wait gate")) // makes the other worker the first choice
	first := s.worker(20, fake.Options{})
	awaittest.Until(t, "the answer of the new worker", func() bool { return info(t, p).Capacity == 22 })
	j := job("wait gate")
	p.mu.Lock()
	known := p.members[first.ID].client
	p.mu.Unlock()
	c := begin(t, j, func(ctx context.Context, sink executor.Sink) (executor.Result, error) { return known.Run(ctx, j, sink) })
	<-c.Started
	second := j
	second.Spec.Code = "print no"
	again := start(t, p, second)
	awaittest.Closed(t, "the end of the second start", again.done)
	if err := again.err; executor.CodeOf(err) != executor.Conflict {
		t.Errorf("started again: %+v, %v", again.result, err)
	}
	if got := busy.fake.Runs(); !slices.Equal(got, []string{beside.job.ID}) {
		t.Errorf("the other worker got %v", got)
	}
	for _, n := range []*node{busy, first} {
		n.fake.Release("gate")
	}
	beside.succeeds(t)
	c.succeeds(t)
}
