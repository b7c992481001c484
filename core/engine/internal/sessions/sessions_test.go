package sessions

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a Registry with an engine that is played by the test.
type desk struct {
	*Registry
	t     *testing.T
	fake  *fake.Backend
	store executor.Store
	halt  context.CancelCauseFunc
	// spawns: Spawn runs what it is given.
	spawns  bool
	refused int
	// joined counts the Sessions on the desk.
	joined atomic.Int64
}

func newDesk(t *testing.T, change ...func(*Options)) *desk {
	t.Helper()
	caps := fake.DefaultCapabilities()
	caps.Sessions = true
	d := &desk{t: t, fake: fake.New(fake.Options{Capabilities: &caps, Generation: 1}), store: memorystore.New(memorystore.Options{}), spawns: true}
	o := Options{
		Store: d.store, Log: slog.New(slog.DiscardHandler), Rules: config.Default().Sessions, Abandoned: &calls.Abandoned{},
		Prepare: time.Minute, Upload: time.Minute, Stop: time.Second, Stopping: make(chan struct{}),
		Spawn: func(f func()) bool {
			d.free()
			if d.spawns {
				go f()
			}
			return d.spawns
		},
		Full: func(what string) error {
			d.free()
			return executor.Errorf(executor.Exhausted, "%s", what)
		},
		Refused: func() { d.refused++ },
		Internal: func(_ string, err error) error {
			d.free()
			return err
		},
		Home: func(name string) Home {
			if name != "fake" {
				return nil
			}
			return d
		},
	}
	o.Base, d.halt = context.WithCancelCause(context.Background())
	for _, f := range change {
		f(&o)
	}
	d.Registry = New(o)
	t.Cleanup(func() {
		d.Drain()
		d.spawns = true
		d.Release()
		d.halt(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := d.joined.Load(); n != int64(len(d.Registry.open)) {
			t.Errorf("%d Sessions are at home, and %d are open", n, len(d.Registry.open))
		}
	})
	return d
}

// Sandboxes implements Home.
func (d *desk) Sandboxes() executor.Backend {
	d.free()
	return d.fake
}

// Describe implements Home.
func (d *desk) Describe(ctx context.Context) (executor.Info, error) {
	d.free()
	return d.fake.Info(ctx)
}

// Keeps implements Home.
func (d *desk) Keeps() bool { return false }

// Answered implements Home.
func (d *desk) Answered() bool { return true }

// Join implements Home.
func (d *desk) Join() { d.joined.Add(1) }

// Leave implements Home.
func (d *desk) Leave() { d.joined.Add(-1) }

// free hangs unless the Registry's lock is free, as it must be when the engine is called.
func (d *desk) free() {
	d.mu.Lock()
	d.mu.Unlock() //nolint:staticcheck // it was free
}

func (d *desk) open() *Session {
	d.t.Helper()
	v, err := d.Open(d.t.Context(), executor.Session{
		Owner: "alice", Backend: "fake", Language: executor.LanguagePython, IdleTimeout: time.Hour, Limits: executor.Limits{DiskBytes: 1 << 20},
	}, d)
	if err != nil {
		d.t.Fatal(err)
	}
	s, _, err := d.Find(d.t.Context(), v.ID, func(owner string) bool { return owner == "alice" })
	if err != nil || s == nil {
		d.t.Fatal(s, err)
	}
	return s
}

// run is a Run that notes what it is told.
type run struct {
	desk *desk
	name string
	told []string
	turn *Turn
}

func (r *run) ID() string { return r.name }

func (r *run) Proceed() {
	r.desk.free()
	r.told = append(r.told, "proceed")
}

func (r *run) Stop(cause error) {
	r.desk.free()
	r.told = append(r.told, cause.Error())
}

func (r *run) want(told ...string) {
	r.desk.t.Helper()
	if strings.Join(r.told, ", ") != strings.Join(told, ", ") {
		r.desk.t.Errorf("%s was told %q, want %q", r.name, r.told, told)
	}
}

// join gives a Run a Turn. A Run that is free may start at once if starts is set.
func (d *desk) join(s *Session, name string, uploading, starts bool) *run {
	d.t.Helper()
	x := &run{desk: d, name: name}
	turn, err := s.Join(x, uploading, func(free bool) (bool, error) { return free && starts, nil })
	if err != nil {
		d.t.Fatalf("%s: %v", name, err)
	}
	x.turn = turn
	return x
}

func wantNext(t *testing.T, next Run, want *run) {
	t.Helper()
	if want == nil && next == nil {
		return
	}
	if got, ok := next.(*run); !ok || got != want {
		t.Errorf("next is %v, want %v", next, want)
	}
}

func wantView(t *testing.T, s *Session, running string, waiting int) {
	t.Helper()
	if v := s.View(); v.Running != running || v.Waiting != waiting {
		t.Errorf("%q runs and %d wait, want %q and %d", v.Running, v.Waiting, running, waiting)
	}
}

func TestTurnsComeInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		first := d.join(s, "first", false, true)
		wantView(t, s, "first", 0)
		second, third := d.join(s, "second", false, true), d.join(s, "third", false, true)
		wantNext(t, third.turn.Wait(), nil)
		wantView(t, s, "first", 2)
		wantNext(t, first.turn.Leave(), nil) // second is not ready, and holds up third
		wantNext(t, second.turn.Wait(), second)
		wantView(t, s, "", 2)
		second.turn.SetRunning(true)
		wantView(t, s, "second", 1)
		second.turn.SetRunning(false) // it pauses before another attempt, and keeps its turn
		wantView(t, s, "", 2)
		wantNext(t, second.turn.Wait(), second)
		wantNext(t, second.turn.Leave(), third)
		wantNext(t, second.turn.Leave(), nil)
		wantNext(t, third.turn.Leave(), nil)
		var none *Turn
		wantNext(t, none.Leave(), nil)
		wantNext(t, none.Finish(true), nil)
		none.SetRunning(true)
		wantView(t, s, "", 0)
	})
}

