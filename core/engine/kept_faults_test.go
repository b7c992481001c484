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
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// The tests of this file notice faults of tests/faults that survived all others for long.

// A file of the caller's is there, like an input that can be read again, so its Execution does not count as one whose caller still sends.
func TestAnInputThatIsAFileIsAtHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   *executor.Source
		want startKind
	}{
		"none":     {nil, startNow},
		"again":    {&executor.Source{Replayable: true}, startNow},
		"a file":   {&executor.Source{Path: "/srv/input.tar"}, startNow},
		"a stream": {once(nil), startArriving},
	} {
		if got := startOf(executor.Spec{}, false, executor.Input{Workspace: c.in}); got != c.want {
			t.Errorf("workspace %s: %d, want %d", name, got, c.want)
		}
		if got := startOf(executor.Spec{}, false, executor.Input{Stdin: c.in}); got != c.want {
			t.Errorf("stdin %s: %d, want %d", name, got, c.want)
		}
	}
}

// The questions of one absence of a backend do not make the pauses of the next absence longer.
func TestEachAbsenceOfABackendBeginsWithShortPauses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		b := &leavingBackend{Backend: fake.New(fake.Options{}), away: 5 * time.Second}
		again := &leavingTwice{leavingBackend: b, more: 5 * time.Second}
		r := newRig(t, setup{backend: again})
		began := time.Now()
		x := r.submit(t.Context(), "exit 0", durable)
		res := r.result(x.ID)
		// It asks after 0.5, 2.5 and 10.5 s, finds the backend away again, and asks 2 and 10 s later.
		if waited := time.Since(began); res.Status != executor.StatusSucceeded || waited != 20500*time.Millisecond {
			t.Errorf("it ended as %s after %s, want succeeded after 20.5s", res.Status, waited)
		}
	})
}

// leavingTwice is away once more when it is back.
type leavingTwice struct {
	*leavingBackend
	more time.Duration
}

func (b *leavingTwice) Run(ctx context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	if away, ever := b.state(); ever && !away && b.more > 0 {
		b.leave(b.more)
		b.more = 0
	}
	return b.leavingBackend.Run(ctx, job, s)
}

// absentRemover is away for a while from the first Remove on, which takes a second.
type absentRemover struct {
	*leavingBackend
	removes atomic.Int64
}

func (b *absentRemover) Remove(ctx context.Context, id string) error {
	if b.removes.Add(1) == 1 {
		time.Sleep(time.Second)
		b.leave(b.away)
	}
	if away, _ := b.state(); away {
		return executor.Errorf(executor.Unavailable, "away")
	}
	return b.leavingBackend.Remove(ctx, id)
}

// A backend that did not remove the rest of an earlier attempt is asked whether it is there before it is tried again.
func TestABackendThatDoesNotRemoveIsAskedAnew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		id := ids.next(time.Now())
		leave(t, store, id, leftover{spec: executor.Spec{Code: "exit 0", Durable: true}, events: []executor.Body{executor.Queued{}}, attempts: 1})
		b := &absentRemover{leavingBackend: &leavingBackend{Backend: fake.New(fake.Options{}), away: 2 * time.Second}}
		b.leave(0) // it is there
		r := newRig(t, setup{backend: b, options: Options{Store: store}})
		r.result(r.submit(t.Context(), "exit 0").ID) // its Info is known
		if res := r.result(id); res.Status != executor.StatusSucceeded || b.removes.Load() != 2 {
			t.Errorf("it was asked %d times to remove, want 2; the execution ended as %s", b.removes.Load(), res.Status)
		}
	})
}

// An Execution that waits for its backend does not run in its Session.
func TestAnExecutionThatPausesWaitsInItsSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		set := withSessions()
		var away atomic.Bool
		set.fake.Hook = func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
			if away.Load() {
				return executor.Result{}, executor.Errorf(executor.Unavailable, "away")
			}
			return run(ctx, job, s)
		}
		r := newRig(t, set)
		s := r.open(as("alice"))
		away.Store(true)
		x := r.submit(as("alice"), "exit 0", in(s))
		synctest.Wait()
		if view := r.session(s); view.Running != "" || view.Waiting != 1 {
			t.Errorf("%q runs and %d wait, want none and 1", view.Running, view.Waiting)
		}
		away.Store(false)
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("it ended as %s, %+v", res.Status, res.Failure)
		}
	})
}

