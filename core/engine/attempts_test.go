package engine

import (
	"context"
	"io"
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

func TestWhatIsTriedAgain(t *testing.T) {
	t.Parallel()
	away := executor.Errorf(executor.Unavailable, "away")
	later := &executor.Error{Code: executor.Exhausted, Message: "no place now", RetryAfter: time.Second}
	for _, test := range []struct {
		name   string
		answer error
		reads  bool // the backend opens the input first
		starts bool
		again  bool
	}{
		{"a backend that is away", away, false, false, true},
		{"one that has no place now", later, false, false, true},
		{"one whose other bound is reached", executor.Errorf(executor.Exhausted, "too large"), false, false, false},
		{"one that refuses", executor.Errorf(executor.Invalid, "no"), false, false, false},
		{"one that has a fault", executor.Errorf(executor.Internal, "no"), false, false, false},
		{"one that is away after it has read", away, true, false, false},
		{"one that is away after it has started", away, false, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				var tries atomic.Int64
				hook := func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
					if tries.Add(1) > 1 {
						return run(ctx, job, s)
					}
					if test.reads {
						if _, err := job.Workspace.Open(); err != nil {
							t.Error(err)
						}
					}
					if test.starts {
						if err := s.Emit(executor.Event{Body: executor.Started{}}); err != nil {
							t.Error(err)
						}
					}
					return executor.Result{}, test.answer
				}
				r := newRig(t, setup{fake: fake.Options{Hook: hook}})
				done := make(chan struct{})
				var id string
				go func() {
					defer close(done)
					in := executor.Input{Workspace: once(tarOf(t, "a", "b")), Accepted: func(x executor.Execution) { id = x.ID }}
					_, _ = r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, in)
				}()
				<-done
				res := r.result(id)
				if again := tries.Load() > 1; again != test.again || again != (res.Status == executor.StatusSucceeded) {
					t.Errorf("it was tried %d times and ended as %s, %+v; tried again: want %t", tries.Load(), res.Status, res.Failure, test.again)
				}
			})
		})
	}
}

// leavingBackend is away from its first Run on, for a while.
type leavingBackend struct {
	*fake.Backend
	away time.Duration
	mu   sync.Mutex
	back time.Time // zero before the first Run
}

// leave makes b away from now on, for a while.
func (b *leavingBackend) leave(away time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = time.Now().Add(away)
}

// state reports whether b is away, and whether it has ever been.
func (b *leavingBackend) state() (away, ever bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.back), !b.back.IsZero()
}

func (b *leavingBackend) Info(ctx context.Context) (executor.Info, error) {
	if away, _ := b.state(); away {
		return executor.Info{}, executor.Errorf(executor.Unavailable, "away")
	}
	return b.Backend.Info(ctx)
}

func (b *leavingBackend) Run(ctx context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	if _, ever := b.state(); !ever {
		b.leave(b.away)
	}
	if away, _ := b.state(); away {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "away")
	}
	return b.Backend.Run(ctx, job, s)
}

// A plugin is back within a second or two after its death. What waits for it must not wait for much longer.
func TestABackendThatIsAwayIsAskedSoonAndThenSeldom(t *testing.T) {
	t.Parallel()
	for away, want := range map[time.Duration]time.Duration{
		400 * time.Millisecond: 500 * time.Millisecond,
		time.Second:            2500 * time.Millisecond,
		5 * time.Second:        10500 * time.Millisecond,
		20 * time.Second:       40500 * time.Millisecond,
		50 * time.Second:       70500 * time.Millisecond,
	} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, setup{backend: &leavingBackend{Backend: fake.New(fake.Options{}), away: away}})
				began := time.Now()
				x := r.submit(t.Context(), "exit 0", durable)
				res := r.result(x.ID)
				if waited := time.Since(began); res.Status != executor.StatusSucceeded || waited != want {
					t.Errorf("it ended as %s after %s, want succeeded after %s", res.Status, waited, want)
				}
			})
		})
	}
}

