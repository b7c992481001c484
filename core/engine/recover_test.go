package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// leftover is what a core that dies leaves of an Execution, and how the next one ends it.
type leftover struct {
	spec      executor.Spec
	events    []executor.Body
	attempts  int
	cancelled bool
	status    executor.Status
}

func TestRecoveryEndsEveryIdOnce(t *testing.T) {
	t.Parallel()
	started := executor.Started{Handle: []byte("h"), PythonVersion: "3.12.1", Requirements: []string{"six==1.17.0"}}
	lasting := executor.Spec{Code: "print again", Durable: true}
	for _, test := range []struct {
		name string
		leftover
		runs     int
		attempts int
		// removed: what an earlier life may have left of it on its backend is removed.
		removed bool
		written int64
	}{
		{"queued durably", leftover{spec: lasting, events: []executor.Body{executor.Queued{}}, status: executor.StatusSucceeded}, 1, 1, false, 0},
		{"queued durably, perhaps started", leftover{spec: lasting, events: []executor.Body{executor.Queued{}, executor.Progress{}}, attempts: 1, status: executor.StatusSucceeded}, 1, 2, true, 0},
		{"queued durably, started too often", leftover{spec: lasting, events: []executor.Body{executor.Queued{}}, attempts: maxAttempts, status: executor.StatusLost}, 0, maxAttempts, false, 0},
		{"queued durably, cancelled", leftover{spec: lasting, events: []executor.Body{executor.Queued{}}, cancelled: true, status: executor.StatusKilled}, 0, 0, false, 0},
		{"queued for a caller who is gone", leftover{spec: executor.Spec{Code: "exit 0"}, events: []executor.Body{executor.Queued{}}, status: executor.StatusLost}, 0, 0, false, 0},
		{"running", leftover{spec: lasting, events: []executor.Body{executor.Queued{}, started, out(0, "half")}, attempts: 1, status: executor.StatusLost}, 0, 1, true, 4},
		{"running, cancelled", leftover{spec: lasting, events: []executor.Body{executor.Queued{}, started}, attempts: 1, cancelled: true, status: executor.StatusKilled}, 0, 1, true, 0},
		{"on a backend that is no more", leftover{spec: executor.Spec{Code: "x", Durable: true, Backend: "old"}, events: []executor.Body{executor.Queued{}}, status: executor.StatusLost}, 0, 0, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				store := memorystore.New(memorystore.Options{})
				var ids idSource
				id := ids.next(time.Now())
				leave(t, store, id, test.leftover)
				r := newRig(t, setup{options: Options{Store: store}})
				if res := r.result(id); res.Status != test.status {
					t.Errorf("result %+v, %+v; want %s", res, res.Failure, test.status)
				} else if slices.ContainsFunc(test.events, isStarted) && (res.StdoutBytes != test.written || res.PythonVersion != started.PythonVersion || !slices.Equal(res.Requirements, started.Requirements)) {
					t.Errorf("result %+v does not say what had started", res)
				}
				if x := must(r.Get(as("alice"), id)); x.Attempts != test.attempts {
					t.Errorf("%d attempts, want %d", x.Attempts, test.attempts)
				}
				if runs := len(r.fake.Runs()); runs != test.runs {
					t.Errorf("%d runs, want %d", runs, test.runs)
				}
				if removed := slices.Contains(r.fake.Removed(), id); removed != test.removed {
					t.Errorf("removed: %t, want %t", removed, test.removed)
				}
				r.wantIdle()
			})
		})
	}
}

func isStarted(b executor.Body) bool {
	_, ok := b.(executor.Started)
	return ok
}

