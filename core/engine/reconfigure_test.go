package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// another returns a second fake like that of s.
func another(s setup) *fake.Backend { return fake.New(s.fake) }

// change reconfigures r with one backend, called name.
func (r *rig) change(name string, b executor.Backend, more ...func(*Options)) []Retired {
	r.t.Helper()
	o := Options{
		Backends: map[string]executor.Backend{name: b},
		Engine:   config.Engine{MaxConcurrent: 2, MaxQueued: 10, DrainTimeoutSeconds: 60},
	}
	for _, f := range more {
		f(&o)
	}
	retired, err := r.Reconfigure(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return retired
}

func isDrained(r Retired) bool {
	synctest.Wait()
	select {
	case <-r.Drained:
		return true
	default:
		return false
	}
}

func (r *rig) wantOutput(id, want string) {
	r.t.Helper()
	if res := r.result(id); res.Status != executor.StatusSucceeded {
		r.t.Errorf("%s ended as %+v, %+v", id, res, res.Failure)
	}
	if got := stdout(r.events(id)); got != want {
		r.t.Errorf("it printed %q, want %q", got, want)
	}
}

func TestWhatRunsKeepsItsBackendAndNewExecutionsGetTheNewOne(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		running := r.submit(as("alice"), "print begun\nwait go\nprint done")
		doomed := r.submit(as("alice"), "hang")
		waiting := r.submit(as("alice"), "print waited")
		synctest.Wait()
		next := another(setup{})
		retired := r.change("fake", next)
		if len(retired) != 1 || retired[0].Backend != executor.Backend(r.fake) || isDrained(retired[0]) {
			t.Fatalf("retired: %+v", retired)
		}
		infos := must(r.Backends(as("alice")))
		if len(infos) != 2 || infos[0].Message != "" || !strings.Contains(infos[1].Message, "draining until") || !strings.Contains(infos[1].Message, "3 executions") {
			t.Errorf("infos %+v", infos)
		}
		if x := must(r.Cancel(as("alice"), doomed.ID)); x.Status != executor.StatusKilled {
			t.Errorf("cancelled: %+v", x)
		}
		r.wantOutput(waiting.ID, "waited\n")
		r.wantOutput(r.submit(as("alice"), "print new").ID, "new\n")
		if ran := next.Runs(); len(ran) != 1 {
			t.Errorf("the new backend ran %v", ran)
		}
		r.fake.Release("go")
		r.wantOutput(running.ID, "begun\ndone\n")
		if !isDrained(retired[0]) {
			t.Error("nothing is left, and it is not drained")
		}
		if infos := must(r.Backends(as("alice"))); len(infos) != 1 {
			t.Errorf("infos %+v", infos)
		}
		if x := must(r.Get(as("alice"), running.ID)); x.Backend != "fake" {
			t.Errorf("it ran on %s", x.Backend)
		}
		r.wantIdle()
	})
}

func TestABackendThatStaysGoesOn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		next := another(setup{})
		both := func(o *Options) { o.Backends["next"], o.DefaultBackend = next, "next" }
		if retired := r.change("fake", r.fake, both); len(retired) != 0 {
			t.Errorf("retired %+v", retired)
		}
		for _, c := range []struct{ asked, want string }{{"", "next"}, {"fake", "fake"}, {"next", "next"}} {
			x := r.submit(as("alice"), "print x", func(s *executor.Spec) { s.Backend = c.asked })
			if x.Backend != c.want {
				t.Errorf("a request for %q ran on %s", c.asked, x.Backend)
			}
			r.wantOutput(x.ID, "x\n")
		}
		retired := r.change("next", next)
		if len(retired) != 1 || !isDrained(retired[0]) {
			t.Errorf("retired %+v", retired)
		}
		_, err := r.Submit(as("alice"), executor.Spec{Code: "x", Backend: "fake"}, executor.Input{})
		wantCode(t, err, executor.Invalid, "backend")
		r.wantIdle()
	})
}

