package workers

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestAProgramIsFollowedWhereItsWorkerIsNow(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
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
	})
}

func TestAProgramWhoseWorkerIsGoneIsLost(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
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
		awaittest.Until(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 0 })
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
	})
}

func TestOnlyAHandleWithAWorkerIsOfThisBackend(t *testing.T) {
	t.Parallel()
	raw, err := handle{"w1", []byte("inner")}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{string(raw): true, "{}": false, `{"job":"x"}`: false, "inner": false, "": false} {
		if h, ok := decodeHandle([]byte(text)); ok != want || ok && (h.Worker != "w1" || string(h.Inner) != "inner") {
			t.Errorf("%q: %+v, %v", text, h, ok)
		}
	}
}

// eventsOf is a Sink that keeps the handles of programs. Each call returns the next of errs.
type eventsOf struct {
	executor.Sink
	errs    []error
	handles [][]byte
}

func (s *eventsOf) Emit(e executor.Event) error {
	if started, ok := e.Body.(executor.Started); ok {
		s.handles = append(s.handles, started.Handle)
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

// TestASinkKnowsWhatHasCome also checks that the first error counts, and that a program without a handle stays without one.
func TestASinkKnowsWhatHasCome(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	inner := &eventsOf{errs: []error{nil, first, second}}
	s := &placedSink{Sink: inner, worker: "w1"}
	if err := s.Trail(executor.Event{Body: executor.Started{}}); err != nil || !s.touched || s.err != nil {
		t.Errorf("after what trails: touched %v, %v, %v", s.touched, s.err, err)
	}
	for _, want := range []error{first, second} {
		if err := s.Emit(executor.Event{Body: executor.Started{}}); !errors.Is(err, want) || !errors.Is(s.err, first) {
			t.Errorf("%v, and the first error is %v", err, s.err)
		}
	}
	for _, h := range inner.handles {
		if len(h) > 0 {
			t.Errorf("a program that cannot be followed has the handle %q", h)
		}
	}
}

func TestThePlacesOfTheOldestExecutionsAreForgotten(t *testing.T) {
	t.Parallel()
	var p places
	p.add("first", "a")
	p.add("first", "b")
	for n := range maxPlaces - 1 {
		p.add(strconv.Itoa(n), "a")
	}
	if workers, ok := p.of("first"); !ok || !slices.Equal(workers, []string{"a", "b"}) {
		t.Errorf("%q, %v", workers, ok)
	}
	p.add("last", "a")
	if _, ok := p.of("first"); ok {
		t.Error("more than maxPlaces are remembered")
	}
	if _, ok := p.of("0"); !ok || len(p.byID) != maxPlaces || len(p.order) != maxPlaces {
		t.Errorf("%d Executions are remembered, want %d", len(p.byID), maxPlaces)
	}
}