func leave(t *testing.T, store executor.Store, id string, l leftover) {
	t.Helper()
	backend := l.spec.Backend
	if backend == "" {
		backend = "fake"
	}
	rec := executor.Record{Execution: executor.Execution{ID: id, Owner: "alice", Spec: l.spec, Status: executor.StatusQueued, Backend: backend, CreatedAt: time.Now(), Attempts: l.attempts}, Cancelled: l.cancelled}
	if _, _, err := store.Create(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for _, b := range l.events {
		if err := store.Append(t.Context(), id, executor.Event{Body: b}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecoveryKeepsTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		var want []string
		for range 700 {
			id := ids.next(time.Now())
			leave(t, store, id, leftover{spec: executor.Spec{Code: "sleep 1s", Durable: true}, events: []executor.Body{executor.Queued{}}})
			want = append(want, id)
		}
		r := newRig(t, setup{options: Options{Store: store, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1}}})
		_, err := r.Submit(t.Context(), executor.Spec{Code: "x"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		r.result(want[len(want)-1])
		if !slices.Equal(r.fake.Runs(), want) {
			t.Error("they ran in another order")
		}
		r.wantIdle()
	})
}

func TestRecoveryAttachesWhereItCan(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		cancel    bool
		forgotten bool
		status    executor.Status
		stdout    string
	}{
		{name: "to its end", status: executor.StatusSucceeded, stdout: "one\ntwo\nthree\n"},
		{name: "cancelled", cancel: true, status: executor.StatusKilled, stdout: "one\n"},
		{name: "found no more", forgotten: true, status: executor.StatusLost, stdout: "one\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				caps := fake.DefaultCapabilities()
				caps.Attach = true
				store := newFailingStore()
				o := Options{Store: store, Blobs: openBlobs(t)}
				r := newRig(t, setup{fake: fake.Options{Capabilities: &caps}, options: o})
				x := r.submit(t.Context(), "print one\nsleep 10s\nprint two\nsleep 10s\nprint three", durable)
				time.Sleep(5 * time.Second)
				// The core dies: nothing more gets into the store, the program runs on.
				store.set(func(string, ...executor.Event) error { return errors.New("dead") })
				heir := r.fake.Abandon()
				synctest.Wait()
				_ = r.closeNow()
				store.set(nil)
				time.Sleep(10 * time.Second)
				if test.forgotten {
					if err := heir.Remove(t.Context(), x.ID); err != nil {
						t.Fatal(err)
					}
					heir = fake.New(fake.Options{Capabilities: &caps})
				}
				next := newRig(t, setup{backend: heir, options: o})
				if test.cancel {
					if got := must(next.Cancel(t.Context(), x.ID)); got.Status != executor.StatusKilled {
						t.Errorf("cancelled: %+v", got)
					}
				}
				res := next.result(x.ID)
				events := next.events(x.ID)
				if res.Status != test.status || !strings.HasPrefix(stdout(events), test.stdout) {
					t.Errorf("result %+v, %+v, stdout %q", res, res.Failure, stdout(events))
				}
				next.wantIdle()
			})
		})
	}
}

// TestAResultOutlivesALogThatDidNotTakeIt: the core dies between the Result and the end of the log, with its plugin or without.
func TestAResultOutlivesALogThatDidNotTakeIt(t *testing.T) {
	t.Parallel()
	for _, abandoned := range []bool{false, true} {
		t.Run(map[bool]string{false: "the backend lives", true: "its plugin dies, too"}[abandoned], func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				caps := fake.DefaultCapabilities()
				caps.Attach = true
				store := newFailingStore()
				store.set(func(_ string, events ...executor.Event) error {
					if len(events) > 0 {
						if _, ok := events[len(events)-1].Body.(executor.Finished); ok {
							return executor.Errorf(executor.Unavailable, "the core is killed before")
						}
					}
					return nil
				})
				o := Options{Store: store, Blobs: openBlobs(t)}
				r := newRig(t, setup{fake: fake.Options{Capabilities: &caps}, options: o})
				x := r.submit(t.Context(), "print one\nwrite-file a A\nexit 3", durable, func(s *executor.Spec) { s.Outputs = []string{"a"} })
				synctest.Wait()
				if left := r.fake.Running(); len(left) != 0 {
					t.Fatalf("it runs on: %v", left)
				}
				_ = r.closeNow()
				if removed := r.fake.Removed(); len(removed) != 0 {
					t.Errorf("removed before the log had the end: %v", removed)
				}
				heir := r.fake
				if abandoned {
					heir = heir.Abandon()
				}
				next := newRig(t, setup{backend: heir, options: Options{Store: store.Store, Blobs: o.Blobs}})
				res := next.result(x.ID)
				if res.Status != executor.StatusFailed || res.ExitCode == nil || *res.ExitCode != 3 || len(res.Artifacts) != 1 || stdout(next.events(x.ID)) != "one\n" {
					t.Errorf("%+v, %+v", res, res.Failure)
				}
				next.wantIdle()
				if removed, runs := heir.Removed(), heir.Runs(); !slices.Equal(removed, []string{x.ID}) || len(runs) != 1 {
					t.Errorf("removed %v, ran %v", removed, runs)
				}
			})
		})
	}
}