func TestABackendThatIsAlwaysAwayIsTriedSixTimes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var tries atomic.Int64
		r := newRig(t, setup{fake: fake.Options{Hook: func(context.Context, executor.Job, executor.Sink, fake.RunFunc) (executor.Result, error) {
			tries.Add(1)
			return executor.Result{}, executor.Errorf(executor.Unavailable, "away")
		}}})
		x := r.submit(t.Context(), "exit 0", durable)
		if res := r.result(x.ID); res.Status != executor.StatusLost || tries.Load() != maxAttempts {
			t.Errorf("after %d attempts it ended as %s", tries.Load(), res.Status)
		}
		if x := must(r.Get(as("root", executor.ScopeAdmin, executor.ScopeRead), x.ID)); x.Attempts != maxAttempts {
			t.Errorf("it says %d attempts, want %d", x.Attempts, maxAttempts)
		}
	})
}

func TestAnExecutionWhoseInputIsGoneIsLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
		first := r.submit(t.Context(), "hang")
		x := must(r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, executor.Input{Workspace: once(tarOf(t, "a", "b"))}))
		if err := r.blobs.Delete(t.Context(), x.ID+blobWorkspace); err != nil {
			t.Fatal(err)
		}
		_ = must(r.Cancel(t.Context(), first.ID))
		if res := r.result(x.ID); res.Status != executor.StatusLost || res.Failure.Code != executor.Unavailable || res.Failure.Phase != executor.PhaseQueue {
			t.Errorf("it ended as %s, %+v", res.Status, res.Failure)
		}
	})
}

// deafBackend does not heed the end of ctx.
type deafBackend struct {
	*fake.Backend
	release chan struct{}
}

func (b deafBackend) Run(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	if err := s.Emit(executor.Event{Body: executor.Started{}}); err != nil {
		return executor.Result{}, err
	}
	<-b.release
	return executor.Result{}, io.ErrUnexpectedEOF
}

// A backend that does not stop a run in time is given up after KillGrace and Deadlines.Stop, and asked to remove it.
func TestABackendThatIsGivenUpIsAskedToRemove(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		b := deafBackend{fake.New(fake.Options{}), make(chan struct{})}
		r := newRig(t, setup{backend: b, options: Options{Deadlines: Deadlines{Stop: 20 * time.Second}}})
		x := r.submit(t.Context(), "hang", func(s *executor.Spec) { s.Limits.KillGrace = 30 * time.Second })
		synctest.Wait()
		began := time.Now()
		ended := must(r.Cancel(t.Context(), x.ID))
		if waited := time.Since(began); ended.Status != executor.StatusKilled || waited != 50*time.Second {
			t.Errorf("it is %s after %s, want killed after 50s", ended.Status, waited)
		}
		synctest.Wait()
		if !slices.Contains(b.Removed(), x.ID) {
			t.Error("its backend was not asked to remove it")
		}
		close(b.release)
		synctest.Wait()
	})
}

// awayAtRemove answers the first calls of Remove with unavailable, and any whose ctx has ended.
type awayAtRemove struct {
	*fake.Backend
	away  int64
	calls atomic.Int64
	ended atomic.Bool
}

func (b *awayAtRemove) Remove(ctx context.Context, id string) error {
	if ctx.Err() != nil {
		b.ended.Store(true)
	}
	if b.calls.Add(1) <= b.away {
		return executor.Errorf(executor.Unavailable, "away")
	}
	return b.Backend.Remove(ctx, id)
}

// Where a program outlives its plugin, what it left is removed once the backend is back.
func TestABackendThatIsAwayIsAskedAgainToRemove(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ away, calls int64 }{{0, 1}, {2, 3}, {100, maxAttempts}} {
		inBubble(t, func(t *testing.T) {
			caps := fake.DefaultCapabilities()
			caps.Attach = true
			b := &awayAtRemove{Backend: fake.New(fake.Options{Capabilities: &caps}), away: test.away}
			r := newRig(t, setup{backend: b})
			x := r.submit(t.Context(), "hang")
			synctest.Wait()
			_ = must(r.Cancel(t.Context(), x.ID)) // its ctx has ended; that of Remove must not
			time.Sleep(time.Hour)
			if b.calls.Load() != test.calls || b.ended.Load() {
				t.Errorf("away %d times: it was asked %d times, want %d; with an ended ctx: %t", test.away, b.calls.Load(), test.calls, b.ended.Load())
			}
			if removed := slices.Contains(b.Removed(), x.ID); removed != (test.away < maxAttempts) {
				t.Errorf("away %d times: removed %t", test.away, removed)
			}
		})
	}
}

