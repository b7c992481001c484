package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// adopting is a relay that answers an adoption with answer.
type adopting struct {
	countedCloses
	answer func(executor.OpenedSession, error) (executor.OpenedSession, error)
}

func (b adopting) AdoptSession(ctx context.Context, s executor.Session, h []byte) (executor.OpenedSession, error) {
	return b.answer(b.relayed.AdoptSession(ctx, s, h))
}

func TestWhatAnAdoptionTellsOfASandbox(t *testing.T) {
	t.Parallel()
	refuse := func(code executor.Code) func(executor.OpenedSession, error) (executor.OpenedSession, error) {
		return func(executor.OpenedSession, error) (executor.OpenedSession, error) {
			return executor.OpenedSession{}, executor.Errorf(code, "no")
		}
	}
	withHandle := func(handle []byte) func(executor.OpenedSession, error) (executor.OpenedSession, error) {
		return func(opened executor.OpenedSession, err error) (executor.OpenedSession, error) {
			opened.Handle = handle
			return opened, err
		}
	}
	for _, test := range []struct {
		name   string
		answer func(executor.OpenedSession, error) (executor.OpenedSession, error)
		status executor.SessionStatus
		handle string // of the record afterwards; "before" is that of the open Session
	}{
		{"it is gone", refuse(executor.NotFound), executor.SessionLost, ""},
		{"the backend adopts nothing", refuse(executor.Unimplemented), executor.SessionLost, ""},
		{"the backend is away", refuse(executor.Unavailable), executor.SessionActive, "before"},
		{"the handle is another one", withHandle([]byte("new")), executor.SessionActive, "new"},
		{"there is no new handle", withHandle(nil), executor.SessionActive, "before"},
		{"the new handle is too large", withHandle(make([]byte, maxHandle+1)), executor.SessionActive, "before"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				s, plugin := withRelay(lasting)
				var closes atomic.Int32
				s.backend = adopting{countedCloses{relayed{relay: plugin}, &closes}, test.answer}
				r := newRig(t, s)
				place := r.open(as("alice"))
				before := must(r.store.GetSessionRecord(t.Context(), place.ID)).Handle
				plugin.die(0)
				time.Sleep(5 * lookInterval)
				rec := must(r.store.GetSessionRecord(t.Context(), place.ID))
				want := test.handle
				if want == "before" {
					want = string(before)
				}
				if rec.Status != test.status || string(rec.Handle) != want {
					t.Errorf("it is %s with the handle %.20q, want %s with %.20q", rec.Status, rec.Handle, test.status, want)
				}
				// Part of a sandbox that cannot be adopted may be there.
				if closed := closes.Load() > 0; closed != (test.status == executor.SessionLost) {
					t.Errorf("the sandbox was closed: %t", closed)
				}
			})
		})
	}
}

// What has its turn in a Session, and waits for a slot, ends with the Session.
func TestASessionThatIsLostEndsWhatWaitsForASlot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay()
		s.options = Options{
			Backends: map[string]executor.Backend{"fake": s.backend, "other": fake.New(fake.Options{})}, DefaultBackend: "fake",
			Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10},
		}
		r := newRig(t, s)
		place := r.open(as("alice"))
		busy := r.submit(as("alice"), "hang", func(s *executor.Spec) { s.Backend = "other" })
		waits := r.submit(as("alice"), "exit 0", in(place), durable)
		synctest.Wait()
		plugin.die(0)
		time.Sleep(2 * lookInterval)
		if v := r.session(place); v.Status != executor.SessionLost {
			t.Errorf("the session is %+v", v)
		}
		if x := must(r.Get(as("alice"), waits.ID)); x.Status != executor.StatusLost {
			t.Errorf("what waited is %s", x.Status)
		}
		if x := must(r.Get(as("alice"), busy.ID)); x.Status != executor.StatusRunning {
			t.Errorf("what has the slot is %s", x.Status)
		}
	})
}

