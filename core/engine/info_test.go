package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// growing is a backend whose capacity changes.
type growing struct {
	*fake.Backend
	capacity atomic.Int64
}

func (b *growing) Info(ctx context.Context) (executor.Info, error) {
	info, err := b.Backend.Info(ctx)
	info.Capacity = int(b.capacity.Load())
	return info, err
}

func TestWhatWaitsStartsWhenItsBackendGrows(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		b := &growing{Backend: fake.New(fake.Options{})}
		b.capacity.Store(1)
		r := newRig(t, setup{backend: b, options: Options{Engine: config.Engine{MaxConcurrent: 4, MaxQueued: 10}}})
		runs := func() int {
			synctest.Wait()
			return len(b.Running())
		}
		var gates []string
		for _, gate := range []string{"one", "two", "three"} {
			gates = append(gates, gate)
			r.submit(t.Context(), "wait "+gate)
		}
		if n := runs(); n != 1 {
			t.Fatalf("%d run", n)
		}
		b.capacity.Store(2)
		time.Sleep(2 * infoFresh)
		if n := runs(); n != 2 {
			t.Errorf("%d run after the backend has grown", n)
		}
		b.capacity.Store(1)
		time.Sleep(2 * infoFresh)
		synctest.Wait()
		b.Release(gates[0])
		if n := runs(); n != 1 {
			t.Errorf("%d run after the backend has shrunk", n)
		}
		for _, gate := range slices.Backward(gates) {
			b.Release(gate)
		}
	})
}

// troubled is a backend whose Info may fail.
type troubled struct {
	*fake.Backend
	fails atomic.Bool
}

func (b *troubled) Info(ctx context.Context) (executor.Info, error) {
	if b.fails.Load() {
		return executor.Info{}, executor.Errorf(executor.Unavailable, "no answer")
	}
	return b.Backend.Info(ctx)
}

// A healthy answer is used for a while, and any other only for moments: the first request after a recovery succeeds.
func TestHowLongAnAnswerOfABackendCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after func(b *troubled)
		quiet         time.Duration
		want          executor.Code
	}{
		"ill, and well again":   {func(b *troubled) { b.SetHealth("no disk") }, func(b *troubled) { b.SetHealth("") }, infoFresh, ""},
		"ill, well for long":    {func(b *troubled) { b.SetHealth("no disk") }, func(b *troubled) { b.SetHealth("") }, infoStale, ""},
		"down, and back again":  {func(b *troubled) { b.fails.Store(true) }, func(b *troubled) { b.fails.Store(false) }, infoFailed, ""},
		"well, and ill for now": {func(*troubled) {}, func(b *troubled) { b.SetHealth("no disk") }, infoFresh, ""},
		"well, and ill":         {func(*troubled) {}, func(b *troubled) { b.SetHealth("no disk") }, infoStale, executor.Unavailable},
	} {
		inBubble(t, func(t *testing.T) {
			b := &troubled{Backend: fake.New(fake.Options{})}
			r := newRig(t, setup{backend: b})
			time.Sleep(infoFresh)
			c.before(b)
			_, _ = r.infoNow(t.Context(), r.now().backends["fake"])
			c.after(b)
			time.Sleep(c.quiet)
			began := time.Now()
			_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
			if executor.CodeOf(err) != c.want || time.Since(began) > 0 { // on the bubble's clock
				t.Errorf("%s: the first request got %v after %s", name, err, time.Since(began))
			}
		})
	}
}

// held is a growing backend that answers when it is let.
type held struct {
	growing
	answer chan struct{}
}

func (b *held) Info(ctx context.Context) (executor.Info, error) {
	<-b.answer
	return b.growing.Info(ctx)
}

// What is submitted after an answer, as after the start, finds the capacity of that answer.
func TestAnAnswerIsThereWhenItsCapacityCounts(t *testing.T) {
	t.Parallel()
	plugin := &held{growing{Backend: fake.New(fake.Options{})}, make(chan struct{}, 2)}
	plugin.answer <- struct{}{} // at the start
	r := newRig(t, setup{backend: plugin})
	b := r.now().backends["fake"]
	plugin.capacity.Store(3)
	done := b.fetch(r.Engine)
	r.mu.Lock()
	plugin.answer <- struct{}{}
	awaittest.Until(t, "the answer", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.info.Capacity == 3
	})
	select {
	case <-done:
		t.Error("the answer came before its capacity")
	default:
	}
	r.mu.Unlock()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.queue.capacity[b.key]; c != 3 {
		t.Errorf("capacity %d", c)
	}
}

// Executions leave their backend while the Engine's lock is held.
func TestABackendIsNotLockedWhileItWaitsForTheEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.now().backends["fake"]
	r.mu.Lock()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = r.infoNow(t.Context(), b)
	}()
	awaittest.Until(t, "a question to the backend, which is not locked,", func() bool {
		if !b.mu.TryLock() {
			return false
		}
		defer b.mu.Unlock()
		return b.fetching != nil
	})
	r.mu.Unlock()
	<-answered
}
