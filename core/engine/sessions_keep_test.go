package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// endedEarlier leaves the record of a Session that ended in an earlier life.
func endedEarlier(t *testing.T, store executor.Store, n int, status executor.SessionStatus, opened, ended time.Time) string {
	t.Helper()
	id := fmt.Sprintf("ctx-00000000-0000-4000-8000-%012d", n)
	err := store.CreateSession(t.Context(), executor.SessionRecord{EndedAt: ended, Session: executor.Session{
		ID: id, Owner: "alice", Backend: "fake", Status: status, Reason: "r", CreatedAt: opened, LastUsed: ended,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTheNextLifeForgetsEndedSessionsWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		now := time.Now()
		// The Store lists the newest first. A lost Session that has ended is not open: it takes no place.
		first := endedEarlier(t, store, 1, executor.SessionClosed, now.Add(-5*time.Hour), now.Add(-30*time.Minute))
		second := endedEarlier(t, store, 2, executor.SessionLost, now.Add(-4*time.Hour), now.Add(-20*time.Minute))
		last := endedEarlier(t, store, 3, executor.SessionClosed, now.Add(-3*time.Hour), now.Add(-10*time.Minute))
		_ = endedEarlier(t, store, 4, executor.SessionClosed, now.Add(-6*time.Hour), now.Add(-90*time.Minute)) // over already
		r := newRig(t, withSessions(func(s *setup) { s.options.Store = store }, rules(func(c *config.Sessions) {
			c.Max, c.KeepClosedSeconds = 1, time.Hour.Seconds()
		})))
		kept := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, s := range must(r.ListSessions(as("alice"))) {
				got = append(got, s.ID)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("after %s there are %q, want %q", time.Since(now), got, want)
			}
		}
		time.Sleep(time.Second)
		kept(first, second, last)
		time.Sleep(30*time.Minute + time.Second)
		kept(second, last)
		time.Sleep(10 * time.Minute)
		kept(last)
		place := r.open(as("alice")) // the only place is free
		_ = must(r.CloseSession(as("alice"), place.ID))
		time.Sleep(10*time.Minute + lookInterval)
		kept(place.ID)
		if left, err := store.ListSessionRecords(context.Background(), ""); err != nil || len(left) != 1 {
			t.Errorf("the store has %d sessions, %v", len(left), err)
		}
	})
}

// countedCloses counts how often a sandbox is closed.
type countedCloses struct {
	relayed
	closes *atomic.Int32
}

func (b countedCloses) CloseSession(ctx context.Context, id string) error {
	b.closes.Add(1)
	return b.relayed.CloseSession(ctx, id)
}

func TestTheLastSandboxThatCouldNotBeClosedIsClosedOnceItsBackendIsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		var closes atomic.Int32
		s.backend = countedCloses{relayed{relay: plugin}, &closes}
		r := newRig(t, s)
		ctx := as("alice")
		only := r.open(ctx)
		plugin.current().SetDown(executor.Errorf(executor.Unavailable, "away"))
		_ = must(r.CloseSession(ctx, only.ID))
		time.Sleep(time.Minute)
		if rec := must(r.store.GetSessionRecord(ctx, only.ID)); len(rec.Handle) == 0 {
			t.Error("the next life would not find the sandbox")
		}
		plugin.current().SetDown(nil)
		time.Sleep(2 * lookInterval)
		if left := plugin.current().Sessions(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if rec := must(r.store.GetSessionRecord(ctx, only.ID)); len(rec.Handle) > 0 {
			t.Error("the next life would look for a sandbox that is gone")
		}
		asked := closes.Load()
		time.Sleep(10 * lookInterval)
		if more := closes.Load() - asked; more != 0 {
			t.Errorf("a sandbox that is gone was closed %d more times", more)
		}
	})
}

func TestSessionsThatNobodyUsesAreLookedForByTheNextLife(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting, func(s *setup) { s.options.Store = memorystore.New(memorystore.Options{}) })
		r := newRig(t, s)
		ctx := as("alice")
		gone := r.open(ctx)
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		elsewhere := must(s.options.Store.GetSessionRecord(ctx, gone.ID))
		elsewhere.ID, elsewhere.Backend = "ctx-"+strings.Repeat("0", 8)+"-0000-4000-8000-000000000000", "old"
		if err := s.options.Store.CreateSession(ctx, elsewhere); err != nil {
			t.Fatal(err)
		}
		plugin.now = fake.New(s.fake) // of the same generation, as in a new life of the host
		r = newRig(t, s)
		time.Sleep(time.Second)
		for id, reason := range map[string]string{gone.ID: "was restarted", elsewhere.ID: "is not configured any more"} {
			if v := must(r.GetSession(ctx, id)); v.Status != executor.SessionLost || !strings.Contains(v.Reason, reason) {
				t.Errorf("a session whose sandbox is gone: %s, %q, want %q", v.Status, v.Reason, reason)
			}
		}
	})
}