// slowInstall is a backend whose installations last until they are stopped.
type slowInstall struct{ *fake.Backend }

func (slowInstall) AddRequirements(ctx context.Context, _, _ string) ([]string, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestARestartAndACloseEndAToolThatHasTheTurn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions()
		s.backend = slowInstall{fake.New(s.fake)}
		r := newRig(t, s)
		ctx := as("alice")
		var place executor.Session
		for what, end := range map[string]func() (executor.Session, error){
			"restart": func() (executor.Session, error) { return r.RestartSession(ctx, place.ID, false) },
			"close":   func() (executor.Session, error) { return r.CloseSession(ctx, place.ID) },
		} {
			place = r.open(ctx)
			installed := make(chan error, 1)
			go func() {
				_, err := r.AddRequirements(ctx, place.ID, "six")
				installed <- err
			}()
			synctest.Wait()
			began := time.Now()
			if _, err := end(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := <-installed; err == nil || time.Since(began) > 0 { // on the bubble's clock
				t.Errorf("%s: the installation says %v after %s", what, err, time.Since(began))
			}
		}
	})
}

// eager is a backend that opens a sandbox although its caller has gone.
type eager struct {
	*fake.Backend
	gone func()
}

func (b eager) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	b.gone()
	return b.Backend.OpenSession(context.WithoutCancel(ctx), s)
}

func TestASessionWhoseCallerHasGoneWhileItOpensIsAbandoned(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(as("alice"))
		s := withSessions()
		b := eager{fake.New(s.fake), func() { cancel(errors.New("gone")) }}
		s.backend = b
		r := newRig(t, s)
		_, err := r.OpenSession(ctx, executor.Session{})
		wantCode(t, err, executor.Unavailable)
		synctest.Wait()
		if left := b.Sessions(); len(left) > 0 || r.openSessions() != 0 {
			t.Errorf("the backend has %v, and %d sessions are open", left, r.openSessions())
		}
		if list := must(r.ListSessions(as("alice"))); len(list) != 0 {
			t.Errorf("listed: %+v", list)
		}
	})
}

func TestACloseOfALostSessionIsNoUse(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(lasting))
		ctx := as("alice")
		place := r.open(ctx)
		r.result(r.submit(ctx, "signal SEGV", in(place)).ID)
		lost := r.session(place)
		time.Sleep(time.Minute)
		closed := must(r.CloseSession(ctx, place.ID))
		if lost.Status != executor.SessionLost || closed.Status != executor.SessionClosed || !closed.LastUsed.Equal(lost.LastUsed) {
			t.Errorf("lost %+v, closed %+v", lost, closed)
		}
		if rec := must(r.store.GetSessionRecord(ctx, place.ID)); len(rec.Handle) > 0 {
			t.Error("the next life would look for a sandbox that was closed")
		}
	})
}

// A Session without a handle ends with the server, but only a backend that answers can lose one of an earlier life.
func TestASessionOfAnEarlierLifeWhoseBackendHasNotAnsweredIsLeftToTheNext(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			store := memorystore.New(memorystore.Options{})
			now := time.Now()
			id := endedEarlier(t, store, 1, executor.SessionActive, now, time.Time{})
			s := withSessions(func(s *setup) { s.options.Store = store })
			b := fake.New(s.fake)
			if down {
				b.SetDown(executor.Errorf(executor.Unavailable, "away"))
			}
			s.backend = b
			r := newRig(t, s)
			synctest.Wait()
			if err := r.closeNow(); err != nil {
				t.Error(err)
			}
			if rec := must(store.GetSessionRecord(context.Background(), id)); (rec.Status == executor.SessionActive) != down {
				t.Errorf("the backend is down: %t, and the session is %s", down, rec.Status)
			}
		})
	}
}

