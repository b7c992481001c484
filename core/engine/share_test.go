package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// Four programs of one owner would hold all slots for up to a day.
func TestASlotIsKeptForAnOwnerThatHasNoneRunning(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 4, MaxQueued: 100, MaxRunningPerOwner: 3}}})
		alice, bob, carol := as("alice"), as("bob"), as("carol")
		for range 6 {
			r.submit(alice, "hang", durable)
		}
		synctest.Wait()
		if n := r.running(alice); n != 3 {
			t.Errorf("%d of alice run, want 3", n)
		}
		if res := r.result(r.submit(bob, "exit 0").ID); res.Status != executor.StatusSucceeded {
			t.Errorf("bob's ended as %s", res.Status)
		}
		first := r.submit(bob, "hang", durable)
		synctest.Wait()
		last := r.submit(carol, "exit 0", durable) // all slots are in use
		synctest.Wait()
		_ = must(r.Cancel(bob, first.ID))
		if res := r.result(last.ID); res.Status != executor.StatusSucceeded || res.Phases.Queue > time.Minute {
			t.Errorf("carol's ended as %s after %s", res.Status, res.Phases.Queue)
		}
	})
}

// running returns how many Executions of the owner of ctx run.
func (r *rig) running(ctx context.Context) int {
	page := must(r.List(ctx, executor.Filter{Statuses: []executor.Status{executor.StatusRunning}, Limit: 100}))
	return len(page)
}

func TestTheLastSlotOfABackendIsKept(t *testing.T) {
	t.Parallel()
	q := newQueue(10, 100, 0)
	q.share = 9
	q.capacity["x"], q.capacity["one"] = 3, 1
	take := func(owner, backend string) bool {
		p, _ := q.reserve(owner, backend, startNow)
		return p.state == granted
	}
	for i, test := range []struct {
		owner, backend string
		want           bool
	}{
		{"a", "x", true}, {"a", "x", true}, {"a", "x", false}, // the last one of x is not for a
		{"b", "x", true}, {"c", "x", false},
		{"a", "one", true}, {"b", "one", false}, // an owner that runs elsewhere may have an only slot
		{"a", "y", true}, {"a", "y", true}, {"a", "y", true}, {"a", "y", true}, {"a", "y", true}, {"a", "y", false}, {"b", "y", false},
		{"c", "y", true}, {"d", "y", false},
	} {
		if got := take(test.owner, test.backend); got != test.want {
			t.Errorf("%d: %s on %s runs: %t, with %d running", i, test.owner, test.backend, got, q.running)
		}
	}
}

func TestWithoutAShareAnOwnerHasAllSlots(t *testing.T) {
	t.Parallel()
	q := newQueue(4, 0, 0)
	for range 4 {
		if p, _ := q.reserve("a", "x", startNow); p == nil || p.state != granted {
			t.Error("a slot is kept for nobody")
		}
	}
	q = newQueue(4, 0, 0) // nothing waits
	q.share = 3
	for i := range 4 {
		p, why := q.reserve("a", "x", startLater)
		if got, want := p != nil, i < 3; got != want || !want && why != "your running executions" {
			t.Errorf("%d: %t, %q", i, got, why)
		}
	}
	if p, why := q.reserve("b", "x", startNow); p == nil || p.state != granted {
		t.Errorf("another owner: %q", why)
	}
	q = newQueue(10, 0, 0)
	q.share, q.capacity["x"] = 9, 3
	for i, want := range []bool{true, true, false} { // the last one of x is not for a, and nothing waits for it
		if p, why := q.reserve("a", "x", startNow); (p != nil && p.state == granted) != want || !want && (p != nil || why != "your running executions") {
			t.Errorf("%d of a on a backend: %+v, %q", i, p, why)
		}
	}
	if p, why := q.reserve("b", "x", startNow); p == nil || p.state != granted {
		t.Errorf("another owner on the backend: %q", why)
	}
}

// One owner's results must not push out those of others.
func TestRetentionDeletesOfTheOwnerThatHasMost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bounds config.Retention
		alice  int // Executions, of 3 KiB each
		bob    int
		want   string // how many of each are left
	}{
		"by bytes":                {config.Retention{MaxBytes: 40 << 10}, 20, 3, "9 3"},
		"by count":                {config.Retention{MaxExecutions: 10}, 20, 3, "7 3"},
		"both above their share":  {config.Retention{MaxExecutions: 10}, 20, 20, "5 5"},
		"by age of the older one": {config.Retention{MaxExecutions: 10, MaxAgeSeconds: 1}, 5, 2, "0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, setup{options: Options{Retention: test.bounds, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1000}}})
				alice, bob := as("alice"), as("bob")
				for range test.bob { // the oldest of all
					r.result(r.submit(bob, "flood stdout 3KB").ID)
				}
				for range test.alice {
					r.result(r.submit(alice, "flood stdout 3KB").ID)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				count := func(ctx context.Context) int { return len(must(r.List(ctx, executor.Filter{Limit: 100}))) }
				if got := fmt.Sprint(count(alice), count(bob)); got != test.want {
					t.Errorf("alice and bob have %s left, want %s", got, test.want)
				}
			})
		})
	}
}