// A program that the server leaves running belongs to the next life, which reads its output from where this one has stopped.
func TestWhatIsLeftRunningWritesNoMoreIntoThisLifesLog(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		caps := fake.DefaultCapabilities()
		caps.Attach = true
		sinks := make(chan executor.Sink, 1)
		hook := func(ctx context.Context, _ executor.Job, s executor.Sink, _ fake.RunFunc) (executor.Result, error) {
			if err := s.Emit(executor.Event{Body: executor.Started{Handle: []byte("h")}}); err != nil {
				return executor.Result{}, err
			}
			<-ctx.Done()
			sinks <- s
			return executor.Result{}, executor.Errorf(executor.Unavailable, "detached")
		}
		store := memorystore.New(memorystore.Options{})
		r := newRig(t, setup{fake: fake.Options{Capabilities: &caps, Hook: hook}, options: Options{Store: store}})
		x := r.submit(t.Context(), "hang", durable)
		synctest.Wait()
		_ = r.closeNow()
		late := <-sinks
		if err := late.Emit(executor.Event{Body: executor.Output{Stream: executor.Stdout, Data: []byte("late")}}); err == nil {
			t.Error("the output of a program that was left running was taken")
		}
		if rec := must(store.Get(t.Context(), x.ID)); rec.Status != executor.StatusRunning || rec.LastSeq != 2 {
			t.Errorf("it is %s with %d events, want running with 2", rec.Status, rec.LastSeq)
		}
	})
}

// countedInfo counts the questions.
type countedInfo struct {
	growing
	asked atomic.Int64
}

func (b *countedInfo) Info(ctx context.Context) (executor.Info, error) {
	b.asked.Add(1)
	return b.growing.Info(ctx)
}

// However many Executions wait for room on a backend, and whenever they came, the backend is asked once every five seconds.
func TestABackendWithoutRoomIsAskedByOneTask(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		b := &countedInfo{growing: growing{Backend: fake.New(fake.Options{})}}
		b.capacity.Store(1)
		r := newRig(t, setup{backend: b, options: Options{Engine: config.Engine{MaxConcurrent: 4, MaxQueued: 10}}})
		for _, gate := range []string{"one", "two", "three"} {
			r.submit(t.Context(), "wait "+gate, durable)
			time.Sleep(time.Second)
		}
		time.Sleep(infoFresh)
		before := b.asked.Load()
		time.Sleep(10 * infoFresh)
		if asked := b.asked.Load() - before; asked != 10 {
			t.Errorf("it was asked %d times in 50 s, want 10", asked)
		}
		for _, gate := range []string{"three", "two", "one"} {
			b.Release(gate)
		}
	})
}

// Artifacts that nobody could find are lost, and the Result says so.
func TestArtifactsThatCannotBeRecordedAreLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		hook := func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
			res, err := run(ctx, job, s)
			store.set(func(op string, _ ...executor.Event) error {
				if op == "update" {
					return executor.Errorf(executor.Unavailable, "the disk is gone")
				}
				return nil
			})
			return res, err
		}
		r := newRig(t, setup{fake: fake.Options{Hook: hook}, options: Options{Store: store}})
		x := r.submit(t.Context(), "write-file a.txt one", func(s *executor.Spec) { s.Outputs = []string{"a.txt"} })
		res := r.result(x.ID)
		if res.Status != executor.StatusLost || res.Failure == nil || res.Failure.Phase != executor.PhaseCollect {
			t.Errorf("it ended as %s, %+v", res.Status, res.Failure)
		}
		if !slices.Equal(res.Artifacts, nil) {
			t.Errorf("it names %v", res.Artifacts)
		}
		r.wantBlobs(0)
	})
}

// A caller that has seen the end of an Execution finds its slot free.
func TestASlotIsFreeBeforeTheEndIsWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		r := newRig(t, setup{options: Options{Store: store}})
		running := -1
		store.set(func(_ string, events ...executor.Event) error {
			for _, event := range events {
				if _, ends := event.Body.(executor.Finished); ends {
					r.mu.Lock()
					running = r.queue.running
					r.mu.Unlock()
				}
			}
			return nil
		})
		r.result(r.submit(t.Context(), "exit 0").ID)
		if running != 0 {
			t.Errorf("%d slots were held when the end was written", running)
		}
	})
}