// occupied holds something of an Execution until Remove succeeds.
type occupied struct{ *awayAtRemove }

func (b occupied) Run(ctx context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	if !slices.Contains(b.Removed(), job.ID) {
		return executor.Result{}, executor.Errorf(executor.Conflict, "execution %s runs already", job.ID)
	}
	return b.Backend.Run(ctx, job, s)
}

// What an earlier life of the server left of an Execution is removed before the next attempt.
func TestAnAttemptWaitsUntilTheEarlierOneIsRemoved(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		away     int64
		status   executor.Status
		attempts int
	}{{0, executor.StatusSucceeded, 2}, {2, executor.StatusSucceeded, 2}, {100, executor.StatusLost, 1}} {
		inBubble(t, func(t *testing.T) {
			store := memorystore.New(memorystore.Options{})
			var ids idSource
			id := ids.next(time.Now())
			leave(t, store, id, leftover{spec: executor.Spec{Code: "exit 0", Durable: true}, events: []executor.Body{executor.Queued{}}, attempts: 1})
			b := occupied{&awayAtRemove{Backend: fake.New(fake.Options{}), away: test.away}}
			r := newRig(t, setup{backend: b, options: Options{Store: store}})
			res := r.result(id)
			if res.Status != test.status || res.Failure != nil && res.Failure.Code != executor.Unavailable {
				t.Errorf("away %d times: it ended as %s, %+v", test.away, res.Status, res.Failure)
			}
			if x := must(r.Get(as("alice"), id)); x.Attempts != test.attempts {
				t.Errorf("away %d times: %d attempts, want %d", test.away, x.Attempts, test.attempts)
			}
		})
	}
}

// The clock of the queue does not run on for what has left the queue.
func TestAProgramMayRunLongerThanItMayWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{
			Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}, Deadlines: Deadlines{Queue: time.Hour},
		}})
		long := func(s *executor.Spec) { s.Durable, s.Limits.Timeout = true, 3*time.Hour }
		r.submit(t.Context(), "sleep 10m", long)
		x := r.submit(t.Context(), "sleep 2h", long)
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("it ended as %s, %+v", res.Status, res.Failure)
		}
	})
}

// A log that failed may have failed at Started: what may have run is not run again.
func TestWhatMayHaveStartedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		var tries atomic.Int64
		r := newRig(t, setup{
			fake: fake.Options{Hook: func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
				if tries.Add(1) > 1 {
					return run(ctx, job, s)
				}
				store.set(func(op string, _ ...executor.Event) error {
					if op == "append" {
						return executor.Errorf(executor.Unavailable, "the disk is gone")
					}
					return nil
				})
				err := s.Emit(executor.Event{Body: executor.Started{}})
				store.set(nil)
				return executor.Result{}, err
			}},
			options: Options{Store: store},
		})
		x := r.submit(t.Context(), "exit 0", durable)
		if res := r.result(x.ID); res.Status != executor.StatusLost || tries.Load() != 1 {
			t.Errorf("it was tried %d times and ended as %s", tries.Load(), res.Status)
		}
	})
}

// What an id was given for ends, also where its caller's callback panics, and others get its slot.
func TestACallbackThatPanicsEndsItsExecution(t *testing.T) {
	t.Parallel()
	for _, lasting := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
			var first, second executor.Execution
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic did not reach the caller")
					}
				}()
				_, _ = r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: lasting}, executor.Input{Accepted: func(x executor.Execution) {
					first = x
					second = r.submit(t.Context(), "exit 0", durable)
					panic("a fault of the frontend")
				}})
			}()
			if res := r.result(second.ID); res.Status != executor.StatusSucceeded {
				t.Errorf("the one behind it ended as %s", res.Status)
			}
			if res := r.result(first.ID); res.Status != executor.StatusLost {
				t.Errorf("the execution ended as %s", res.Status)
			}
			r.wantIdle()
		})
	}
}