func TestSessionsKeepTheirBackendUntilTheyClose(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions()
		r := newRig(t, s)
		old := r.open(as("alice"))
		r.wantOutput(r.submit(as("alice"), "set n 1", in(old)).ID, "")
		retired := r.change("fake", another(s))
		r.wantOutput(r.submit(as("alice"), "get n", in(old)).ID, "1\n")
		if _, err := r.WriteFile(as("alice"), old.ID, executor.File{Path: "f", SizeBytes: 1}, strings.NewReader("x")); err != nil {
			t.Error(err)
		}
		fresh := r.open(as("alice"))
		if res := r.result(r.submit(as("alice"), "get n", in(fresh)).ID); res.Status == executor.StatusSucceeded {
			t.Error("a new session has what the old one has")
		}
		time.Sleep(2 * lookInterval) // it is looked for, too
		if v := must(r.GetSession(as("alice"), old.ID)); v.Status != executor.SessionActive {
			t.Errorf("it is %+v", v)
		}
		if isDrained(retired[0]) {
			t.Error("drained with an open session")
		}
		if _, err := r.CloseSession(as("alice"), old.ID); err != nil {
			t.Error(err)
		}
		if !isDrained(retired[0]) {
			t.Error("its session is closed, and it is not drained")
		}
		if v := must(r.GetSession(as("alice"), fresh.ID)); v.Status != executor.SessionActive {
			t.Errorf("the new one is %+v", v)
		}
	})
}

func TestTheEndOfTheDrainEndsWhatIsLeftAndSaysWhy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions(func(s *setup) { s.options.Engine = config.Engine{MaxConcurrent: 3, MaxQueued: 10} })
		r := newRig(t, s)
		idle, busy := r.open(as("alice")), r.open(as("alice"))
		running := r.submit(as("alice"), "print begun\nhang")
		another1 := r.submit(as("alice"), "hang", durable)
		inSession := r.submit(as("alice"), "hang", in(busy))
		behind := r.submit(as("alice"), "print never", in(busy))
		moves := r.submit(as("alice"), "print moved", durable)
		named := r.submit(as("alice"), "print lost", durable, func(s *executor.Spec) { s.Backend = "fake" })
		synctest.Wait()
		next := another(s)
		retired := r.change("next", next)[0]
		time.Sleep(59 * time.Second)
		if isDrained(retired) || must(r.Get(as("alice"), running.ID)).Status != executor.StatusRunning {
			t.Error("it ended too early")
		}
		time.Sleep(2 * time.Second)
		const reason = "the configuration of backend fake has changed, and the 1m0s that the former one had to drain are over"
		for _, x := range []executor.Execution{running, another1, inSession, behind, named} {
			res := r.result(x.ID)
			if res.Status != executor.StatusLost || res.Failure == nil || res.Failure.Code != executor.Unavailable || !strings.HasSuffix(res.Failure.Message, reason) {
				t.Errorf("%s: %+v, %+v", x.Spec.Code, res, res.Failure)
			}
		}
		for _, v := range []executor.Session{idle, busy} {
			if v = must(r.GetSession(as("alice"), v.ID)); v.Status != executor.SessionLost || v.Reason != reason {
				t.Errorf("session: %s, %q", v.Status, v.Reason)
			}
			_, err := r.Submit(as("alice"), executor.Spec{Code: "x", Session: v.ID}, executor.Input{})
			wantCode(t, err, executor.Conflict, "session")
		}
		if got := stdout(r.events(running.ID)); got != "begun\n" {
			t.Errorf("what it had printed is %q", got)
		}
		r.wantOutput(moves.ID, "moved\n")
		if x := must(r.Get(as("alice"), moves.ID)); x.Backend != "next" {
			t.Errorf("it moved to %s", x.Backend)
		}
		if !isDrained(retired) {
			t.Error("it is not drained")
		}
		if n := r.openSessions(); n != 0 {
			t.Errorf("%d sessions are open", n)
		}
		r.wantIdle()
	})
}

func TestWhatAnEarlierLifeHasQueuedGoesToAnotherBackendToo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		queued := func(spec executor.Spec) string {
			id := ids.next(time.Now())
			spec.Durable = true
			leave(t, store, id, leftover{spec: spec, events: []executor.Body{executor.Queued{}}})
			return id
		}
		doomed := queued(executor.Spec{Code: "hang"})
		moves, named := queued(executor.Spec{Code: "print moved\nwait gate"}), queued(executor.Spec{Code: "print lost", Backend: "fake"})
		one := config.Engine{MaxConcurrent: 1, MaxQueued: 10, DrainTimeoutSeconds: 60}
		r := newRig(t, setup{options: Options{Store: store, Engine: one}})
		synctest.Wait()
		next := another(setup{})
		r.change("next", next, func(o *Options) { o.Engine = one })
		time.Sleep(61 * time.Second)
		retired := r.change("last", another(setup{}), func(o *Options) { o.Engine = one })[0]
		if isDrained(retired) {
			t.Error("what has gone to a backend is not on it")
		}
		next.Release("gate")
		r.wantOutput(moves, "moved\n")
		if !isDrained(retired) {
			t.Error("it is not drained")
		}
		for _, id := range []string{doomed, named} {
			if res := r.result(id); res.Status != executor.StatusLost {
				t.Errorf("%+v, %+v", res, res.Failure)
			}
		}
		r.wantIdle()
	})
}

