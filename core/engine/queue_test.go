package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestTheBoundsOfTheQueueAreExact(t *testing.T) {
	t.Parallel()
	reserve := func(q *queue, owner, backend string, kind startKind) *place {
		p, _ := q.reserve(owner, backend, kind)
		return p
	}
	t.Run("an owner", func(t *testing.T) {
		t.Parallel()
		q := newQueue(10, 10, 2)
		first := reserve(q, "a", "x", startNow)
		if reserve(q, "a", "x", startLater) == nil || reserve(q, "a", "x", startNow) != nil || reserve(q, "b", "x", startNow) == nil {
			t.Error("an owner's bound of 2 is not 2, or holds for another owner")
		}
		q.release(first)
		q.release(first)
		if reserve(q, "a", "x", startNow) == nil || reserve(q, "a", "x", startNow) != nil {
			t.Error("a place that was given back twice is not one place")
		}
	})
	t.Run("what waits", func(t *testing.T) {
		t.Parallel()
		q := newQueue(1, 2, 0)
		for i, want := range []bool{true, true, true, false} {
			if got := reserve(q, "a", "x", startNow) != nil; got != want {
				t.Errorf("with %d before it a place is given: %t, want %t", i, got, want)
			}
		}
	})
	// Where nothing may wait, a place whose input is still on its way needs a slot that is free on its own backend too.
	t.Run("where nothing waits", func(t *testing.T) {
		t.Parallel()
		q := newQueue(3, 0, 0)
		q.capacity["x"] = 1
		if reserve(q, "a", "x", startLater) == nil {
			t.Fatal("there is no place although all is free")
		}
		if reserve(q, "a", "x", startLater) != nil {
			t.Error("two inputs are taken in for the one slot of a backend")
		}
		first, second, third := reserve(q, "a", "y", startLater), reserve(q, "a", "y", startLater), reserve(q, "a", "y", startLater)
		if first == nil || second == nil || third != nil {
			t.Error("the slots of another backend are not those that are left")
		}
	})
	t.Run("an input that was on its way when its run paused", func(t *testing.T) {
		t.Parallel()
		q := newQueue(2, 10, 0)
		q.capacity["x"] = 2
		p := reserve(q, "a", "x", startArriving)
		if p.state != granted || reserve(q, "a", "x", startArriving).state == granted {
			t.Fatal("not exactly one of two slots is held by a sender")
		}
		q.pause(p)
		if q.arriving != 0 || q.at("x").arriving != 0 {
			t.Errorf("%d senders hold a slot, %d on the backend, after a pause", q.arriving, q.at("x").arriving)
		}
		q.arrived(p)
		q.release(p)
		if q.arriving != 0 || q.at("x").arriving != 0 || q.running != 0 || q.at("x").running != 0 {
			t.Errorf("left: %+v", q)
		}
	})
	t.Run("one that goes first", func(t *testing.T) {
		t.Parallel()
		q := newQueue(1, 10, 0)
		running := reserve(q, "a", "x", startNow)
		var waiting []*place
		for range 3 {
			p := reserve(q, "a", "x", startLater)
			q.wait(p, len(waiting) == 2)
			waiting = append(waiting, p)
		}
		q.release(running)
		var order []int
		for p := q.next(); p != nil; p = q.next() {
			order = append(order, slices.Index(waiting, p))
			q.release(p)
		}
		if !slices.Equal(order, []int{2, 0, 1}) {
			t.Errorf("the order is %v, want the last one first", order)
		}
	})
	t.Run("nobody passes who could start", func(t *testing.T) {
		t.Parallel()
		q := newQueue(2, 10, 0)
		q.capacity["x"] = 1
		q.wait(reserve(q, "a", "x", startLater), false)
		for _, backend := range []string{"x", "y"} {
			if p := reserve(q, "b", backend, startNow); p.state == granted {
				t.Errorf("one for %s passes one that waits and could start", backend)
			}
		}
		if p := q.next(); p == nil || p.owner != "a" {
			t.Fatal("the one that waits is not the next")
		}
		q.wait(reserve(q, "a", "x", startLater), false) // x has no room any more
		if p := reserve(q, "b", "y", startNow); p.state != granted {
			t.Error("one waits for a slot that nobody else could take")
		}
	})
	t.Run("one that is taken", func(t *testing.T) {
		t.Parallel()
		q := newQueue(1, 10, 0)
		p := q.adopt("a", "x")
		q.take(p)
		q.take(p)
		if q.running != 1 || q.queued != 0 || q.at("x").running != 1 || q.at("x").queued != 0 {
			t.Errorf("after it was taken twice: %+v", q)
		}
		if q.next() != nil || q.room("a", "x") {
			t.Error("there is room beside what was taken")
		}
	})
}

