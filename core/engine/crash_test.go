package engine

import (
	"context"
	"io"
	"iter"
	"slices"
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

func TestWhatWasCancelledIsNotRunAfterACrash(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			store := newFailingStore()
			r := newRig(t, setup{options: Options{Store: store, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
			if !running {
				r.submit(t.Context(), "hang")
			}
			x := r.submit(t.Context(), "hang", durable)
			synctest.Wait()
			// The server dies before the end is in the log.
			store.set(func(op string, events ...executor.Event) error {
				if op == "append" {
					return executor.Errorf(executor.Unavailable, "the disk is gone")
				}
				return nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := r.Cancel(ctx, x.ID)
			wantCode(t, err, executor.Unavailable)
			if rec := must(store.Get(t.Context(), x.ID)); !rec.Cancelled {
				t.Errorf("running %t: the store does not know that it was cancelled", running)
			}
			_ = r.closeNow()
			store.set(nil)
			next := newRig(t, setup{options: Options{Store: store}})
			if res := next.result(x.ID); res.Status != executor.StatusKilled {
				t.Errorf("running %t: it ended as %s, %+v", running, res.Status, res.Failure)
			}
			if runs := next.fake.Runs(); slices.Contains(runs, x.ID) {
				t.Errorf("running %t: it ran again", running)
			}
		})
	}
}

// A Cancel that the store does not take must not pretend that it was one: after a crash it would run.
func TestACancelThatIsNotStoredIsAnError(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		r := newRig(t, setup{options: Options{Store: store}})
		x := r.submit(t.Context(), "hang", durable)
		synctest.Wait()
		store.set(func(op string, _ ...executor.Event) error {
			if op == "update" {
				return executor.Errorf(executor.Unavailable, "the disk is gone")
			}
			return nil
		})
		_, err := r.Cancel(t.Context(), x.ID)
		wantCode(t, err, executor.Unavailable)
		if x := must(r.Get(as("root", executor.ScopeAdmin, executor.ScopeRead), x.ID)); x.Status != executor.StatusRunning {
			t.Errorf("it is %s", x.Status)
		}
		store.set(nil)
		if x := must(r.Cancel(t.Context(), x.ID)); x.Status != executor.StatusKilled {
			t.Errorf("it is %s", x.Status)
		}
	})
}

// orderedBackend remembers the order of Remove and Run.
type orderedBackend struct {
	*fake.Backend
	mu    sync.Mutex
	calls []string
}

func (b *orderedBackend) note(call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call)
}

func (b *orderedBackend) Run(ctx context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	b.note("run " + job.ID)
	return b.Backend.Run(ctx, job, s)
}

func (b *orderedBackend) Remove(ctx context.Context, id string) error {
	b.note("remove " + id)
	return b.Backend.Remove(ctx, id)
}

// What the attempt of an earlier life has left runs beside the next one unless it is removed first.
func TestASecondAttemptBeginsWhenTheFirstIsRemoved(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{0, 1} {
		inBubble(t, func(t *testing.T) {
			store := memorystore.New(memorystore.Options{})
			var ids idSource
			id := ids.next(time.Now())
			leave(t, store, id, leftover{spec: executor.Spec{Code: "exit 0", Durable: true}, events: []executor.Body{executor.Queued{}}, attempts: attempts})
			b := &orderedBackend{Backend: fake.New(fake.Options{})}
			r := newRig(t, setup{backend: b, options: Options{Store: store}})
			r.result(id)
			want := []string{"run " + id}
			if attempts > 0 {
				want = []string{"remove " + id, "run " + id}
			}
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if !slices.Equal(b.calls, want) {
				t.Errorf("after %d attempts its backend saw %v, want %v", attempts, b.calls, want)
			}
		})
	}
}

// Deadlines.Queue bounds the waiting of an Execution in all, however often its backend was away in between.
func TestThePausesOfAnExecutionCountForItsDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		tries := 0
		hook := func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			if job.Spec.Args != nil {
				if tries++; tries == 1 {
					return executor.Result{}, executor.Errorf(executor.Unavailable, "away for a moment")
				}
			}
			mu.Unlock()
			defer mu.Lock()
			return run(ctx, job, s)
		}
		r := newRig(t, setup{
			fake:    fake.Options{Hook: hook},
			options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}, Deadlines: Deadlines{Queue: time.Hour}},
		})
		long := func(s *executor.Spec) { s.Durable, s.Limits.Timeout = true, 2*time.Hour }
		began := time.Now()
		r.submit(t.Context(), "sleep 40m", long)
		x := r.submit(t.Context(), "exit 0", long, func(s *executor.Spec) { s.Args = []string{"first away"} })
		r.submit(t.Context(), "sleep 40m", long)
		res := r.result(x.ID)
		if waited := time.Since(began).Round(time.Second); waited != time.Hour || res.Status != executor.StatusLost || res.Failure.Code != executor.Exhausted {
			t.Errorf("it ended as %s after %s: %+v, want lost after 1h", res.Status, waited, res.Failure)
		}
		if tries != 1 {
			t.Errorf("it was tried %d times", tries)
		}
	})
}