func TestWhatWaitsForABackendThatIsDownGoesToItsSuccessor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{fake: fake.Options{Hook: fake.Fail(executor.Errorf(executor.Unavailable, "away"))}})
		x := r.submit(as("alice"), "print later", durable)
		synctest.Wait()
		r.fake.SetDown(executor.Errorf(executor.Unavailable, "away"))
		retired := r.change("fake", another(setup{}))[0]
		r.wantOutput(x.ID, "later\n")
		if !isDrained(retired) {
			t.Error("it is not drained")
		}
		r.wantIdle()
	})
}

func TestBoundsAndLimitsAreThoseOfTheNewSettings(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions()
		r := newRig(t, s)
		first := r.open(as("alice"))
		running := []executor.Execution{r.submit(as("alice"), "hang"), r.submit(as("alice"), "hang"), r.submit(as("alice"), "hang")}
		synctest.Wait()
		r.change("fake", r.fake, func(o *Options) {
			o.Engine.MaxConcurrent, o.Engine.MaxQueued = 3, 0
			o.Limits.Max.TimeoutSeconds = 5
			o.Sessions = config.Default().Sessions
			o.Sessions.Max, o.Sessions.MaxFileBytes = 1, 3
			o.Retention.MaxExecutions = 1
		})
		synctest.Wait()
		for _, x := range running {
			if got := must(r.Get(as("alice"), x.ID)); got.Status != executor.StatusRunning {
				t.Errorf("it is %s", got.Status)
			}
		}
		_, err := r.Submit(as("alice"), executor.Spec{Code: "x"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		_, err = r.Submit(as("alice"), executor.Spec{Code: "x", Limits: executor.Limits{Timeout: 6 * time.Second}}, executor.Input{})
		wantCode(t, err, executor.Invalid, "config.timeout_seconds")
		_, err = r.OpenSession(as("alice"), executor.Session{})
		wantCode(t, err, executor.Exhausted)
		_, err = r.WriteFile(as("alice"), first.ID, executor.File{Path: "f", SizeBytes: 4}, strings.NewReader("four"))
		wantCode(t, err, executor.Exhausted, "file")
		for _, x := range running {
			must(r.Cancel(as("alice"), x.ID))
		}
		synctest.Wait()
		if left := must(r.List(as("alice"), executor.Filter{})); len(left) != 1 || left[0].ID != running[2].ID {
			t.Errorf("%d executions are kept", len(left))
		}
	})
}

func TestNewBoundsOfRetentionCountAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		for range 3 {
			r.result(r.submit(t.Context(), "exit 0").ID)
		}
		r.change("fake", r.fake, func(o *Options) { o.Retention.MaxExecutions = 1 })
		synctest.Wait()
		if left := must(r.List(t.Context(), executor.Filter{})); len(left) != 1 {
			t.Errorf("%d executions are kept", len(left))
		}
	})
}

func TestABadReconfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		for name, o := range map[string]Options{
			"no backend":            {},
			"a backend that is nil": {Backends: map[string]executor.Backend{"a": nil}},
			"no default":            {Backends: map[string]executor.Backend{"a": r.fake}, DefaultBackend: "b"},
			"a negative bound":      {Backends: map[string]executor.Backend{"a": r.fake}, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: -1}},
		} {
			if _, err := r.Reconfigure(o); executor.CodeOf(err) != executor.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.wantOutput(r.submit(as("alice"), "print same", func(s *executor.Spec) { s.Backend = "fake" }).ID, "same\n")
		if err := r.closeNow(); err != nil {
			t.Error(err)
		}
		_, err := r.Reconfigure(Options{Backends: map[string]executor.Backend{"a": r.fake}})
		wantCode(t, err, executor.Unavailable)
	})
}

func TestCloseDoesNotWaitForADrain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions(lasting)
		r := newRig(t, s)
		kept := r.open(as("alice"))
		x := r.submit(as("alice"), "hang")
		synctest.Wait()
		retired := r.change("fake", another(s))[0]
		if err := r.closeNow(); err != nil {
			t.Error(err)
		}
		if !isDrained(retired) {
			t.Error("it is not told that it may stop")
		}
		if res := r.result(x.ID); res.Status != executor.StatusLost || res.Failure.Message != "the server stopped" {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		rec, err := r.store.GetSessionRecord(context.Background(), kept.ID)
		if err != nil || rec.Status != executor.SessionActive {
			t.Errorf("the session of a backend that keeps it is %s, %v", rec.Status, err)
		}
	})
}