func TestASessionIsLostSoonAfterItsBackendIsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay()
		r := newRig(t, s)
		idle := r.open(as("alice"))
		time.Sleep(lookInterval - time.Second)
		away := lookInterval + 5*time.Second // the first look still has an answer from before, the second one has none
		plugin.die(away)
		time.Sleep(away + 2*lookAgain)
		synctest.Wait()
		if v := r.session(idle); v.Status != executor.SessionLost {
			t.Errorf("%s after its backend came back it is %s", 2*lookAgain, v.Status)
		}
	})
}

func TestWhenASessionWasUsedOutlivesTheServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, _ := withRelay(lasting)
		r := newRig(t, s)
		ctx := as("alice")
		place := r.open(ctx)
		used := func(what string) {
			t.Helper()
			if rec := must(r.store.GetSessionRecord(ctx, place.ID)); !rec.LastUsed.Equal(r.session(place).LastUsed) {
				t.Errorf("%s the store has %s, want %s", what, rec.LastUsed, r.session(place).LastUsed)
			}
		}
		time.Sleep(saveInterval)
		_ = r.say(ctx, place, "print 1")
		time.Sleep(2 * lookInterval)
		used("a crash: after a use")
		time.Sleep(saveInterval / 2)
		_ = r.say(ctx, place, "print 1")
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		used("after a close")
	})
}

// undeletable is a Store that deletes no session before it is told to.
type undeletable struct {
	executor.Store
	may atomic.Bool
}

func (s *undeletable) DeleteSession(ctx context.Context, id string) error {
	if !s.may.Load() {
		return errors.New("disk full")
	}
	return s.Store.DeleteSession(ctx, id)
}

func TestARecordThatCouldNotBeDeletedIsDeletedLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := &undeletable{Store: memorystore.New(memorystore.Options{})}
		r := newRig(t, withSessions(func(s *setup) { s.options.Store = store }))
		ctx := as("alice")
		place := r.open(ctx)
		_ = must(r.CloseSession(ctx, place.ID))
		time.Sleep(90 * time.Minute)
		store.may.Store(true)
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		if list := must(r.ListSessions(ctx)); len(list) != 0 {
			t.Errorf("listed: %+v", list)
		}
	})
}

// forgetfulSessions is a backend that says, after a program has started, that it has no such session.
type forgetfulSessions struct {
	*fake.Backend
	runs *atomic.Int32
}

func (b forgetfulSessions) Run(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	b.runs.Add(1)
	if err := emit(s, executor.Started{}); err != nil {
		return executor.Result{}, err
	}
	return executor.Result{}, executor.Errorf(executor.NotFound, "no such session")
}

func TestAProgramThatHasStartedInASessionIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newRig(t, withSessions(func(s *setup) { s.backend = forgetfulSessions{fake.New(s.fake), &runs} }))
		ctx := as("alice")
		x := r.submit(ctx, "exit 0", in(r.open(ctx)))
		if res := r.result(x.ID); res.Status != executor.StatusLost || runs.Load() != 1 {
			t.Errorf("%+v after %d runs", res, runs.Load())
		}
	})
}

func TestWhatRunsInASessionKeepsItsTurnAndItsSlotInTheNextLife(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting, func(s *setup) {
			s.options = Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t), Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}
		})
		r := newRig(t, s)
		ctx := as("alice")
		place := r.open(ctx, func(s *executor.Session) { s.Spec.Limits.Timeout = 7 * time.Second })
		runs := r.submit(ctx, "wait gate", in(place), durable, func(s *executor.Spec) { s.Limits.Timeout = time.Hour })
		waits := r.submit(ctx, "hang", in(place), durable)
		synctest.Wait()
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		plugin.die(0)
		r = newRig(t, s)
		time.Sleep(time.Second)
		other := r.submit(ctx, "exit 0")
		synctest.Wait()
		if v := r.session(place); v.Running != runs.ID || v.Waiting != 1 {
			t.Errorf("running %q and %d waiting, want %s and 1", v.Running, v.Waiting, runs.ID)
		}
		if x := must(r.Get(ctx, other.ID)); x.Status != executor.StatusQueued {
			t.Errorf("beside what has the only slot, another is %s", x.Status)
		}
		plugin.current().Release("gate")
		if res := r.result(waits.ID); res.Status != executor.StatusTimedOut || res.Wall != 7*time.Second {
			t.Errorf("with the session's timeout: %+v", res)
		}
		r.result(other.ID)
		r.wantIdle()
	})
}