// A file with holes counts with its size: that is what it takes where it is kept.
func TestArtifactsHaveABudgetOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		budget int64
		disk   int64
		names  string // of the bound; "": it is kept
	}{
		"within both":     {2 << 20, 2 << 20, ""},
		"beyond its own":  {1<<20 - 1, 2 << 20, "engine.max_artifact_bytes"},
		"beyond the disk": {2 << 20, 1<<20 - 1, "config.disk_mb"},
		"without one":     {0, 2 << 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				kept := false
				hook := func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
					err := s.Emit(executor.Event{Body: executor.Started{}})
					for i := 0; err == nil && i < 2; i++ {
						err = s.Artifact(&tar.Header{Name: fmt.Sprint(i), Size: 512 << 10}, bytes.NewReader(make([]byte, 512<<10)))
					}
					kept = err == nil
					return executor.Result{Status: executor.StatusSucceeded}, err
				}
				o := Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1, MaxArtifactBytes: test.budget}}
				r := newRig(t, setup{options: o, fake: fake.Options{Hook: hook}})
				x := r.submit(t.Context(), "exit 0", func(s *executor.Spec) { s.Outputs, s.Limits.DiskBytes = []string{"*"}, test.disk })
				res := r.result(x.ID)
				if kept != (test.names == "") {
					t.Errorf("kept %t: %+v", kept, res)
				}
				if f := res.Failure; test.names != "" && (f == nil || f.Code != executor.Exhausted || f.Phase != executor.PhaseCollect || !strings.Contains(f.Message, test.names)) {
					t.Errorf("%s, %+v", res.Status, f)
				}
			})
		})
	}
}

// Inputs of one owner must not fill the disk.
func TestInputsOnDiskAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := setup{options: Options{
			Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t),
			Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 100, MaxSpoolBytes: 50 << 10, MaxSpoolBytesPerOwner: 30 << 10},
		}}
		r := newRig(t, s)
		alice, bob := as("alice"), as("bob")
		blocker := r.submit(as("carol"), "hang")
		upload := func(ctx context.Context) (executor.Execution, error) {
			in := executor.Input{Workspace: once(tarOf(t, "a", strings.Repeat("x", 8<<10)))} // 10 KiB
			return r.Submit(ctx, executor.Spec{Code: "exit 0", Durable: true}, in)
		}
		refused := func(who string, ctx context.Context, key string) {
			t.Helper()
			_, err := upload(ctx)
			full, _ := errors.AsType[*executor.Error](err)
			if full == nil || full.Code != executor.Exhausted || full.RetryAfter == 0 || !strings.Contains(full.Message, key) {
				t.Errorf("%s: %v", who, err)
			}
		}
		var first executor.Execution
		for i := range 3 {
			x, err := upload(alice)
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			first = x
		}
		refused("alice", alice, "engine.max_spool_bytes_per_owner")
		for range 2 {
			_ = must(upload(bob))
		}
		refused("bob", bob, "engine.max_spool_bytes)")
		_ = must(r.Cancel(alice, first.ID))
		r.result(first.ID)
		_ = must(upload(bob))
		refused("alice after all is used", alice, "engine.max_spool_bytes)")
		_ = must(r.Cancel(as("carol"), blocker.ID))
		time.Sleep(time.Hour)
		r.spools.mu.Lock()
		if r.spools.total != 0 || len(r.spools.own) != 0 || len(r.spools.of) != 0 {
			t.Errorf("when all have ended, %d bytes are counted: %v", r.spools.total, r.spools.own)
		}
		r.spools.mu.Unlock()
		if _, err := upload(alice); err != nil {
			t.Error(err)
		}
	})
}

// An upload that its caller breaks off counts no more.
func TestAnUploadThatEndsEarlyCountsNoMore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 100, MaxSpoolBytes: 1 << 20}}})
		r.submit(t.Context(), "hang")
		broken := &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 10<<10)), &brokenReader{})), nil
		}}
		if _, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, executor.Input{Workspace: broken}); err == nil {
			t.Error("a broken upload is accepted")
		}
		synctest.Wait()
		if r.spools.total != 0 {
			t.Errorf("%d bytes are counted", r.spools.total)
		}
	})
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