func TestHowSoonToTryAgainFollowsFromTheQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, test := range []struct {
			average       time.Duration
			queued, slots int
			want          time.Duration
		}{
			{0, 0, 2, time.Second},
			{10 * time.Second, 0, 1, 10 * time.Second},
			{10 * time.Second, 3, 2, 20 * time.Second},
			{10 * time.Second, 100, 2, time.Minute},
			{1400 * time.Millisecond, 0, 1, time.Second},
		} {
			r.average, r.queue.queued, r.queue.slots = test.average, test.queued, test.slots
			if got := r.retryAfter(); got != test.want {
				t.Errorf("with an average of %s, %d waiting and %d slots: %s, want %s", test.average, test.queued, test.slots, got, test.want)
			}
		}
		r.average, r.queue.queued, r.queue.slots = 0, 0, 2
		r.learn(16 * time.Second)
		r.learn(0)
		if r.average != 15*time.Second {
			t.Errorf("the average of 16 s and then 0 s is %s, want 15 s", r.average)
		}
		r.average = 0
	})
}

func TestTheTimeThatRunsTakeSaysHowSoonToTryAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1}}})
		r.result(r.submit(t.Context(), "sleep 20s").ID)
		r.submit(t.Context(), "hang")
		waiting := r.submit(t.Context(), "exit 0", durable)
		_ = must(r.Cancel(t.Context(), waiting.ID)) // it has held no slot
		r.submit(t.Context(), "exit 0", durable)
		for name, err := range map[string]error{"Submit": errOf(r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})), "Admit": r.Admit(t.Context())} {
			wantCode(t, err, executor.Exhausted)
			if full, _ := errors.AsType[*executor.Error](err); full.RetryAfter != 40*time.Second {
				t.Errorf("%s: try again after %s, want 40s", name, full.RetryAfter)
			}
		}
	})
}

func errOf(_ executor.Execution, err error) error { return err }

func TestAnEndIsWrittenSoonAfterTheStoreIsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		r := newRig(t, setup{options: Options{Store: store}})
		x := r.submit(t.Context(), "sleep 1s")
		store.set(func(op string, events ...executor.Event) error {
			if op == "append" && events[0].Body.Kind() == executor.KindFinished {
				return executor.Errorf(executor.Unavailable, "away")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		store.set(nil)
		back := time.Now()
		r.result(x.ID)
		if waited := time.Since(back); waited > 10*time.Second {
			t.Errorf("it was written %s after the store was back", waited)
		}
	})
}

// Of an Execution that was lost nobody knows what its backend still has.
func TestWhatWasLostIsRemovedFromItsBackend(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		for _, ended := range []error{nil, executor.Errorf(executor.Unavailable, "it broke off")} {
			inBubble(t, func(t *testing.T) {
				caps := fake.DefaultCapabilities()
				caps.Attach = keeps
				r := newRig(t, setup{fake: fake.Options{Capabilities: &caps, Hook: func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
					if err := s.Emit(executor.Event{Body: executor.Started{}}); err != nil || ended != nil {
						return executor.Result{}, ended
					}
					return succeeded, nil
				}}})
				x := r.submit(t.Context(), "exit 0")
				r.result(x.ID)
				synctest.Wait()
				removed := slices.Contains(r.fake.Removed(), x.ID)
				if want := keeps || ended != nil; removed != want {
					t.Errorf("attach %t, error %v: removed %t, want %t", keeps, ended, removed, want)
				}
			})
		}
	}
}