// An input that says that it is too large is refused before a byte of it is read.
func TestAnAnnouncedSizeIsCheckedFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{SpoolBytes: 100}})
		for size, refused := range map[int64]bool{100: false, 101: true} {
			opened := false
			src := &executor.Source{SizeBytes: size, Open: func() (io.ReadCloser, error) {
				opened = true
				return io.NopCloser(strings.NewReader("")), nil
			}}
			_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, executor.Input{Workspace: src})
			if opened == refused || (executor.CodeOf(err) == executor.Exhausted) != refused {
				t.Errorf("%d bytes of 100: opened %t, error %v", size, opened, err)
			}
		}
	})
}

func TestTheTimeOfCollectingIsNotTheProgramsOwn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		_, res := asBackend(t, func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			time.Sleep(time.Second)
			if err := s.Emit(executor.Event{Body: executor.Started{}}); err != nil {
				return executor.Result{}, err
			}
			time.Sleep(5 * time.Second)
			res := succeeded
			res.Phases.Collect = 3 * time.Second
			return res, nil
		})
		want := executor.Phases{Prepare: time.Second, Run: 2 * time.Second, Collect: 3 * time.Second}
		if res.Wall != 2*time.Second || res.Phases != want {
			t.Errorf("the program took %s, its phases are %+v, want %+v", res.Wall, res.Phases, want)
		}
	})
}

func TestOnlyANewExecutionWaitsForABackend(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		spec := executor.Spec{Code: "exit 0", IdempotencyKey: "k"}
		first, err := r.Submit(t.Context(), spec, executor.Input{})
		if err != nil {
			t.Fatal(err)
		}
		r.result(first.ID)
		time.Sleep(time.Hour)
		if _, err := r.Submit(t.Context(), executor.Spec{Code: "sleep 70s", Limits: executor.Limits{Timeout: time.Hour}}, executor.Input{}); err != nil {
			t.Fatal(err) // Close waits for it
		}
		synctest.Wait() // it has begun
		r.fake.SetDown(executor.Errorf(executor.Unavailable, "away"))
		time.Sleep(infoStale + time.Second)
		began := time.Now()
		if again, err := r.Submit(t.Context(), spec, executor.Input{}); err != nil || again.ID != first.ID {
			t.Errorf("the same request again: %s, error %v, want %s", again.ID, err, first.ID)
		}
		time.AfterFunc(time.Second, func() { _ = r.Close(t.Context()) })
		_, err = r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Unavailable)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("a server that stops lets a request wait for %s", waited)
		}
	})
}

func TestANewExecutionWaitsForABackendThatIsRestarted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		r.result(r.submit(t.Context(), "exit 0").ID)
		time.Sleep(time.Hour)
		r.fake.SetDown(executor.Errorf(executor.Unavailable, "away"))
		time.AfterFunc(3*time.Second, func() { r.fake.SetDown(nil) })
		if res := r.result(r.submit(t.Context(), "exit 0").ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v", res)
		}
		time.Sleep(time.Hour)
		r.fake.SetDown(executor.Errorf(executor.Unavailable, "away"))
		for _, want := range []time.Duration{maxDown, 0} { // it waits once
			began := time.Now()
			_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
			wantCode(t, err, executor.Unavailable)
			if waited := time.Since(began); waited < want || waited > want+time.Second {
				t.Errorf("it waited %s, want %s", waited, want)
			}
		}
	})
}

func TestFewRequestsWaitForABackend(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		r.result(r.submit(t.Context(), "exit 0").ID)
		time.Sleep(time.Hour)
		r.fake.SetDown(executor.Errorf(executor.Unavailable, "away"))
		refused := func(patience, want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			_, err := r.Submit(ctx, executor.Spec{Code: "exit 0"}, executor.Input{})
			wantCode(t, err, executor.Unavailable)
			if waited := time.Since(began); waited != want {
				t.Errorf("a request waited %s, want %s", waited, want)
			}
		}
		var wg sync.WaitGroup
		for range maxWaiting {
			wg.Go(func() { refused(time.Second, time.Second) })
		}
		synctest.Wait()
		refused(time.Second, 0) // too many wait
		wg.Wait()
		refused(2*time.Second, 2*time.Second) // none of them waits any more
	})
}
