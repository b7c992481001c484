package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

func TestDisplaysPassAndAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		const extra = 5
		r := newRig(t, setup{backend: runFunc(func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			err := emit(s, executor.Started{}, executor.Display{Value: true, Data: map[string][]byte{
				"text/html": []byte("<b>"), "image/png": make([]byte, executor.MaxDisplayData),
			}})
			for range executor.MaxDisplays - 1 + extra {
				err = errors.Join(err, emit(s, executor.Display{Data: map[string][]byte{"image/png": make([]byte, 1<<20)}}))
			}
			result := succeeded
			result.DisplaysDropped = 2 // that the backend did not even send
			return result, err
		})})
		x := r.submit(t.Context(), "exit 0")
		var all []executor.Display
		total := 0
		for _, ev := range r.events(x.ID) {
			if d, ok := ev.Body.(executor.Display); ok {
				all = append(all, d)
				for _, data := range d.Data {
					total += len(data)
				}
			}
		}
		first := all[0]
		if !first.Value || !first.Truncated || string(first.Data["text/html"]) != "<b>" || len(first.Data) != 1 {
			t.Errorf("the first display is %+v", first)
		}
		if len(all) != executor.MaxDisplays || total > maxDisplays || all[1].Truncated || !all[len(all)-1].Truncated {
			t.Errorf("%d displays of %d bytes", len(all), total)
		}
		if res := r.result(x.ID); res.DisplaysDropped != extra+2 {
			t.Errorf("%d were dropped", res.DisplaysDropped)
		}
		early := newRig(t, setup{backend: runFunc(func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, executor.Display{})
		})})
		if res := early.result(early.submit(t.Context(), "exit 0").ID); res.Failure == nil || res.Failure.Code != executor.Internal {
			t.Errorf("result %+v", res)
		}
	})
}

func TestReadySaysWhetherWorkIsAccepted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		if err := r.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		r.fake.SetHealth("no disk")
		time.Sleep(2 * infoStale)
		wantCode(t, r.Ready(t.Context()), executor.Unavailable)
		r.fake.SetHealth("")
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
		wantCode(t, r.Ready(t.Context()), executor.Unavailable)
		if err := r.closeNow(); err != nil {
			t.Error(err)
		}
		wantCode(t, r.Ready(t.Context()), executor.Unavailable)
	})
}

func TestWhatPausesAtCloseStaysQueuedIfItIsDurable(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{time.Millisecond, time.Second, 10 * time.Minute} {
		inBubble(t, func(t *testing.T) {
			o := Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t)}
			away := executor.Errorf(executor.Unavailable, "away")
			var r *rig
			r = newRig(t, setup{options: o, fake: fake.Options{Hook: func(context.Context, executor.Job, executor.Sink, fake.RunFunc) (executor.Result, error) {
				r.fake.SetDown(away)
				time.Sleep(100 * time.Millisecond)
				return executor.Result{}, away
			}}})
			kept := r.submit(t.Context(), "exit 0", durable)
			lost := r.submit(t.Context(), "exit 0")
			time.Sleep(wait)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			begin := time.Now()
			if err := r.Close(ctx); err != nil {
				t.Error(err)
			}
			if waited := time.Since(begin); waited > time.Second {
				t.Errorf("Close took %s", waited)
			}
			if x := must(r.Get(t.Context(), kept.ID)); x.Status != executor.StatusQueued {
				t.Errorf("kept: %+v", x)
			}
			if res := r.result(lost.ID); res.Status != executor.StatusLost {
				t.Errorf("lost: %+v", res)
			}
			r.wantIdle()
			next := newRig(t, setup{options: o})
			if res := next.result(kept.ID); res.Status != executor.StatusSucceeded {
				t.Errorf("kept, later: %+v", res)
			}
		})
	}
}