func TestARestartIsRefusedWhileTheServerStops(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		place := r.open(as("alice"))
		r.submit(as("alice"), "sleep 10s")
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- r.Close(context.Background()) }()
		synctest.Wait()
		_, err := r.RestartSession(as("alice"), place.ID, false)
		wantCode(t, err, executor.Unavailable)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestAFileThatIsAnnouncedTooLargeIsNotRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.MaxFileBytes = 10 })))
		place := r.open(as("alice"))
		_, err := r.WriteFile(as("alice"), place.ID, executor.File{Path: "a", SizeBytes: 11}, iotest.ErrReader(errors.New("read")))
		wantCode(t, err, executor.Exhausted, "file")
	})
}

// forgetful is a backend that reads n bytes of the first file, and then answers err.
type forgetful struct {
	*fake.Backend
	n      int64
	err    error
	writes *atomic.Int32
}

func (b forgetful) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	if b.writes.Add(1) > 1 {
		return b.Backend.WriteFile(ctx, id, file, r)
	}
	_, err := io.CopyN(io.Discard, r, b.n)
	return executor.File{}, errors.Join(err, b.err)
}

func TestAFileIsWrittenAgainOnlyIfNothingOfItWasRead(t *testing.T) {
	t.Parallel()
	unknown, path := executor.Errorf(executor.NotFound, "no such session"), executor.FieldErrorf(executor.NotFound, "path", "no such folder")
	for _, test := range []struct {
		name   string
		n      int64
		err    error
		code   executor.Code
		fields []string
		writes int32
	}{
		{"the session was not known, and nothing was read", 0, unknown, "", nil, 2},
		{"the session was not known, and half of it was read", 1, unknown, executor.Unavailable, nil, 1},
		{"the path is wrong", 1, path, executor.NotFound, []string{"path"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				s := withSessions()
				var writes atomic.Int32
				s.backend = forgetful{fake.New(s.fake), test.n, test.err, &writes}
				r := newRig(t, s)
				f, err := r.WriteFile(as("alice"), r.open(as("alice")).ID, executor.File{Path: "a", SizeBytes: 2}, strings.NewReader("ab"))
				if test.code != "" {
					wantCode(t, err, test.code, test.fields...)
				} else if err != nil || f.SizeBytes != 2 {
					t.Errorf("written: %+v, %v", f, err)
				}
				if got := writes.Load(); got != test.writes {
					t.Errorf("the backend was asked %d times, want %d", got, test.writes)
				}
			})
		})
	}
}

func TestHowLongEndedSessionsAreKeptMayBecomeShorter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.KeepClosedSeconds = time.Hour.Seconds() })))
		place := r.open(as("alice"))
		_ = must(r.CloseSession(as("alice"), place.ID))
		time.Sleep(time.Minute)
		r.change("fake", r.fake, func(o *Options) {
			o.Sessions = config.Default().Sessions
			o.Sessions.KeepClosedSeconds = 30
		})
		synctest.Wait()
		if list := must(r.ListSessions(as("alice"))); len(list) != 0 {
			t.Errorf("kept: %+v", list)
		}
	})
}

func TestTheEndOfADrainIsCountedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s := withSessions(func(s *setup) { s.options.Registerer = registry })
		r := newRig(t, s)
		_, dead := r.open(as("alice")), r.open(as("alice"))
		r.result(r.submit(as("alice"), "signal SEGV", in(dead)).ID) // it is lost before
		r.change("next", another(s))
		time.Sleep(2 * time.Minute)
		text := `# HELP python_executor_sessions_lost_total Sessions whose interpreter died or whose sandbox went away.
# TYPE python_executor_sessions_lost_total counter
python_executor_sessions_lost_total{backend="fake"} 2
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "python_executor_sessions_lost_total"); err != nil {
			t.Error(err)
		}
		if n := must(testutil.GatherAndCount(registry, "python_executor_running")); n != 2 {
			t.Errorf("the metrics tell what runs on %d backends, want 2", n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if left := len(r.queue.on) + len(r.queue.capacity); left > 2 {
			t.Errorf("the queue counts for %v, with the capacities %v", r.queue.on, r.queue.capacity)
		}
	})
}