func TestARunWhoseInputIsBeingUploadedIsPassedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		slow := d.join(s, "slow", true, false)
		quick := d.join(s, "quick", false, true)
		wantView(t, s, "quick", 1)
		wantNext(t, slow.turn.Wait(), nil)
		wantNext(t, quick.turn.Leave(), slow)
		wantNext(t, slow.turn.Leave(), nil)
	})
}

func TestATurnThatFinishesHoldsTheNextOneUntilItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		first := d.join(s, "first", false, true)
		waits := d.join(s, "waits", false, true)
		wantNext(t, waits.turn.Wait(), nil)
		wantNext(t, first.turn.Finish(true), nil)
		wantView(t, s, "", 1)
		wantNext(t, waits.turn.Leave(), nil)
		late := d.join(s, "late", false, true) // the log of first is not closed
		wantView(t, s, "", 1)
		wantNext(t, late.turn.Wait(), nil)
		wantNext(t, first.turn.Leave(), late)
		wantNext(t, late.turn.Finish(false), nil)
		wantNext(t, d.join(s, "next", false, true).turn.Finish(false), nil)
	})
}

func TestOnlySoManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, func(o *Options) { o.Rules.MaxWaiting = 1 })
		s := d.open()
		running := d.join(s, "running", false, true)
		waiting := d.join(s, "waiting", false, true)
		start := func(bool) (bool, error) {
			t.Error("a Run that finds no place has been started")
			return false, nil
		}
		if _, err := s.Join(&run{desk: d}, false, start); !errors.Is(err, ErrFull) {
			t.Errorf("a second one that waits: %v", err)
		}
		if _, err := s.Variables(t.Context()); executor.CodeOf(err) != executor.Exhausted || err.Error() != Full {
			t.Errorf("a tool: %v", err)
		}
		no := errors.New("no slot")
		wantNext(t, waiting.turn.Leave(), nil)
		if _, err := s.Join(&run{desk: d}, false, func(bool) (bool, error) { return false, no }); !errors.Is(err, no) {
			t.Errorf("one that start refuses: %v", err)
		}
		wantView(t, s, "running", 0)
		wantNext(t, running.turn.Leave(), nil)
		wantView(t, s, "", 0)
	})
}

func TestAToolTakesTurnsWithRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running := d.join(s, "running", false, true)
		listed := make(chan error, 1)
		go func() {
			_, err := s.Variables(t.Context())
			listed <- err
		}()
		synctest.Wait()
		behind := d.join(s, "behind", false, true)
		wantNext(t, behind.turn.Wait(), nil)
		wantView(t, s, "running", 1) // a tool is no Execution
		select {
		case err := <-listed:
			t.Errorf("the tool did not wait: %v", err)
		default:
		}
		wantNext(t, running.turn.Leave(), nil) // the tool has it
		if err := <-listed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		behind.want("proceed")
		wantNext(t, behind.turn.Leave(), nil)

		// One that gives up leaves the line.
		running = d.join(s, "running", false, true)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			_, err := s.Variables(ctx)
			listed <- err
		}()
		synctest.Wait()
		cancel(errors.New("gave up"))
		if err := <-listed; executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "gave up") {
			t.Errorf("a tool that gives up: %v", err)
		}
		behind = d.join(s, "behind", false, true)
		wantNext(t, behind.turn.Wait(), nil)
		wantNext(t, running.turn.Leave(), behind)
		wantNext(t, behind.turn.Leave(), nil)
	})
}

func TestACloseEndsWhatRunsAndWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running, waiting := d.join(s, "running", false, true), d.join(s, "waiting", false, true)
		tool := make(chan error, 1)
		go func() {
			_, err := s.AddRequirements(t.Context(), "six")
			tool <- err
		}()
		synctest.Wait()
		closed := make(chan executor.Session, 1)
		go func() {
			v, err := s.Close(t.Context())
			if err != nil {
				t.Error(err)
			}
			closed <- v
		}()
		synctest.Wait()
		told := "its session was closed: by request"
		running.want(told)
		waiting.want(told)
		if err := <-tool; executor.CodeOf(err) != executor.Conflict || !strings.Contains(err.Error(), told) {
			t.Errorf("the tool: %v", err)
		}
		if v := s.View(); v.Status != executor.SessionClosed || v.Reason != "by request" || v.Waiting != 0 {
			t.Errorf("while it closes it is %+v", v)
		}
		if len(closed) > 0 {
			t.Error("closed before its Execution has ended")
		}
		if _, err := s.Join(&run{desk: d}, false, nil); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("a Run that comes too late: %v", err)
		}
		if _, err := s.ListFiles(t.Context(), "", false); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("a file operation that comes too late: %v", err)
		}
		wantNext(t, waiting.turn.Leave(), nil)
		wantNext(t, running.turn.Leave(), nil)
		if v := <-closed; v.Status != executor.SessionClosed {
			t.Errorf("closed, it is %+v", v)
		}
		if left := d.fake.Sessions(); len(left) > 0 {
			t.Errorf("the backend has %v", left)
		}
		v, err := s.Close(t.Context())
		if err != nil || v.Status != executor.SessionClosed {
			t.Errorf("closed again: %+v, %v", v, err)
		}
	})
}

func TestALostInterpreterEndsWhatWaitsUntilARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		died, waiting := d.join(s, "died", false, true), d.join(s, "waiting", false, true)
		_ = waiting.turn.Wait()
		s.Ran(executor.Result{Status: executor.StatusFailed, Signal: "SIGSEGV", SessionState: executor.SessionStateLost})
		waiting.want("its session was lost: its interpreter was ended by SIGSEGV")
		died.want()
		wantNext(t, died.turn.Leave(), nil)
		if _, err := s.Join(&run{desk: d}, false, nil); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("a Run in a lost Session: %v", err)
		}
		if _, err := s.ListFiles(t.Context(), "", false); err != nil {
			t.Errorf("the files of a lost Session: %v", err)
		}
		v, err := s.Restart(t.Context(), false)
		if err != nil || v.Status != executor.SessionActive || v.Reason != "" || v.Restarts != 1 {
			t.Errorf("restarted: %+v, %v", v, err)
		}
		rec, err := d.store.GetSessionRecord(t.Context(), s.ID)
		if err != nil || rec.Status != executor.SessionActive || rec.Restarts != 1 {
			t.Errorf("the record is %+v, %v", rec, err)
		}
		again := d.join(s, "again", false, true)
		wantView(t, s, "again", 0)
		wantNext(t, again.turn.Leave(), nil)
	})
}

func TestARestartGoesBeforeWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running, waiting := d.join(s, "running", false, true), d.join(s, "waiting", false, true)
		_ = waiting.turn.Wait()
		restarted := make(chan error, 1)
		go func() {
			_, err := s.Restart(t.Context(), false)
			restarted <- err
		}()
		synctest.Wait()
		running.want("its session was restarted")
		waiting.want()
		wantNext(t, running.turn.Leave(), nil)
		if err := <-restarted; err != nil {
			t.Error(err)
		}
		waiting.want("proceed")
		wantNext(t, waiting.turn.Leave(), nil)
	})
}

func TestATurnOfAnEngineThatStopsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running := d.join(s, "running", false, true)
		stopped := errors.New("the server stopped")
		waited := make(chan error, 1)
		go func() {
			_, err := s.Restart(context.Background(), false)
			waited <- err
		}()
		synctest.Wait()
		d.halt(stopped)
		if err := <-waited; !errors.Is(err, stopped) {
			t.Errorf("it is told %v", err)
		}
		wantNext(t, running.turn.Leave(), nil)
	})
}

func TestNothingOpensWhileTheServerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		d.Drain()
		if _, err := d.Open(t.Context(), executor.Session{Owner: "bob", Backend: "fake"}, d); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("open: %v", err)
		}
		if _, err := s.Restart(t.Context(), false); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("restart: %v", err)
		}
		time.Sleep(2 * time.Hour) // the idle time is over, and nothing expires any more
		synctest.Wait()
		if v := s.View(); v.Status != executor.SessionActive {
			t.Errorf("it is %+v", v)
		}
		d.spawns = false // the engine has closed
		if v, err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %+v, %v", v, err)
		}
		d.fake.CloseSession(t.Context(), s.ID) //nolint:errcheck // the fake
	})
}

func TestWhatAClosedSessionCannotDoAnyMoreIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		broke := executor.Errorf(executor.Unavailable, "its runner is gone")
		missing := executor.FieldErrorf(executor.NotFound, "path", "is not there")
		want := func(err error, code executor.Code) {
			t.Helper()
			if got := s.explain("use it", err); executor.CodeOf(got) != code {
				t.Errorf("%v becomes %v, want %s", err, got, code)
			}
		}
		want(broke, executor.Unavailable)
		want(missing, executor.NotFound)
		running := d.join(s, "running", false, true)
		s.beginClose("by request")
		want(broke, executor.Conflict)
		want(missing, executor.NotFound)
		wantNext(t, running.turn.Leave(), nil)
		<-s.closed
		want(broke, executor.Conflict)
		want(missing, executor.Conflict)
	})
}

func TestAnExecutionOfAnEarlierLifeIsRejoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		x, y := &run{desk: d, name: "x"}, &run{desk: d, name: "y"}
		if got, _, reason := d.Rejoin("ctx-none", x, true); got != nil || reason == "" {
			t.Errorf("in a Session that is gone: %v, %q", got, reason)
		}
		got, running, reason := d.Rejoin(s.ID, x, true)
		_, waiting, _ := d.Rejoin(s.ID, y, false)
		if got != s || reason != "" {
			t.Errorf("%v, %q", got, reason)
		}
		wantView(t, s, "x", 1)
		wantNext(t, waiting.Wait(), nil)
		wantNext(t, running.Leave(), y)
		wantNext(t, waiting.Leave(), nil)
		s.lose("gone", false)
		if got, lost, reason := d.Rejoin(s.ID, x, false); got != s || reason != "its session is lost: gone" {
			t.Errorf("in a lost Session: %v, %q", got, reason)
		} else {
			lost.Leave()
		}
	})
}

func TestACheckThatWaitsForAnotherEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		s.checking <- struct{}{} // another check is under way
		ctx, cancel := context.WithCancelCause(t.Context())
		checked := make(chan error, 1)
		go func() { checked <- s.Check(ctx) }()
		synctest.Wait()
		cancel(errors.New("gone"))
		if err := <-checked; executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "gone") {
			t.Errorf("it says %v", err)
		}
		<-s.checking
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
