package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// relay is a configured backend whose plugin process can be replaced, as a host's is.
type relay struct {
	mu  sync.Mutex
	now *fake.Backend
}

func (r *relay) current() *fake.Backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// die kills the plugin; it is away for that long.
func (r *relay) die(away time.Duration) {
	old := r.current()
	next := old.Abandon()
	time.AfterFunc(away, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now = next
	})
	if away == 0 {
		synctest.Wait()
	}
}

func (r *relay) Info(ctx context.Context) (executor.Info, error) { return r.current().Info(ctx) }
func (r *relay) Run(ctx context.Context, j executor.Job, s executor.Sink) (executor.Result, error) {
	return r.current().Run(ctx, j, s)
}
func (r *relay) Attach(ctx context.Context, j executor.Job, from executor.Resume, s executor.Sink) (executor.Result, error) {
	return r.current().Attach(ctx, j, from, s)
}
func (r *relay) Remove(ctx context.Context, id string) error { return r.current().Remove(ctx, id) }

// relayed is a relay with sessions.
type relayed struct {
	*relay
	executor.SessionBackend
}

func (r relayed) session() executor.SessionBackend { return r.current() }

func (r relayed) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	return r.session().OpenSession(ctx, s)
}
func (r relayed) AdoptSession(ctx context.Context, s executor.Session, h []byte) (executor.OpenedSession, error) {
	return r.session().AdoptSession(ctx, s, h)
}
func (r relayed) RestartSession(ctx context.Context, id string, wipe bool) error {
	return r.session().RestartSession(ctx, id, wipe)
}
func (r relayed) CloseSession(ctx context.Context, id string) error {
	return r.session().CloseSession(ctx, id)
}
func (r relayed) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	return r.session().Variables(ctx, id)
}
func (r relayed) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	return r.session().ListFiles(ctx, id, path, recursive)
}

// withRelay puts a relay before a fake with sessions.
func withRelay(change ...func(*setup)) (setup, *relay) {
	s := withSessions(change...)
	r := &relay{now: fake.New(s.fake)}
	s.backend = relayed{relay: r}
	return s, r
}

func TestSessionsThatEndWithTheirPluginAreLostAndSaySo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay()
		r := newRig(t, s)
		ctx := as("alice")
		idle, busy := r.open(ctx), r.open(ctx)
		runs := r.submit(ctx, "hang", in(busy))
		waits := r.submit(ctx, "exit 0", in(busy), durable)
		synctest.Wait()
		plugin.die(3 * time.Second)
		if res := r.result(runs.ID); res.Status != executor.StatusLost || res.Failure.Code != executor.Unavailable {
			t.Errorf("what ran: %+v, %+v", res, res.Failure)
		}
		if res := r.result(waits.ID); res.Status != executor.StatusLost || !strings.Contains(res.Failure.Message, "the backend fake went away") {
			t.Errorf("what waited: %+v, %+v", res, res.Failure)
		}
		time.Sleep(2 * lookInterval) // nobody has used the other one
		for _, s := range []executor.Session{idle, busy} {
			if v := r.session(s); v.Status != executor.SessionLost || v.Reason != "backend fake was restarted" {
				t.Errorf("the session is %+v", v)
			}
		}
		_, err := r.RestartSession(ctx, idle.ID, false)
		wantCode(t, err, executor.Conflict, "session")
		_, err = r.ListFiles(ctx, idle.ID, "", false)
		wantCode(t, err, executor.Conflict, "session")
		if v := must(r.CloseSession(ctx, idle.ID)); v.Status != executor.SessionClosed {
			t.Errorf("closed: %+v", v)
		}
		if got := r.say(ctx, r.open(ctx), "print again"); got != "again\n" {
			t.Errorf("a new one said %q", got)
		}
		r.wantIdle()
		time.Sleep(70 * time.Minute)
		synctest.Wait()
		if list := must(r.ListSessions(ctx)); len(list) != 1 || list[0].Status != executor.SessionClosed {
			t.Errorf("listed: %+v", list)
		}
	})
}