// A Close that comes when the input of a Durable Execution is spooled and its Record is being made leaves that to the next life.
func TestWhatIsMadeAtCloseStaysQueuedIfItIsDurable(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		o := Options{Store: store, Blobs: openBlobs(t)}
		r := newRig(t, setup{options: o})
		closed := make(chan error, 1)
		store.set(func(op string, _ ...executor.Event) error {
			if op != "create" {
				return nil
			}
			r.mu.Lock()
			live := slices.Collect(maps.Values(r.live))
			r.mu.Unlock()
			go func() { closed <- r.closeNow() }()
			<-live[0].ctx.Done()
			return nil
		})
		x := must(r.Submit(t.Context(), executor.Spec{Durable: true}, executor.Input{Workspace: once(tarOf(t, "main.py", "print hi"))}))
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if x := must(r.Get(t.Context(), x.ID)); x.Status != executor.StatusQueued {
			t.Errorf("after Close it is %s", x.Status)
		}
		r.wantIdle()
		store.set(nil)
		next := newRig(t, setup{options: o})
		if res := next.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("in the next life: %+v, %+v", res, res.Failure)
		}
	})
}

func TestCancelReachesWhatPauses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{fake: fake.Options{Hook: fake.Fail(executor.Errorf(executor.Unavailable, "away"))}})
		x := r.submit(t.Context(), "exit 0", durable)
		time.Sleep(time.Second)
		if got := must(r.Cancel(t.Context(), x.ID)); got.Status != executor.StatusKilled || got.Attempts != 2 {
			t.Errorf("cancelled: %+v", got)
		}
		r.result(x.ID)
		r.wantIdle()
	})
}

func TestCancelReturnsWhenItsCallerHasNoMoreTime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, setup{fake: fake.Options{Hook: fake.HangAtEnd(release)}})
		x := r.submit(t.Context(), "hang")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := r.Cancel(ctx, x.ID)
		wantCode(t, err, executor.Unavailable)
		// It ends all the same, within its bound, and says that the backend did not confirm it.
		if res := r.result(x.ID); res.Status != executor.StatusKilled || res.Failure == nil || res.Failure.Code != executor.Unavailable {
			t.Errorf("result %+v", res)
		}
		close(release)
		r.wantIdle()
	})
}

func TestASourceThatPanicsHoldsNoPlace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1}}})
		bad := &executor.Source{SizeBytes: -1, Replayable: true, Open: func() (io.ReadCloser, error) { panic("bad source") }}
		yes := true
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic went away")
				}
			}()
			_, _ = r.Submit(t.Context(), executor.Spec{Detect: &yes}, executor.Input{Workspace: bad})
		}()
		_, err := r.Submit(t.Context(), executor.Spec{Durable: true}, executor.Input{Workspace: bad})
		wantCode(t, err, executor.Internal)
		x, err := r.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: bad})
		if err == nil {
			r.result(x.ID)
		}
		r.wantIdle()
		r.wantBlobs(0)
	})
}

func TestArtifactsThatRetentionTookArePurged(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		x := r.submit(t.Context(), "write-file a.txt one", func(s *executor.Spec) { s.Outputs = []string{"a.txt"} })
		r.result(x.ID)
		if err := r.blobs.Delete(t.Context(), x.ID+blobArtifacts); err != nil {
			t.Fatal(err)
		}
		_, err := r.Artifacts(t.Context(), x.ID)
		wantCode(t, err, executor.Purged)
	})
}

// sluggishBlobs lists until nobody wants the list.
type sluggishBlobs struct{ executor.Blobs }

func (s sluggishBlobs) List(ctx context.Context, _ string) iter.Seq2[executor.BlobInfo, error] {
	return func(yield func(executor.BlobInfo, error) bool) {
		<-ctx.Done()
		yield(executor.BlobInfo{}, ctx.Err())
	}
}

func TestAnEngineThatClosesWhileItSweepsHasNothingToReport(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t, setup{options: Options{Blobs: sluggishBlobs{openBlobs(t)}, Log: slog.New(slog.NewTextHandler(&log, nil))}})
		synctest.Wait()
		_ = r.closeNow()
		if log.Len() > 0 {
			t.Error(log.String())
		}
	})
}
