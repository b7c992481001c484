package engine

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

func TestCloseLetsRunningFinishAndKeepsWhatIsQueuedDurably(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		o := Options{Engine: config.Engine{MaxConcurrent: 2, MaxQueued: 10}, Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t)}
		r := newRig(t, setup{options: o})
		short := r.submit(t.Context(), "sleep 10s\nprint done")
		long := r.submit(t.Context(), "hang")
		lost := r.submit(t.Context(), "exit 0")
		kept, err := r.Submit(t.Context(), executor.Spec{Durable: true}, executor.Input{Workspace: once(tarOf(t, "main.py", "print later"))})
		if err != nil {
			t.Fatal(err)
		}
		body, client := io.Pipe()
		uploaded := make(chan error)
		go func() {
			_, err := r.Submit(t.Context(), executor.Spec{Durable: true}, executor.Input{Workspace: sourceOf(body)})
			uploaded <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		closing := make(chan error)
		go func() { closing <- r.Close(ctx) }()
		wantCode(t, <-uploaded, executor.Unavailable)
		_ = client.Close()
		_, err = r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Unavailable)
		wantCode(t, r.Admit(t.Context()), executor.Unavailable)
		begin := time.Now()
		if err := <-closing; err != nil {
			t.Error(err)
		}
		if waited := time.Since(begin); waited < time.Minute || waited > 2*time.Minute {
			t.Errorf("Close took %s", waited)
		}
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
		if res := r.result(short.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("short: %+v", res)
		}
		for _, x := range []executor.Execution{long, lost} {
			if res := r.result(x.ID); res.Status != executor.StatusLost || res.Failure.Code != executor.Unavailable {
				t.Errorf("%s: %+v, %+v", x.Spec.Code, res, res.Failure)
			}
		}
		if x := must(r.Get(t.Context(), kept.ID)); x.Status != executor.StatusQueued {
			t.Errorf("kept: %+v", x)
		}
		r.wantIdle()
		next := newRig(t, setup{options: o})
		if res := next.result(kept.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("kept, later: %+v", res)
		}
		next.wantIdle()
		next.wantBlobs(0)
	})
}

func TestCloseIsSafeBeforeStartAndTwice(t *testing.T) {
	t.Parallel()
	e, err := New(Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t), Backends: map[string]executor.Backend{"fake": fake.New(fake.Options{})}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Submit(t.Context(), executor.Spec{Code: "x"}, executor.Input{})
	wantCode(t, err, executor.Unavailable)
	for range 2 {
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wantCode(t, e.Start(t.Context()), executor.Conflict)
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	good := Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t), Backends: map[string]executor.Backend{"a": fake.New(fake.Options{}), "b": fake.New(fake.Options{})}, DefaultBackend: "a"}
	for _, size := range []int64{0, -1} {
		o := good
		if o.SpoolBytes = size; must(New(o)).now().spoolBytes != 8<<30 {
			t.Errorf("with %d bytes for each spooled stream it is not the default", size)
		}
	}
	for name, spoil := range map[string]func(*Options){
		"no store":                func(o *Options) { o.Store = nil },
		"no blobs":                func(o *Options) { o.Blobs = nil },
		"no backend":              func(o *Options) { o.Backends = nil },
		"a backend that is nil":   func(o *Options) { o.Backends = map[string]executor.Backend{"a": nil} },
		"no default":              func(o *Options) { o.DefaultBackend = "" },
		"a default that is not":   func(o *Options) { o.DefaultBackend = "c" },
		"a bound that is not one": func(o *Options) { o.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: -1} },
		"no place to run":         func(o *Options) { o.Engine = config.Engine{MaxConcurrent: -1, MaxQueued: 1} },
		"an owner without places": func(o *Options) { o.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 1, MaxPerOwner: -1} },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTheEndIsWrittenWhenTheStoreComesBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		r := newRig(t, setup{options: Options{Store: store}})
		x := r.submit(t.Context(), "sleep 10s")
		synctest.Wait()
		store.set(func(op string, _ ...executor.Event) error {
			if op == "append" {
				return executor.Errorf(executor.Unavailable, "disk full")
			}
			return nil
		})
		time.Sleep(time.Hour)
		store.set(nil)
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v, %+v", res, res.Failure)
		}
		time.Sleep(time.Minute)
		r.wantIdle()
	})
}

func TestABrokenStoreNeverHangsTheEngine(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"create", "append", "update"} {
		inBubble(t, func(t *testing.T) {
			store := newFailingStore()
			r := newRig(t, setup{options: Options{Store: store}})
			store.set(func(got string, _ ...executor.Event) error {
				if got == op {
					return errors.New("secret path")
				}
				return nil
			})
			for _, spec := range []executor.Spec{{}, {Durable: true}} {
				_, err := r.Submit(t.Context(), spec, executor.Input{Workspace: once(tarOf(t, "main.py", "print hi"))})
				if op == "create" {
					wantCode(t, err, executor.Internal)
					if strings.Contains(err.Error(), "secret") {
						t.Errorf("the error tells %q", err)
					}
				}
			}
			time.Sleep(time.Minute)
			began := time.Now()
			if err := r.closeNow(); err != nil {
				t.Error(err)
			}
			if waited := time.Since(began); waited > time.Second { // on the bubble's clock
				t.Errorf("Close took %s", waited)
			}
			r.wantIdle()
		})
	}
}