func TestSessionsThatOutliveTheirPluginAreAdoptedWithWhatRunsInThem(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		r := newRig(t, s)
		ctx := as("alice")
		idle, busy := r.open(ctx), r.open(ctx)
		r.say(ctx, idle, "set x 1")
		runs := r.submit(ctx, "print one\nwait gate\nset y 2\nprint two\nwrite-file a.txt A", in(busy), func(s *executor.Spec) { s.Outputs = []string{"a.txt"} })
		waits := r.submit(ctx, "get y", in(busy), durable)
		synctest.Wait()
		plugin.die(3 * time.Second)
		time.Sleep(10 * time.Second)
		plugin.current().Release("gate")
		if res := r.result(runs.ID); res.Status != executor.StatusSucceeded || stdout(r.events(runs.ID)) != "one\ntwo\n" || len(res.Artifacts) != 1 {
			t.Errorf("what ran: %+v, %+v, %q", res, res.Failure, stdout(r.events(runs.ID)))
		}
		if r.result(waits.ID); stdout(r.events(waits.ID)) != "2\n" {
			t.Errorf("what waited said %q", stdout(r.events(waits.ID)))
		}
		if got := r.say(ctx, idle, "get x"); got != "1\n" {
			t.Errorf("the idle one said %q", got)
		}
		if v := r.session(idle); v.Status != executor.SessionActive || v.Generation != 2 {
			t.Errorf("the session is %+v", v)
		}
		plugin.die(0)
		_ = must(r.ListFiles(ctx, idle.ID, "", false)) // the first use adopts
		plugin.current().DropSession(busy.ID)
		x := r.submit(ctx, "get y", in(busy))
		if res := r.result(x.ID); res.Status != executor.StatusLost || !strings.Contains(res.Failure.Message, "sandbox no more") {
			t.Errorf("in one whose sandbox is gone: %+v, %+v", res, res.Failure)
		}
		if v := r.session(busy); v.Status != executor.SessionLost {
			t.Errorf("it is %+v", v)
		}
		r.wantIdle()
	})
}

func TestTheNextLifeGoesOnWithSessionsAndWhatRunsInThem(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]bool{"after a close": false, "after a crash": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				store := &failingStore{Store: memorystore.New(memorystore.Options{})}
				s, plugin := withRelay(lasting, func(s *setup) { s.options.Store, s.options.Blobs = store, openBlobs(t) })
				r := newRig(t, s)
				ctx := as("alice")
				session := r.open(ctx)
				r.say(ctx, session, "set x 1")
				runs := r.submit(ctx, "print one\nwait gate\nadd x 1\nprint two", in(session), durable)
				first := r.submit(ctx, "add x 10\nget x", in(session), durable)
				second := r.submit(ctx, "add x 100\nget x", in(session), durable)
				plain := r.submit(ctx, "print a\nwait gate\nprint b", durable)
				synctest.Wait()
				if crash {
					store.set(func(string, ...executor.Event) error { return errors.New("dead") })
				}
				if err := r.closeNow(); err != nil {
					t.Fatal(err)
				}
				store.set(nil)
				if !crash {
					for _, id := range []string{runs.ID, plain.ID} {
						if x := must(store.Get(context.Background(), id)); x.Status != executor.StatusRunning {
							t.Errorf("%s is %s", id, x.Status)
						}
					}
				}
				plugin.die(time.Second)
				r = newRig(t, s)
				time.Sleep(10 * time.Second)
				plugin.current().Release("gate")
				for id, want := range map[string]string{runs.ID: "one\ntwo\n", first.ID: "12\n", second.ID: "112\n", plain.ID: "a\nb\n"} {
					if res := r.result(id); res.Status != executor.StatusSucceeded || stdout(r.events(id)) != want {
						t.Errorf("%s: %+v, %+v, %q, want %q", id, res, res.Failure, stdout(r.events(id)), want)
					}
				}
				if v := r.session(session); v.Status != executor.SessionActive || v.Generation != 2 {
					t.Errorf("the session is %+v", v)
				}
				r.wantIdle()
			})
		})
	}
}

// elsewhere is a relay whose sandboxes outlive it, and whose programs do not, as with workers on other machines.
type elsewhere struct{ relayed }

func (b elsewhere) Info(ctx context.Context) (executor.Info, error) {
	info, err := b.relayed.Info(ctx)
	info.Capabilities.Attach = false
	return info, err
}