func TestNobodySeesTheHandleOfASandbox(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions(lasting)
		s.options.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 1}
		r := newRig(t, s)
		ctx := as("alice")
		spec := executor.Spec{Code: "wait go", IdempotencyKey: "k", Durable: true}
		x := must(r.Submit(ctx, spec, executor.Input{}))
		synctest.Wait()
		if rec := must(r.store.Get(ctx, x.ID)); rec.Started == nil || len(rec.Started.Handle) == 0 {
			t.Fatal("its backend gave no handle")
		}
		check := func(how string, x executor.Execution, err error) {
			t.Helper()
			if err != nil || x.Started == nil || x.Started.Handle != nil {
				t.Errorf("%s shows %+v, error %v", how, x.Started, err)
			}
		}
		again, err := r.Submit(ctx, spec, executor.Input{})
		check("a Submit that is repeated", again, err)
		r.submit(ctx, "exit 0", durable)
		again, err = r.Submit(ctx, spec, executor.Input{})
		check("a Submit that is repeated when the queue is full", again, err)
		got, err := r.Get(ctx, x.ID)
		check("Get", got, err)
		list, err := r.List(ctx, executor.Filter{})
		check("List", list[len(list)-1], err)
		got, err = r.Cancel(ctx, x.ID)
		check("Cancel", got, err)
		got, err = r.Cancel(ctx, x.ID)
		check("a Cancel of what has ended", got, err)
		got, err = r.Submit(ctx, spec, executor.Input{})
		check("a Submit that is repeated after the end", got, err)
		r.events(x.ID) // checkLaw looks for it in events
		checkLaw(t, x.ID, r.events(x.ID))
	})
}

func TestTheSweepLeavesWhatIsBeingUploaded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{
			Blobs: oldBlobs{openBlobs(t)}, Deadlines: Deadlines{Upload: 5 * sweepInterval},
		}})
		in, stdin := io.Pipe()
		submitted := make(chan executor.Execution, 1)
		go func() {
			spec := executor.Spec{Code: "cat kept.txt\nread-stdin", Durable: true}
			x, err := r.Submit(as("alice"), spec, executor.Input{Workspace: once(tarOf(t, "kept.txt", "kept ")), Stdin: sourceOf(in)})
			if err != nil {
				t.Error(err)
			}
			submitted <- x
		}()
		time.Sleep(2 * sweepInterval)
		r.wantBlobs(1) // the workspace; stdin is on its way
		_, _ = io.WriteString(stdin, "whole")
		_ = stdin.Close()
		x := <-submitted
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || stdout(r.events(x.ID)) != "kept whole" {
			t.Errorf("it ended as %s with %q: %+v", res.Status, stdout(r.events(x.ID)), res.Failure)
		}
	})
}

func TestTheSweepLeavesWhatMayBelongToAnExecutionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		blobs := &agedBlobs{Blobs: openBlobs(t)}
		r := newRig(t, setup{options: Options{Blobs: blobs}})
		synctest.Wait()
		var ids idSource
		_ = must(blobs.Put(t.Context(), ids.next(time.Now())+blobWorkspace, strings.NewReader("x"), 0, false))
		for _, test := range []struct {
			age  time.Duration
			left int
		}{{minBlobAge - time.Second, 1}, {minBlobAge, 0}} {
			blobs.age = test.age
			r.retention.sweep()
			r.wantBlobs(test.left)
		}
		// What is no blob of an Execution is not ours to delete.
		_ = must(blobs.Put(t.Context(), "exe_notes/workspace", strings.NewReader("x"), 0, false))
		r.retention.sweep()
		r.wantBlobs(1)
	})
}

// agedBlobs are as old as age says.
type agedBlobs struct {
	executor.Blobs
	age time.Duration
}

func (b *agedBlobs) List(ctx context.Context, prefix string) iter.Seq2[executor.BlobInfo, error] {
	return func(yield func(executor.BlobInfo, error) bool) {
		for info, err := range b.Blobs.List(ctx, prefix) {
			info.ModTime = time.Now().Add(-b.age)
			if !yield(info, err) {
				return
			}
		}
	}
}

func TestWhoseBackendStaysAwayIsLostAtItsDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var r *rig
		away := executor.Errorf(executor.Unavailable, "away for good")
		r = newRig(t, setup{
			fake: fake.Options{Hook: func(context.Context, executor.Job, executor.Sink, fake.RunFunc) (executor.Result, error) {
				r.fake.SetDown(away)
				return executor.Result{}, away
			}},
			options: Options{Deadlines: Deadlines{Queue: time.Hour}},
		})
		began := time.Now()
		res := r.result(r.submit(t.Context(), "exit 0", durable).ID)
		if waited := time.Since(began).Round(time.Minute); waited < time.Hour || waited > time.Hour+2*time.Minute {
			t.Errorf("it waited for %s, want 1h", waited)
		}
		if res.Status != executor.StatusLost || res.Failure.Code != executor.Exhausted || res.Failure.Phase != executor.PhaseQueue {
			t.Errorf("it ended as %s, %+v", res.Status, res.Failure)
		}
		r.wantIdle()
	})
}