func TestRetentionDeletesTheLongestFinished(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		bounds config.Retention
		wait   time.Duration
		left   int
	}{
		{"by count", config.Retention{MaxExecutions: 3}, 0, 3},
		{"by age", config.Retention{MaxAgeSeconds: 60}, 55 * time.Second, 5},
		{"by age, all", config.Retention{MaxAgeSeconds: 60}, 2 * time.Minute, 0},
		{"by bytes", config.Retention{MaxBytes: 25 << 10}, 0, 2},
		{"not at all", config.Retention{}, 1000 * time.Hour, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, setup{options: Options{Retention: test.bounds}})
				var ids []string
				for range 10 {
					x := r.submit(t.Context(), "fill-file out.bin 9KB\nsleep 1s", func(s *executor.Spec) { s.Outputs = []string{"out.bin"} })
					r.result(x.ID)
					ids = append(ids, x.ID)
				}
				time.Sleep(test.wait)
				synctest.Wait()
				var left []string
				for _, x := range must(r.List(t.Context(), executor.Filter{})) {
					left = append(left, x.ID)
				}
				slices.Reverse(left)
				if len(left) != test.left || !slices.Equal(left, ids[len(ids)-len(left):]) {
					t.Errorf("%d left, want the last %d", len(left), test.left)
				}
				r.wantBlobs(test.left)
				if len(left) < 10 {
					_, err := r.Get(t.Context(), ids[0])
					wantCode(t, err, executor.Purged)
				}
			})
		})
	}
}

func TestRetentionCountsWhatWasFinishedBefore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		o := Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t), Retention: config.Retention{MaxExecutions: 2}}
		unbound := o
		unbound.Retention = config.Retention{}
		r := newRig(t, setup{options: unbound})
		var last string
		for range 5 {
			last = r.submit(t.Context(), "exit 0").ID
			r.result(last)
		}
		_ = r.closeNow()
		next := newRig(t, setup{options: o})
		synctest.Wait()
		list := must(next.List(t.Context(), executor.Filter{}))
		if len(list) != 2 || list[0].ID != last {
			t.Errorf("left %v", list)
		}
	})
}

func TestRetentionTriesAgainAfterAMinuteWhereTheStoreFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := newFailingStore()
		var tries atomic.Int32
		store.set(func(op string, _ ...executor.Event) error {
			if op == "delete" && tries.Add(1) < 3 {
				return errors.New("no disk")
			}
			return nil
		})
		r := newRig(t, setup{options: Options{Store: store, Retention: config.Retention{MaxExecutions: 1}}})
		for range 2 {
			r.result(r.submit(t.Context(), "exit 0").ID)
			synctest.Wait() // else the second wakes retention while it deletes for the first, and it tries twice
		}
		for _, want := range []int32{1, 2, 3, 3} {
			synctest.Wait()
			if got := tries.Load(); got != want {
				t.Errorf("%d tries, want %d", got, want)
			}
			time.Sleep(time.Minute)
		}
		if left := must(r.List(t.Context(), executor.Filter{})); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestBlobsWithoutAnExecutionAreRemoved(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		blobs, store := openBlobs(t), memorystore.New(memorystore.Options{})
		var ids idSource
		known, purged := ids.next(time.Now()), ids.next(time.Now())
		for _, id := range []string{known, purged} {
			leave(t, store, id, leftover{spec: executor.Spec{Code: "x"}, events: []executor.Body{executor.Queued{}, executor.Finished{Result: succeeded}}})
		}
		if err := store.Delete(t.Context(), purged); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{ids.next(time.Now()) + "/workspace", purged + "/artifacts", known + "/workspace", known + "/artifacts"} {
			if _, err := blobs.Put(t.Context(), key, strings.NewReader("x"), 0, false); err != nil {
				t.Fatal(err)
			}
		}
		r := newRig(t, setup{options: Options{Store: store, Blobs: oldBlobs{blobs}}})
		r.wantBlobs(1)
	})
}

// oldBlobs are as old as the bubble's clock makes them: files have the real one's time.
type oldBlobs struct{ executor.Blobs }

func (b oldBlobs) List(ctx context.Context, prefix string) iter.Seq2[executor.BlobInfo, error] {
	return func(yield func(executor.BlobInfo, error) bool) {
		for info, err := range b.Blobs.List(ctx, prefix) {
			info.ModTime = time.Now().Add(-time.Hour)
			if !yield(info, err) {
				return
			}
		}
	}
}