func TestTheNextLifeGoesOnWithSessionsThatHaveAHandle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		s, plugin := withRelay(lasting, func(s *setup) { s.options.Store, s.options.Blobs = store, openBlobs(t) })
		s.backend = elsewhere{relayed{relay: plugin}}
		r := newRig(t, s)
		ctx := as("alice")
		idle, busy := r.open(ctx), r.open(ctx)
		r.say(ctx, idle, "set x 1")
		runs := r.submit(ctx, "hang", in(busy), durable)
		waits := r.submit(ctx, "set y 2\nget y", in(busy), durable)
		synctest.Wait()
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		for _, v := range []executor.Session{idle, busy} {
			if v := must(store.GetSessionRecord(ctx, v.ID)); v.Status != executor.SessionActive {
				t.Errorf("after the close: %+v", v.Session)
			}
		}
		plugin.die(time.Second)
		r = newRig(t, s)
		if res := r.result(runs.ID); res.Status != executor.StatusLost {
			t.Errorf("what ran: %+v", res)
		}
		if res := r.result(waits.ID); res.Status != executor.StatusSucceeded || stdout(r.events(waits.ID)) != "2\n" {
			t.Errorf("what waited: %+v, %+v", res, res.Failure)
		}
		if got := r.say(ctx, idle, "get x"); got != "1\n" {
			t.Errorf("the idle one said %q", got)
		}
		r.wantIdle()
	})
}

func TestTheNextLifeEndsWhatItsSessionsCannotRunAnyMore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		s, plugin := withRelay(func(s *setup) { s.options.Store, s.options.Blobs = store, openBlobs(t) })
		r := newRig(t, s)
		ctx := as("alice")
		session := r.open(ctx)
		runs := r.submit(ctx, "hang", in(session), durable)
		waits := r.submit(ctx, "exit 0", in(session), durable)
		synctest.Wait()
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		if v := must(store.GetSessionRecord(ctx, session.ID)); v.Status != executor.SessionClosed || v.Reason != "the server stopped" {
			t.Errorf("the session is %+v", v.Session)
		}
		if left := plugin.current().Sessions(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		r = newRig(t, s)
		if res := r.result(runs.ID); res.Status != executor.StatusLost {
			t.Errorf("what ran: %+v", res)
		}
		if res := r.result(waits.ID); res.Status != executor.StatusLost || res.Failure.Message != "its session is gone" {
			t.Errorf("what waited: %+v, %+v", res, res.Failure)
		}
		r.wantIdle()

		embedded, _ := withRelay(lasting, func(s *setup) { s.options.Embedded = true })
		last := newRig(t, embedded)
		_ = last.open(ctx)
		backend := embedded.backend.(relayed).current()
		if err := last.closeNow(); err != nil || len(backend.Sessions()) > 0 {
			t.Errorf("an embedded engine left %v, %v", backend.Sessions(), err)
		}
	})
}

func TestASessionThatCannotOpenLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		broken := newFailingStore()
		r := newRig(t, withSessions(func(s *setup) { s.options.Store = broken; s.fake.PrepareDelay = time.Minute },
			rules(func(c *config.Sessions) { c.Max = 1 })))
		ctx := as("alice")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := r.OpenSession(short, executor.Session{})
		wantCode(t, err, executor.Unavailable)
		broken.set(func(op string, _ ...executor.Event) error {
			if op == "create session" {
				return errors.New("disk full")
			}
			return nil
		})
		_, err = r.OpenSession(ctx, executor.Session{})
		wantCode(t, err, executor.Internal)
		broken.set(nil)
		r.wantNoSessions()
		_ = r.open(ctx) // the place is free
	})
}

func TestASandboxThatCouldNotBeClosedIsClosedLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting, func(s *setup) {
			s.options.Store, s.options.Blobs = memorystore.New(memorystore.Options{}), openBlobs(t)
		})
		r := newRig(t, s)
		ctx := as("alice")
		first, second := r.open(ctx), r.open(ctx)
		away := executor.Errorf(executor.Unavailable, "away")
		plugin.current().SetDown(away)
		if v := must(r.CloseSession(ctx, first.ID)); v.Status != executor.SessionClosed {
			t.Errorf("closed while its backend is away: %+v", v)
		}
		time.Sleep(time.Minute)
		plugin.current().SetDown(nil)
		time.Sleep(2 * lookInterval)
		if left := plugin.current().Sessions(); len(left) != 1 || left[0] != second.ID {
			t.Errorf("left: %v", left)
		}
		plugin.current().SetDown(away)
		_ = must(r.CloseSession(ctx, second.ID))
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		plugin.current().SetDown(nil)
		newRig(t, s)
		time.Sleep(2 * lookInterval)
		if left := plugin.current().Sessions(); len(left) > 0 {
			t.Errorf("the next life left %v", left)
		}
	})
}

