package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestABackendThatIsStillBusyWithTheLastOneIsAskedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		busy := executor.Errorf(executor.Conflict, "it runs another one")
		r := newRig(t, withSessions(func(s *setup) { s.fake.Hook = fake.FirstRuns(2, fake.Fail(busy)) }))
		ctx := as("alice")
		s := r.open(ctx)
		first := r.submit(ctx, "set x 1", in(s))
		if got := r.say(ctx, s, "get x"); got != "1\n" {
			t.Errorf("it said %q", got)
		}
		if x := must(r.Get(ctx, first.ID)); x.Attempts != 3 || x.Status != executor.StatusSucceeded {
			t.Errorf("the first is %s after %d attempts", x.Status, x.Attempts)
		}
		r.wantIdle()
	})
}

func TestADeadInterpreterLosesItsSessionUntilItIsRestarted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		r := newRig(t, withSessions(func(s *setup) { s.options.Registerer = registry }))
		ctx := as("alice")
		s := r.open(ctx)
		dies := r.submit(ctx, "write-file a.txt 1\nwait gate\nsignal SEGV", in(s))
		waits := r.submit(ctx, "exit 0", in(s), durable)
		synctest.Wait()
		asked := make(chan error, 1)
		go func() {
			_, err := r.Variables(ctx, s.ID)
			asked <- err
		}()
		synctest.Wait()
		r.fake.Release("gate")
		if res := r.result(dies.ID); res.Signal != "SIGSEGV" || res.SessionState != executor.SessionStateLost || res.Status != executor.StatusFailed {
			t.Errorf("result %+v", res)
		}
		if res := r.result(waits.ID); res.Status != executor.StatusLost || res.Failure == nil || !strings.Contains(res.Failure.Message, "SIGSEGV") {
			t.Errorf("what waited: %+v, %+v", res, res.Failure)
		}
		wantCode(t, <-asked, executor.Conflict, "session")
		if v := r.session(s); v.Status != executor.SessionLost || v.Reason != "its interpreter was ended by SIGSEGV" {
			t.Errorf("the session is %+v", v)
		}
		_, err := r.Submit(ctx, executor.Spec{Session: s.ID, Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Conflict, "session")
		_, err = r.InterruptSession(ctx, s.ID)
		wantCode(t, err, executor.Conflict, "session")
		if files := must(r.ListFiles(ctx, s.ID, "", false)); len(files) != 1 {
			t.Errorf("its files are %+v", files)
		}
		if v := must(r.RestartSession(ctx, s.ID, false)); v.Status != executor.SessionActive || v.Reason != "" {
			t.Errorf("restarted: %+v", v)
		}
		if got := r.say(ctx, s, "cat a.txt"); got != "1" {
			t.Errorf("it said %q", got)
		}
		r.fake.KillSession(s.ID)
		x := r.submit(ctx, "exit 0", in(s))
		if res := r.result(x.ID); res.SessionState != executor.SessionStateLost || r.session(s).Status != executor.SessionLost {
			t.Errorf("an interpreter that died while nothing ran: %+v, %+v", res, r.session(s))
		}
		text := `# HELP python_executor_sessions_lost_total Sessions whose interpreter died or whose sandbox went away.
# TYPE python_executor_sessions_lost_total counter
python_executor_sessions_lost_total{backend="fake"} 2
# HELP python_executor_sessions Sessions whose sandbox is there, active or lost.
# TYPE python_executor_sessions gauge
python_executor_sessions 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "python_executor_sessions_lost_total", "python_executor_sessions"); err != nil {
			t.Error(err)
		}
		r.wantIdle()
	})
}

func TestASessionExpiresWhenItIsIdleOrTooOld(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.MaxLifeSeconds = 7200 })))
		ctx := as("alice")
		idle := r.open(ctx, func(s *executor.Session) { s.IdleTimeout = 10 * time.Minute })
		busy := r.open(ctx, func(s *executor.Session) { s.IdleTimeout = 10 * time.Minute })
		long := r.submit(ctx, "hang", in(busy), func(s *executor.Spec) { s.Limits.Timeout = executor.TimeoutMaximum })
		for range 3 {
			time.Sleep(9 * time.Minute)
			_ = must(r.ListFiles(ctx, idle.ID, "", false)) // a use
		}
		if v := r.session(idle); v.Status != executor.SessionActive || !v.ExpiresAt.Equal(time.Now().Add(10*time.Minute)) {
			t.Errorf("used: %+v", v)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if v := r.session(idle); v.Status != executor.SessionClosed || v.Reason != "it was not used for 10m0s" {
			t.Errorf("idle: %+v", v)
		}
		if v := r.session(busy); v.Status != executor.SessionActive {
			t.Errorf("busy: %+v", v)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if v := r.session(busy); v.Status != executor.SessionClosed || v.Reason != "its life of 2h0m0s is over" {
			t.Errorf("too old: %+v", v)
		}
		if res := r.result(long.ID); res.Status != executor.StatusKilled || res.Wall > 2*time.Hour+time.Minute {
			t.Errorf("what ran in it: %+v", res)
		}
		r.wantNoSessions()
		if list := must(r.ListSessions(ctx)); len(list) != 1 {
			t.Errorf("an hour after its end a session is not listed any more: %+v", list)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if list := must(r.ListSessions(ctx)); len(list) != 0 {
			t.Errorf("listed: %+v", list)
		}
		_, err := r.GetSession(ctx, busy.ID)
		wantCode(t, err, executor.NotFound, "session")
	})
}

// A backend whose Sessions end with it has lost one when it goes away under what runs in it: both say so at once.
func TestASessionIsLostWithTheBackendThatWentAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(func(s *setup) { s.fake.Hook = fake.FirstRuns(1, fake.DieAfter(1)) }))
		ctx := as("alice")
		s := r.open(ctx)
		runs := r.submit(ctx, "wait gate", in(s))
		if res := r.result(runs.ID); res.Status != executor.StatusLost || res.SessionState != executor.SessionStateLost {
			t.Errorf("what ran: %+v", res)
		}
		if v := r.session(s); v.Status != executor.SessionLost || !strings.Contains(v.Reason, "went away") {
			t.Errorf("the session is %+v", v)
		}
	})
}

// slowToClose is a backend that takes its time to close a Session.
type slowToClose struct {
	*fake.Backend
	gate chan struct{}
}

func (b slowToClose) CloseSession(ctx context.Context, id string) error {
	<-b.gate
	return b.Backend.CloseSession(ctx, id)
}

// Who sees that a Session's end has ended what ran in it, or waited, sees the Session ended, too.
func TestASessionIsNotActiveOnceItsEndHasEndedWhatRan(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx := as("alice")
		for reason, end := range map[string]func(r *rig, id string){
			"its life of 1h0m0s is over": func(*rig, string) { time.Sleep(2 * time.Hour) },
			"by request":                 func(r *rig, id string) { go func() { _, _ = r.CloseSession(ctx, id) }() },
		} {
			gate := make(chan struct{})
			r := newRig(t, withSessions(func(s *setup) { s.backend = slowToClose{fake.New(s.fake), gate} }))
			s := r.open(ctx, func(s *executor.Session) { s.MaxLife = time.Hour })
			runs := r.submit(ctx, "hang", in(s), func(s *executor.Spec) { s.Limits.Timeout = executor.TimeoutMaximum })
			waits := r.submit(ctx, "exit 0", in(s))
			synctest.Wait()
			end(r, s.ID)
			synctest.Wait()
			for _, x := range []executor.Execution{runs, waits} {
				if got := must(r.Get(ctx, x.ID)); got.Status != executor.StatusKilled {
					t.Errorf("%s: it is %s", reason, got.Status)
				}
			}
			for _, v := range append(must(r.ListSessions(ctx)), must(r.GetSession(ctx, s.ID))) {
				if v.Status != executor.SessionClosed || v.Reason != reason || v.Running != "" || !v.ExpiresAt.IsZero() {
					t.Errorf("%s: the session is %+v", reason, v)
				}
			}
			_, err := r.Submit(ctx, executor.Spec{Session: s.ID, Code: "exit 0"}, executor.Input{})
			wantCode(t, err, executor.Conflict, "session")
			close(gate)
			synctest.Wait()
			if v := r.session(s); v.Status != executor.SessionClosed || v.Reason != reason {
				t.Errorf("closed: %+v", v)
			}
			if err := r.closeNow(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Who sees a Session closed that nothing ran in may open another in its place.
func TestASessionThatEndsIdleIsClosedWhenItsPlaceIsFree(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx := as("alice")
		gate := make(chan struct{})
		bounds := rules(func(c *config.Sessions) { c.Max = 1 })
		r := newRig(t, withSessions(bounds, func(s *setup) { s.backend = slowToClose{fake.New(s.fake), gate} }))
		first := r.open(ctx, func(s *executor.Session) { s.IdleTimeout = time.Minute })
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		_, err := r.OpenSession(ctx, executor.Session{})
		wantCode(t, err, executor.Exhausted)
		if v := r.session(first); v.Status != executor.SessionActive {
			t.Errorf("its place is not free, and it is %s", v.Status)
		}
		close(gate)
		synctest.Wait()
		if v := r.session(first); v.Status != executor.SessionClosed {
			t.Errorf("its place is free, and it is %s", v.Status)
		}
		r.open(ctx)
		if err := r.closeNow(); err != nil {
			t.Error(err)
		}
	})
}

func TestBoundsAndWhoMakesRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Max, c.MaxPerOwner, c.EvictIdleSeconds = 3, 2, 300 })))
		alice, bob := as("alice"), as("bob")
		first := r.open(alice)
		time.Sleep(time.Minute)
		second := r.open(alice)
		_, err := r.OpenSession(alice, executor.Session{})
		wantCode(t, err, executor.Exhausted)
		if e, _ := errors.AsType[*executor.Error](err); e.RetryAfter <= 0 {
			t.Error("no hint when to come again")
		}
		time.Sleep(5 * time.Minute)
		_ = must(r.ListFiles(alice, first.ID, "", false))
		third := r.open(alice) // the second is the least recently used, and idle for long enough
		if r.session(first).Status != executor.SessionActive || r.session(second).Status != executor.SessionClosed || !strings.Contains(r.session(second).Reason, "room") {
			t.Errorf("first %+v, second %+v", r.session(first), r.session(second))
		}
		_ = r.open(bob)
		time.Sleep(10 * time.Minute)
		for _, s := range []executor.Session{first, third} {
			r.submit(alice, "hang", in(s), func(s *executor.Spec) { s.Limits.Timeout = executor.TimeoutMaximum })
		}
		_, err = r.OpenSession(alice, executor.Session{}) // never a busy one, never another owner's
		wantCode(t, err, executor.Exhausted)
		_, err = r.OpenSession(as("carol"), executor.Session{})
		wantCode(t, err, executor.Exhausted)
		if len(r.fake.Sessions()) != 3 {
			t.Errorf("open: %v", r.fake.Sessions())
		}
	})
}

func TestFilesAreConfinedCappedAndReachableWhileSomethingRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.MaxFileBytes = 10 })))
		ctx := as("alice")
		s := r.open(ctx)
		r.submit(ctx, "hang", in(s))
		f, err := r.WriteFile(ctx, s.ID, executor.File{Path: "dir/./a.txt", SizeBytes: -1}, strings.NewReader("0123456789"))
		if err != nil || f.Path != "dir/a.txt" || f.SizeBytes != 10 {
			t.Fatalf("written: %+v, %v", f, err)
		}
		_, err = r.WriteFile(ctx, s.ID, executor.File{Path: "a", SizeBytes: -1}, strings.NewReader("01234567890"))
		wantCode(t, err, executor.Exhausted, "file")
		_, err = r.WriteFile(ctx, s.ID, executor.File{Path: "a", SizeBytes: 11}, strings.NewReader("01234567890"))
		wantCode(t, err, executor.Exhausted, "file")
		_, _, err = r.ReadFile(ctx, s.ID, "a")
		wantCode(t, err, executor.NotFound, "path")
		for _, name := range []string{"", ".", "/etc/passwd", "../a", "dir/../../a", "dir/..", "a\x00", "\xff", strings.Repeat("a", maxPath+1)} {
			_, err = r.WriteFile(ctx, s.ID, executor.File{Path: name, SizeBytes: 1}, strings.NewReader("a"))
			wantCode(t, err, executor.Invalid, "path")
			_, _, err = r.ReadFile(ctx, s.ID, name)
			wantCode(t, err, executor.Invalid, "path")
			wantCode(t, r.RemoveFile(ctx, s.ID, name), executor.Invalid, "path")
		}
		_, err = r.ListFiles(ctx, s.ID, "..", true)
		wantCode(t, err, executor.Invalid, "path")
		got, reader, err := r.ReadFile(ctx, s.ID, "dir/a.txt")
		if err != nil || got.SizeBytes != 10 {
			t.Fatal(got, err)
		}
		if text := must(io.ReadAll(reader)); string(text) != "0123456789" || reader.Close() != nil || reader.Close() != nil {
			t.Errorf("read %q", text)
		}
		if list := must(r.ListFiles(ctx, s.ID, "", true)); len(list) != 2 || !list[0].Directory || list[1].Path != "dir/a.txt" {
			t.Errorf("listed %+v", list)
		}
		if err := r.RemoveFile(ctx, s.ID, "dir"); err != nil {
			t.Error(err)
		}
		if list := must(r.ListFiles(ctx, s.ID, "", true)); len(list) != 0 {
			t.Errorf("listed %+v", list)
		}
	})
}

func TestVariablesAndAddedRequirements(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		ctx := as("alice")
		s := r.open(ctx)
		r.say(ctx, s, "set b 2\nset a "+strings.Repeat("x", 500))
		list := must(r.Variables(ctx, s.ID))
		if len(list) != 2 || list[0].Name != "a" || len([]rune(list[0].Preview)) != maxPreview || list[1].Preview != "2" {
			t.Errorf("variables %+v", list)
		}
		if all := must(r.AddRequirements(ctx, s.ID, "attrs==1.0")); !slices.Equal(all, []string{"attrs==1.0"}) || !slices.Equal(r.session(s).Requirements, all) {
			t.Errorf("requirements %v, the session says %v", all, r.session(s).Requirements)
		}
		if rec := must(r.store.GetSessionRecord(ctx, s.ID)); !slices.Equal(rec.Requirements, r.session(s).Requirements) {
			t.Errorf("the store has the requirements %v", rec.Requirements)
		}
		if got := r.say(ctx, s, "import attrs\nget b"); got != "1.0\n2\n" {
			t.Errorf("it said %q", got)
		}
		_, err := r.AddRequirements(ctx, s.ID, "no-such-package")
		wantCode(t, err, executor.Invalid, "requirements_txt")
		_, err = r.AddRequirements(ctx, s.ID, " \n")
		wantCode(t, err, executor.Invalid, "requirements_txt")
		js := must(r.OpenSession(ctx, executor.Session{Language: executor.LanguageJavaScript}))
		_, err = r.AddRequirements(ctx, js.ID, "left-pad")
		wantCode(t, err, executor.Invalid, "requirements_txt")
		// A tool waits for its turn, and gives up with its ctx.
		r.submit(ctx, "hang", in(s))
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err = r.Variables(short, s.ID)
		wantCode(t, err, executor.Unavailable)
		_ = must(r.InterruptSession(ctx, s.ID))
		_ = must(r.Variables(ctx, s.ID))
		r.wantIdle()
	})
}

// crowded is a backend whose interpreters have many variables, in no order.
type crowded struct{ *fake.Backend }

func (crowded) Variables(context.Context, string) ([]executor.Variable, error) {
	var list []executor.Variable
	for i := range maxVariables + 1 {
		list = append(list, executor.Variable{Name: fmt.Sprintf("v%04d", maxVariables-i)})
	}
	list[0].Preview, list[maxVariables].Preview = "the last", strings.Repeat("é", maxPreview)
	return list, nil
}

func TestVariablesAreInOrderAndBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions()
		s.backend = crowded{fake.New(s.fake)}
		r := newRig(t, s)
		list := must(r.Variables(as("alice"), r.open(as("alice")).ID))
		if first, last := list[0], list[len(list)-1]; len(list) != maxVariables || first.Name != "v0000" || last.Name != "v0999" || first.Preview != strings.Repeat("é", maxPreview) {
			t.Errorf("%d variables from %+v to %+v", len(list), first, last)
		}
	})
}

func TestInterruptRestartAndCloseWhileOthersWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		ctx := as("alice")
		s := r.open(ctx)
		r.say(ctx, s, "set x 1\nwrite-file kept.txt here")
		hang := r.submit(ctx, "hang", in(s))
		next := r.submit(ctx, "get x", in(s), durable)
		synctest.Wait()
		if v := must(r.InterruptSession(ctx, s.ID)); v.Status != executor.SessionActive {
			t.Errorf("interrupted: %+v", v)
		}
		if res := r.result(hang.ID); res.Status != executor.StatusKilled || res.SessionState != executor.SessionStateKept {
			t.Errorf("the one that ran: %+v", res)
		}
		if r.result(next.ID); stdout(r.events(next.ID)) != "1\n" {
			t.Errorf("the state is gone: %q", stdout(r.events(next.ID)))
		}
		_ = must(r.InterruptSession(ctx, s.ID)) // nothing runs, nothing happens

		deaf := r.submit(ctx, "ignore-int\nhang", in(s))
		synctest.Wait()
		if x := must(r.Cancel(ctx, deaf.ID)); x.Result.SessionState != executor.SessionStateRestarted {
			t.Errorf("one that does not heed SIGINT: %+v", x.Result)
		}
		if v := r.session(s); v.Restarts != 1 || v.Status != executor.SessionActive {
			t.Errorf("the session is %+v", v)
		}

		hang = r.submit(ctx, "set x 2\nhang", in(s))
		next = r.submit(ctx, "cat kept.txt\nget x", in(s), durable)
		synctest.Wait()
		v := must(r.RestartSession(ctx, s.ID, false))
		if v.Restarts != 2 || v.Status != executor.SessionActive {
			t.Errorf("restarted: %+v", v)
		}
		if res := r.result(hang.ID); res.Status != executor.StatusKilled || res.Failure == nil || res.Failure.Message != "its session was restarted" {
			t.Errorf("the one that ran: %+v, %+v", res, res.Failure)
		}
		if res := r.result(next.ID); res.Status != executor.StatusFailed || stdout(r.events(next.ID)) != "here" {
			t.Errorf("what waits goes on, without the state: %+v, %q", res, stdout(r.events(next.ID)))
		}
		_ = must(r.RestartSession(ctx, s.ID, true))
		if got := r.say(ctx, s, "exists kept.txt"); got != "false\n" {
			t.Errorf("a wipe left the file: %q", got)
		}

		hang = r.submit(ctx, "hang", in(s))
		next = r.submit(ctx, "exit 0", in(s), durable)
		synctest.Wait()
		_ = must(r.CloseSession(ctx, s.ID))
		for _, id := range []string{hang.ID, next.ID} {
			if res := r.result(id); res.Status != executor.StatusKilled || res.Failure == nil || !strings.Contains(res.Failure.Message, "closed") {
				t.Errorf("%s: %+v, %+v", id, res, res.Failure)
			}
		}
		r.wantIdle()
		r.wantNoSessions()
	})
}