// The time between two lives of the server is not one in which an Execution has waited.
func TestTheDeadlineOfTheQueueBeginsAnewInTheNextLife(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		var queued []string
		for range 3 {
			id := ids.next(time.Now())
			leave(t, store, id, leftover{spec: executor.Spec{Code: "sleep 40m", Durable: true, Limits: executor.Limits{Timeout: time.Hour}}, events: []executor.Body{executor.Queued{}}})
			queued = append(queued, id)
		}
		time.Sleep(2 * time.Hour)
		r := newRig(t, setup{options: Options{Store: store, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}, Deadlines: Deadlines{Queue: time.Hour}}})
		for i, want := range []executor.Status{executor.StatusSucceeded, executor.StatusSucceeded, executor.StatusLost} {
			if res := r.result(queued[i]); res.Status != want {
				t.Errorf("number %d: %+v, %+v; want %s", i+1, res, res.Failure, want)
			}
		}
	})
}

func TestABackendThatComesUpLateIsWaitedForByWhatRunsInIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		o := Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t)}
		s.options = o
		r := newRig(t, s)
		x := r.submit(t.Context(), "print one\nsleep 10s\nprint two", durable)
		synctest.Wait()
		plugin.die(100 * time.Second)
		_ = r.closeNow()
		next := newRig(t, s)
		if res := next.result(x.ID); res.Status != executor.StatusSucceeded || stdout(next.events(x.ID)) != "one\ntwo\n" {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		next.wantIdle()
	})
}

// A program that was cancelled does not go on: its backend gets only the time that it has to stop one.
func TestABackendThatIsAwayIsNotWaitedForLongByWhatWasCancelled(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		id := ids.next(time.Now())
		leave(t, store, id, leftover{spec: executor.Spec{Code: "x", Durable: true}, attempts: 1, cancelled: true, events: []executor.Body{
			executor.Queued{}, executor.Started{Handle: []byte("h")},
		}})
		s, plugin := withRelay(lasting)
		plugin.current().SetDown(executor.Errorf(executor.Unavailable, "away"))
		s.options.Store = store
		began := time.Now()
		r := newRig(t, s)
		if res := r.result(id); res.Status != executor.StatusKilled {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		if waited := time.Since(began); waited < r.deadlines.Stop || waited > 2*r.deadlines.Stop { // on the bubble's clock
			t.Errorf("it was waited for %s, want about %s", waited, r.deadlines.Stop)
		}
	})
}

func TestALifeThatEndsBeforeTheBackendIsUpLeavesItsProgramsToTheNext(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		s.options = Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t)}
		r := newRig(t, s)
		x := r.submit(t.Context(), "print one\nsleep 10s\nprint two", durable)
		place := r.open(as("alice"))
		r.say(as("alice"), place, "set x 1")
		synctest.Wait() // its program runs
		plugin.die(30 * time.Second)
		_ = r.closeNow()
		for drain := range 2 { // one that ends at once, one that lets what runs end
			short := newRig(t, s)
			time.Sleep(5 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(drain)*5*time.Second)
			if err := short.Close(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		next := newRig(t, s)
		time.Sleep(time.Minute)
		if got := next.say(as("alice"), place, "get x"); got != "1\n" {
			t.Errorf("its session said %q", got)
		}
		if res := next.result(x.ID); res.Status != executor.StatusSucceeded || stdout(next.events(x.ID)) != "one\ntwo\n" {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		next.wantIdle()
	})
}

// TestWhatHasJustEndedIsRemovedByTheNextLife: the core dies between the end of the log and Remove.
func TestWhatHasJustEndedIsRemovedByTheNextLife(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		ended := func(ago time.Duration, handle string) string {
			id := ids.next(time.Now())
			time.Sleep(3*time.Minute - ago)
			leave(t, store, id, leftover{spec: executor.Spec{Code: "x"}, attempts: 1, events: []executor.Body{
				executor.Queued{}, executor.Started{Handle: []byte(handle)}, executor.Finished{Result: executor.Result{Status: executor.StatusSucceeded}},
			}})
			time.Sleep(ago)
			return id
		}
		before, other := ended(0, "h"), ended(0, "")
		just := ended(30*time.Second, "h")
		r := newRig(t, setup{options: Options{Store: store}})
		synctest.Wait()
		if removed := r.fake.Removed(); !slices.Equal(removed, []string{just}) {
			t.Errorf("removed %v; want %s, and not %s, which is long ago, nor %s, which nobody holds", removed, just, before, other)
		}
		if retired := r.change("next", another(setup{}))[0]; !isDrained(retired) {
			t.Error("what was removed is still on its backend")
		}
		r.wantIdle()
	})
}