// TestTheNextInASessionBeginsWhenTheLogHasTheOneBefore: its backend has the Result only until then.
func TestTheNextInASessionBeginsWhenTheLogHasTheOneBefore(t *testing.T) {
	t.Parallel()
	for _, lasts := range []bool{false, true} {
		t.Run(map[bool]string{false: "that ends with its plugin", true: "that outlives its plugin"}[lasts], func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				s := withSessions()
				if lasts {
					lasting(&s)
				}
				store := newFailingStore()
				s.options.Store = store
				r := newRig(t, s)
				ctx := as("alice")
				place := r.open(ctx)
				store.set(func(_ string, events ...executor.Event) error {
					if len(events) > 0 {
						if _, ok := events[len(events)-1].Body.(executor.Finished); ok {
							return executor.Errorf(executor.Unavailable, "not now")
						}
					}
					return nil
				})
				first := r.submit(ctx, "set x 1", in(place))
				synctest.Wait()
				second := r.submit(ctx, "get x", in(place))
				synctest.Wait()
				want := []string{first.ID, second.ID}
				if lasts {
					want = want[:1]
				}
				if runs := r.fake.Runs(); !slices.Equal(runs, want) {
					t.Errorf("while the log is not closed: ran %v, want %v", runs, want)
				}
				if view := r.session(place); view.Running == first.ID {
					t.Errorf("it is over, and shown as running: %+v", view)
				}
				store.set(nil)
				if res := r.result(first.ID); res.Status != executor.StatusSucceeded {
					t.Errorf("the first: %+v", res)
				}
				if got := r.result(second.ID); got.Status != executor.StatusSucceeded || stdout(r.events(second.ID)) != "1\n" {
					t.Errorf("the second: %+v", got)
				}
				must(r.CloseSession(ctx, place.ID))
				r.wantIdle()
			})
		})
	}
}

// fullSessions is a backend whose sandboxes are gone, and it knows why.
type fullSessions struct{ relayed }

func (f fullSessions) AdoptSession(context.Context, executor.Session, []byte) (executor.OpenedSession, error) {
	return executor.OpenedSession{}, executor.Errorf(executor.Exhausted, "no memory")
}

func TestASessionWhoseSandboxRanOutOfMemorySaysSo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		s.backend = fullSessions{relayed{relay: plugin}}
		r := newRig(t, s)
		ctx := as("alice")
		place := r.open(ctx)
		plugin.die(0)
		time.Sleep(2 * lookInterval)
		if v := r.session(place); v.Status != executor.SessionLost || v.Reason != "its sandbox ran out of memory" {
			t.Errorf("%+v", v)
		}
		r.wantIdle()
	})
}

// strict is a relay that looks for a Session slowly, and notes whether it was asked to attach before it has adopted one.
type strict struct {
	relayed
	adopted, early atomic.Bool
}

func (b *strict) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	time.Sleep(time.Second)
	return b.relayed.ListFiles(ctx, id, path, recursive)
}

func (b *strict) AdoptSession(ctx context.Context, s executor.Session, h []byte) (executor.OpenedSession, error) {
	opened, err := b.relayed.AdoptSession(ctx, s, h)
	if err == nil {
		b.adopted.Store(true)
	}
	return opened, err
}

func (b *strict) Attach(ctx context.Context, j executor.Job, from executor.Resume, s executor.Sink) (executor.Result, error) {
	if !b.adopted.Load() {
		b.early.Store(true)
	}
	return b.relayed.Attach(ctx, j, from, s)
}

func TestTheNextLifeAttachesInASessionOnlyWhenThatIsAdopted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting, func(s *setup) { s.options.Store = memorystore.New(memorystore.Options{}) })
		b := &strict{relayed: relayed{relay: plugin}}
		s.backend = b
		r := newRig(t, s)
		ctx := as("alice")
		runs := r.submit(ctx, "wait gate\nprint on", in(r.open(ctx)), durable)
		synctest.Wait()
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		plugin.die(0)
		r = newRig(t, s)
		time.Sleep(10 * time.Second)
		plugin.current().Release("gate")
		if res := r.result(runs.ID); res.Status != executor.StatusSucceeded || !b.adopted.Load() || b.early.Load() {
			t.Errorf("%+v, %+v; adopted: %t, attached before that: %t", res, res.Failure, b.adopted.Load(), b.early.Load())
		}
	})
}
