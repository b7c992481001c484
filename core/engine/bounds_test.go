package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// away is a backend that has gone after it was described once, and whose absence is noticed only when told is closed.
type away struct {
	runFunc
	once sync.Once
	told chan struct{}
}

func (a *away) Info(ctx context.Context) (info executor.Info, err error) {
	described := true
	a.once.Do(func() { described = false })
	if !described {
		return a.runFunc.Info(ctx)
	}
	<-a.told
	return info, executor.Errorf(executor.Unavailable, "it has gone")
}

func TestCloseWaitsForNobodyWhoLooksForItsBackend(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		gone := &away{told: make(chan struct{}), runFunc: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "it has gone")
		}}
		r := newRig(t, setup{backend: gone})
		x := r.submit(t.Context(), "exit 0")
		time.Sleep(time.Second) // it pauses after its first attempt, then looks for its backend
		closed := make(chan error, 1)
		go func() { closed <- r.Close(context.Background()) }()
		synctest.Wait()
		close(gone.told)
		synctest.Wait()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Close waits for one that nobody ends")
			_ = r.closeNow()
			<-closed
		}
		if rec := must(r.store.Get(t.Context(), x.ID)); rec.Status != executor.StatusLost {
			t.Errorf("its status is %s", rec.Status)
		}
	})
}

func TestRetentionCountsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Retention: config.Retention{MaxBytes: 1 << 20}}})
		for range 8 {
			r.result(r.submit(t.Context(), "exit 0\n"+strings.Repeat("#", 400<<10)).ID)
		}
		synctest.Wait()
		if list := must(r.List(t.Context(), executor.Filter{})); len(list) != 2 {
			t.Errorf("%d executions with 400 KiB of code each are left, 1 MiB may be", len(list))
		}
	})
}

func TestOnlySoManyClosedSessionsAreKept(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Max = 2 * maxEnded })))
		ctx := as("alice")
		kept := r.open(ctx)
		var last executor.Session
		for range maxEnded + 100 {
			last = r.open(ctx)
			_ = must(r.CloseSession(ctx, last.ID))
		}
		time.Sleep(lookInterval)
		synctest.Wait()
		list := must(r.ListSessions(ctx))
		if len(list) != maxEnded+1 {
			t.Errorf("%d sessions are kept, want the open one and %d", len(list), maxEnded)
		}
		if v := r.session(kept); v.Status != executor.SessionActive {
			t.Errorf("the open one is %+v", v)
		}
		if v := r.session(last); v.Status != executor.SessionClosed {
			t.Errorf("the last one is %+v", v)
		}
	})
}

// stuckRestart is a backend that restarts no interpreter before it is told to stop.
type stuckRestart struct{ *fake.Backend }

func (stuckRestart) RestartSession(ctx context.Context, _ string, _ bool) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestACloseEndsARestartThatTakesLong(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(func(s *setup) { s.backend = stuckRestart{fake.New(s.fake)} }))
		ctx := as("alice")
		s := r.open(ctx)
		restarted := make(chan error, 1)
		go func() {
			_, err := r.RestartSession(ctx, s.ID, false)
			restarted <- err
		}()
		synctest.Wait()
		asked := time.Now()
		if v := must(r.CloseSession(ctx, s.ID)); v.Status != executor.SessionClosed {
			t.Errorf("closed: %+v", v)
		}
		if waited := time.Since(asked); waited > 0 {
			t.Errorf("the close waited %s for the restart", waited)
		}
		err := <-restarted
		wantCode(t, err, executor.Unavailable)
		if !strings.Contains(err.Error(), "closed") {
			t.Errorf("the restart says %v", err)
		}
	})
}

func TestWhatIsShownWhileARunIsGivenUpRacesWithNobody(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		display := executor.Display{Data: map[string][]byte{"text/plain": []byte("x")}}
		ended := make(chan struct{})
		r := newRig(t, setup{backend: runFunc(func(ctx context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
			defer close(ended)
			if err := emit(sink, executor.Started{}); err != nil {
				return executor.Result{}, err
			}
			for { // it obeys nothing but the end of its sink
				if err := emit(sink, display); err != nil {
					return executor.Result{}, err
				}
				time.Sleep(100 * time.Millisecond)
			}
		})})
		x := r.submit(t.Context(), "exit 0")
		synctest.Wait()
		if res := must(r.Cancel(t.Context(), x.ID)); res.Result.Status != executor.StatusKilled || res.Result.DisplaysDropped == 0 {
			t.Errorf("result %+v", res.Result)
		}
		<-ended
	})
}

func TestAnOwnerAtItsBoundLeavesRoomToOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 9, MaxPerOwner: 2}}})
		alice, bob := as("alice"), as("bob")
		first := r.submit(alice, "hang")
		if err := r.Admit(alice); err != nil {
			t.Errorf("below its bound alice is refused: %v", err)
		}
		second := r.submit(alice, "hang", durable)
		wantCode(t, r.Admit(alice), executor.Exhausted)
		_, err := r.Submit(alice, executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		if full, _ := errors.AsType[*executor.Error](err); full == nil || full.RetryAfter == 0 || !strings.Contains(full.Message, "your executions") {
			t.Errorf("alice is told %v", err)
		}
		if err := r.Admit(bob); err != nil {
			t.Errorf("bob is refused: %v", err)
		}
		other := r.submit(bob, "exit 0", durable)
		_ = must(r.Cancel(alice, second.ID))
		third := r.submit(alice, "exit 0", durable)
		_ = must(r.Cancel(alice, first.ID))
		r.result(other.ID)
		r.result(third.ID)
		r.wantIdle()
	})
}

func TestRetentionCountsWhatAnEarlierLifeHasLeft(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := setup{options: Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t)}}
		r := newRig(t, s)
		var last executor.Execution
		for range 4 {
			last = r.submit(t.Context(), "exit 0\n"+strings.Repeat("#", 400<<10))
			r.result(last.ID)
		}
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		s.options.Retention = config.Retention{MaxBytes: 1 << 20}
		r = newRig(t, s)
		synctest.Wait()
		list := must(r.List(t.Context(), executor.Filter{}))
		if len(list) != 2 || list[0].ID != last.ID {
			t.Errorf("%d executions with 400 KiB of code each are left, 1 MiB may be", len(list))
		}
	})
}

func TestTheBoundsOfRetentionAreExact(t *testing.T) {
	t.Parallel()
	now := time.Now()
	kept := func(r *retention) *retention {
		r.shelves = map[string]*shelf{}
		for _, k := range []finished{{id: "a", at: now.Add(-time.Hour), bytes: 10}, {id: "b", at: now, bytes: 10}} {
			r.putLocked(k)
		}
		return r
	}
	for name, c := range map[string]struct {
		r    *retention
		over bool
	}{
		"no bounds":           {kept(&retention{}), false},
		"nothing kept":        {&retention{age: 1, count: 1, bytes: 1, total: 20}, false},
		"as many as may be":   {kept(&retention{count: 2}), false},
		"one too many":        {kept(&retention{count: 1}), true},
		"as large as may be":  {kept(&retention{bytes: 20}), false},
		"a byte too large":    {kept(&retention{bytes: 19}), true},
		"as old as may be":    {kept(&retention{age: time.Hour + 1}), false},
		"old enough to leave": {kept(&retention{age: time.Hour}), true},
	} {
		if over := c.r.overLocked(now) != nil; over != c.over {
			t.Errorf("%s: over is %t", name, over)
		}
	}
}
