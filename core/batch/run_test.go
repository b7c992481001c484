package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/batch"
	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	memorystore "github.com/python-executor/python-executor/core/store/memory"
)

// rig is an Engine on the fake backend.
type rig struct {
	*engine.Engine
	t    *testing.T
	ctx  context.Context
	fake *fake.Backend
}

// inBubble runs test on a fake clock.
func inBubble(t *testing.T, bounds config.Engine, test func(r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		blobs, err := dirblobs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		backend := fake.New(fake.Options{})
		store := memorystore.New(memorystore.Options{})
		e, err := engine.New(engine.Options{Store: store, Blobs: blobs, Backends: map[string]executor.Backend{"fake": backend}, Engine: bounds})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			synctest.Wait()
			if left := backend.Running(); len(left) != 0 {
				t.Errorf("%v still run", left)
			}
			if err := errors.Join(e.Close(context.Background()), store.Close()); err != nil {
				t.Error(err)
			}
		}()
		test(&rig{e, t, as("me"), backend})
	})
}

func as(owner string) context.Context {
	return executor.WithPrincipal(context.Background(), executor.Principal{Owner: owner, Scopes: []executor.Scope{executor.ScopeExec, executor.ScopeRead}})
}

func text(s string) *executor.Source {
	return &executor.Source{Replayable: true, SizeBytes: int64(len(s)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(s))), nil
	}}
}

// watched collects what Run tells of a batch.
type watched struct {
	mu       sync.Mutex
	accepted int
	// order has the indexes of the outcomes as they came.
	order    []int
	outcomes map[int]batch.Outcome
	output   map[int]string
	// ended may end the batch.
	ended func(batch.Outcome) error
}

func (w *watched) watch(i int) batch.Watcher { return &watcher{w, i} }

type watcher struct {
	of    *watched
	index int
}

func (w *watcher) Event(e executor.Event) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if o, ok := e.Body.(executor.Output); ok {
		w.of.output[w.index] += string(o.Data)
	}
}

func (w *watcher) Ended(o batch.Outcome) error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.order = append(w.of.order, o.Index)
	if _, again := w.of.outcomes[o.Index]; again || o.Index != w.index {
		return fmt.Errorf("case %d ended twice", o.Index)
	}
	w.of.outcomes[o.Index] = o
	if w.of.ended != nil {
		return w.of.ended(o)
	}
	return nil
}

func (r *rig) run(ctx context.Context, b batch.Batch, ended func(batch.Outcome) error) (batch.Summary, *watched, error) {
	r.t.Helper()
	var bad executor.Problems
	if b.Check(&bad); bad.Err(executor.Invalid, "", "; ") != nil {
		r.t.Fatal(bad.Err(executor.Invalid, "", "; "))
	}
	w := &watched{outcomes: map[int]batch.Outcome{}, output: map[int]string{}, ended: ended}
	s, err := batch.Run(ctx, r, b, func() { w.accepted++ }, w.watch)
	return s, w, err
}

func (w *watched) verdicts() string {
	var all []string
	for _, i := range slices.Sorted(maps.Keys(w.outcomes)) {
		all = append(all, string(w.outcomes[i].Verdict))
	}
	return strings.Join(all, " ")
}

// command is a case that runs a program of the fake.
func command(program string, e batch.Expect) batch.Case {
	return batch.Case{Args: []string{program}, Expect: e}
}

// interpreter is a Spec whose program is the argument of the case.
func interpreter() executor.Spec { return executor.Spec{Command: []string{"fake", "-c"}} }

func TestEveryCaseGetsItsVerdict(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 4, MaxQueued: 100}, func(r *rig) {
		spec := interpreter()
		spec.Limits = executor.Limits{Timeout: 10e9, MemoryBytes: 64 << 20, OutputBytes: 1000}
		s, w, err := r.run(r.ctx, batch.Batch{Spec: spec, Cases: []batch.Case{
			command("print hi", batch.Expect{Stdout: new("hi\n")}),
			command("print hi", batch.Expect{Stdout: new("ho\n")}),
			command("exit 3", batch.Expect{}),
			command("exit 3", batch.Expect{ExitCode: 3}),
			command("hang", batch.Expect{}),
			command("alloc 1GB", batch.Expect{}),
			command("signal SEGV", batch.Expect{}),
			command("print 1.0001", batch.Expect{Stdout: new("1"), Compare: batch.CompareFloat, Tolerance: batch.Tolerance{Abs: 1e-3}}),
			command("print hi", batch.Expect{Stdout: new("hi"), Compare: batch.CompareLines}),
			command("flood stdout 4KB", batch.Expect{Stdout: new("")}),
			command("flood stdout 4KB", batch.Expect{}),
			command("print hi", batch.Expect{ExitCode: 1}),
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := "passed wrong_output failed passed timed_out out_of_memory failed passed passed wrong_output passed failed"
		if got := w.verdicts(); got != want {
			t.Errorf("verdicts\n%s, want\n%s", got, want)
		}
		if s.Cases != 12 || s.Verdicts[batch.Passed] != 5 || s.Verdicts[batch.Failed] != 3 || w.accepted != 1 {
			t.Errorf("summary %+v, accepted %d times", s, w.accepted)
		}
		for i, detail := range map[int]string{1: "differs in line 1", 2: "expected 0, got 3", 6: "SIGSEGV", 9: "output_bytes", 0: ""} {
			if got := w.outcomes[i].Detail; !strings.Contains(got, detail) || detail == "" && got != "" {
				t.Errorf("case %d: detail %q, want %q", i, got, detail)
			}
		}
		if w.output[0] != "hi\n" {
			t.Errorf("case 0 printed %q", w.output[0])
		}
	})
}

// Each case has its own arguments, variables and input beside those of the batch, and is an Execution of its own.
func TestACaseHasItsOwnInput(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		args := []string{"every", "none"} // a case that appended in place would write over the second
		spec := executor.Spec{Code: "print-args\nenv\nread-stdin", Args: args[:1], Env: map[string]string{"A": "batch", "B": "batch"}}
		_, w, err := r.run(r.ctx, batch.Batch{Spec: spec, Stdin: text("default"), Cases: []batch.Case{
			{Args: []string{"one"}, Env: map[string]string{"A": "case"}, Stdin: text("own")},
			{},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, parts := range [][]string{{"every", "one", `"A=case"`, `"B=batch"`, "own"}, {"every", `"A=batch"`, "default"}} {
			for _, part := range parts {
				if !strings.Contains(w.output[i], part) {
					t.Errorf("case %d prints %q without %q", i, w.output[i], part)
				}
			}
		}
		if strings.Contains(w.output[1], "one") || spec.Env["A"] != "batch" || args[1] != "none" {
			t.Errorf("case 1 prints %q", w.output[1])
		}
		a, b := w.outcomes[0].Execution, w.outcomes[1].Execution
		if list, err := r.List(r.ctx, executor.Filter{}); err != nil || len(list) != 2 || a.ID == b.ID {
			t.Errorf("%d executions %s and %s, %v", len(list), a.ID, b.ID, err)
		}
	})
}

func repeat(n int, c batch.Case) []batch.Case {
	return slices.Repeat([]batch.Case{c}, n)
}

// A batch has no more cases at once than it may, and waits for the places that it cannot have now.
func TestABatchTakesNoMoreThanItsPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bounds         config.Engine
		parallel, most int
	}{
		{config.Engine{MaxConcurrent: 50, MaxQueued: 50}, 3, 3},
		{config.Engine{MaxConcurrent: 50, MaxQueued: 50}, 0, batch.DefaultParallel},
		{config.Engine{MaxConcurrent: 50, MaxQueued: 50, MaxPerOwner: 2}, 8, 2},
		{config.Engine{MaxConcurrent: 2, MaxQueued: 1}, 8, 3},
	} {
		inBubble(t, c.bounds, func(r *rig) {
			ctx, cancel := context.WithCancelCause(r.ctx)
			most, looked := 0, make(chan struct{})
			go func() {
				defer close(looked)
				// All sleep between two seconds. At the end of a program, its slot is free before its status says that it has ended.
				for time.Sleep(time.Second / 2); ctx.Err() == nil; time.Sleep(time.Second) {
					list, err := r.List(r.ctx, executor.Filter{Statuses: []executor.Status{executor.StatusQueued, executor.StatusRunning}, Limit: 100})
					if err != nil {
						t.Error(err)
					}
					most = max(most, len(list))
				}
			}()
			s, w, err := r.run(r.ctx, batch.Batch{Spec: interpreter(), Parallel: c.parallel, Cases: repeat(40, command("sleep 1s", batch.Expect{}))}, nil)
			cancel(nil)
			<-looked
			if err != nil || strings.Count(w.verdicts(), "passed") != 40 {
				t.Errorf("%+v: %s, %v", c.bounds, w.verdicts(), err)
			}
			at := min(c.most, c.bounds.MaxConcurrent)
			if want := time.Duration((39+at)/at) * time.Second; s.Wall < want || s.Wall > want+want/4 {
				t.Errorf("%+v: it took %s of the bubble's clock, want %s: places were empty", c.bounds, s.Wall, want)
			}
			if most != c.most {
				t.Errorf("%+v: %d at once, want %d", c.bounds, most, c.most)
			}
		})
	}
}

// Another owner's program does not wait for the whole batch.
func TestABatchLetsOthersRun(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		before, other := 0, ""
		_, _, err := r.run(r.ctx, batch.Batch{Spec: interpreter(), Cases: repeat(60, command("sleep 1s", batch.Expect{}))}, func(batch.Outcome) error {
			if other == "" {
				x, err := r.Submit(as("other"), executor.Spec{Code: "print hi"}, executor.Input{})
				other = x.ID
				return err
			}
			if x, err := r.Get(as("other"), other); err != nil || !x.Status.Terminal() {
				before++
				return err
			}
			return nil
		})
		if err != nil || before > 4 {
			t.Errorf("%d cases ended before the program of another owner, %v", before, err)
		}
	})
}

// After the first case that has not passed those that run are cancelled, and the others are skipped.
func TestABatchStopsAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	for verdict, bad := range map[batch.Verdict]batch.Case{
		batch.Failed:      command("sleep 1s\nexit 1", batch.Expect{}),
		batch.WrongOutput: command("sleep 1s", batch.Expect{Stdout: new("a\n")}),
	} {
		inBubble(t, config.Engine{MaxConcurrent: 4, MaxQueued: 100}, func(r *rig) {
			cases := []batch.Case{command("print a", batch.Expect{Stdout: new("a\n")}), command("print start\nhang", batch.Expect{}), bad}
			cases = append(cases, repeat(3, command("hang", batch.Expect{}))...)
			s, w, err := r.run(r.ctx, batch.Batch{Spec: interpreter(), Cases: cases, Parallel: 2, StopAtFirstFailure: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.verdicts(); got != "passed killed "+string(verdict)+" skipped skipped skipped" {
				t.Errorf("verdicts %s", got)
			}
			if w.output[1] != "start\n" || w.outcomes[1].Execution.Status != executor.StatusKilled || s.Verdicts[batch.Skipped] != 3 {
				t.Errorf("the cancelled case: %q, %+v; %+v", w.output[1], w.outcomes[1], s)
			}
			if w.outcomes[3].Execution != nil {
				t.Error("a skipped case has an execution")
			}
		})
	}
}

// When the caller goes, or takes no more results, what runs is cancelled and nothing else starts.
func TestABatchEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	gone := errors.New("the caller has gone")
	for _, watcherFails := range []bool{false, true} {
		inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
			ctx, cancel := context.WithCancelCause(r.ctx)
			defer cancel(nil)
			cases := append([]batch.Case{command("exit 0", batch.Expect{})}, repeat(10, command("hang", batch.Expect{}))...)
			_, w, err := r.run(ctx, batch.Batch{Spec: interpreter(), Cases: cases, Parallel: 4}, func(batch.Outcome) error {
				if watcherFails {
					return gone
				}
				cancel(gone)
				return nil
			})
			if !errors.Is(err, gone) || len(w.outcomes) != 1 {
				t.Errorf("%v, %d outcomes", err, len(w.outcomes))
			}
			list, err := r.List(r.ctx, executor.Filter{})
			if err != nil || len(list) > 5 {
				t.Errorf("%d executions, %v", len(list), err)
			}
			for _, x := range list {
				if !x.Status.Terminal() {
					t.Errorf("%s is %s", x.ID, x.Status)
				}
			}
		})
	}
}

// refuser takes no more results from the first one on, and says so when the other case of a batch has ended, too.
type refuser struct {
	r     *rig
	gone  error
	ended *atomic.Int64
}

func (refuser) Event(executor.Event) {}

func (f refuser) Ended(batch.Outcome) error {
	if f.ended.Add(1) > 1 {
		return nil
	}
	for running := true; running; runtime.Gosched() {
		list, err := f.r.List(f.r.ctx, executor.Filter{})
		running = err != nil || len(list) < 2 || slices.ContainsFunc(list, func(x executor.Execution) bool { return !x.Status.Terminal() })
	}
	for range 10_000 {
		runtime.Gosched() // its own end comes
	}
	return f.gone
}

// A caller that takes no more results gets none of a case that ends while it says so.
func TestACallerThatTakesNoMoreGetsNoMore(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		f := refuser{r, errors.New("the caller has gone"), new(atomic.Int64)}
		b := batch.Batch{Spec: interpreter(), Cases: repeat(2, command("exit 0", batch.Expect{})), Parallel: 2}
		_, err := batch.Run(r.ctx, r.Engine, b, func() {}, func(int) batch.Watcher { return f })
		if !errors.Is(err, f.gone) || f.ended.Load() != 1 {
			t.Errorf("%v, %d outcomes", err, f.ended.Load())
		}
	})
}

// A caller that may submit and not read gets the results of its batch.
func TestABatchNeedsNoRightToRead(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		ctx := executor.WithPrincipal(context.Background(), executor.Principal{Owner: "me", Scopes: []executor.Scope{executor.ScopeExec}})
		_, w, err := r.run(ctx, batch.Batch{Spec: interpreter(), Cases: repeat(3, command("print hi", batch.Expect{})), Parallel: 2}, nil)
		if err != nil || w.verdicts() != "passed passed passed" {
			t.Errorf("%s, %v", w.verdicts(), err)
		}
	})
}

// What is wrong for every case is an error of the batch, and no case runs.
func TestABatchThatIsRefusedRunsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		spec := interpreter()
		spec.Backend = "none"
		_, w, err := r.run(r.ctx, batch.Batch{Spec: spec, Cases: repeat(3, batch.Case{})}, nil)
		if executor.CodeOf(err) != executor.Invalid || w.accepted != 0 || len(w.outcomes) != 0 {
			t.Errorf("%v, accepted %d times, %d outcomes", err, w.accepted, len(w.outcomes))
		}
	})
}

// What the server refuses of one case is the outcome of that case.
func TestACaseThatIsRefusedIsAnOutcome(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		_, w, err := r.run(r.ctx, batch.Batch{Spec: interpreter(), Cases: []batch.Case{
			command("exit 0", batch.Expect{}), command("bad\x00", batch.Expect{}), command("exit 0", batch.Expect{}),
		}}, nil)
		if err != nil || w.verdicts() != "passed refused passed" {
			t.Errorf("%s, %v", w.verdicts(), err)
		}
		if o := w.outcomes[1]; executor.CodeOf(o.Err) != executor.Invalid || o.Detail == "" || o.Execution != nil {
			t.Errorf("%+v", o)
		}
	})
}

func TestABatchIsChecked(t *testing.T) {
	t.Parallel()
	ok := batch.Case{}
	for field, b := range map[string]batch.Batch{
		"cases":                         {},
		"parallel":                      {Cases: []batch.Case{ok}, Parallel: 65},
		"session_id":                    {Cases: []batch.Case{ok}, Spec: executor.Spec{Session: "ctx-1"}},
		"durable":                       {Cases: []batch.Case{ok}, Spec: executor.Spec{Durable: true}},
		"idempotency_key":               {Cases: []batch.Case{ok}, Spec: executor.Spec{IdempotencyKey: strings.Repeat("k", 241)}},
		"cases[2].id":                   {Cases: []batch.Case{{ID: "a"}, {ID: "b"}, {ID: "a"}}},
		"cases[0].expect.compare":       {Cases: []batch.Case{{Expect: batch.Expect{Stdout: new(""), Compare: "fuzzy"}}}},
		"cases[1].expect.compare":       {Cases: []batch.Case{ok, {Expect: batch.Expect{Compare: batch.CompareLines}}}},
		"cases[0].expect.tolerance_abs": {Cases: []batch.Case{{Expect: batch.Expect{Stdout: new(""), Tolerance: batch.Tolerance{Abs: 1}}}}},
		"cases[0].expect.tolerance_rel": {Cases: []batch.Case{{Expect: batch.Expect{Stdout: new(""), Compare: batch.CompareFloat, Tolerance: batch.Tolerance{Rel: -1}}}}},
	} {
		var bad executor.Problems
		b.Check(&bad)
		e, ok := errors.AsType[*executor.Error](bad.Err(executor.Invalid, "", "; "))
		if !ok || len(e.Fields) != 1 || e.Fields[0].Field != field {
			t.Errorf("%s: %v", field, e)
		}
	}
	for want, b := range map[string]batch.Batch{
		"":                                      {Cases: []batch.Case{{}, {ID: "a"}, {}, {ID: "b"}}, Parallel: batch.MaxParallel, Spec: executor.Spec{IdempotencyKey: strings.Repeat("k", batch.MaxKey)}},
		"cases[3].id: duplicate of cases[1].id": {Cases: []batch.Case{{ID: "b"}, {ID: "a"}, {ID: "c"}, {ID: "a"}}},
		"cases[0].expect.tolerance_rel: must be given with compare float only": {
			Cases: []batch.Case{{Expect: batch.Expect{Stdout: new(""), Compare: batch.CompareLines, Tolerance: batch.Tolerance{Rel: 1}}}},
		},
		"parallel: must be between 1 and 64 (got -1)": {Cases: slices.Repeat([]batch.Case{ok}, batch.MaxCases), Parallel: -1},
	} {
		var bad executor.Problems
		b.Check(&bad)
		got := ""
		if err := bad.Err(executor.Invalid, "", "; "); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var bad executor.Problems
	batch.Batch{Cases: slices.Repeat([]batch.Case{ok}, batch.MaxCases+1)}.Check(&bad)
	if bad.Err(executor.Invalid, "", "; ") == nil {
		t.Error("there is no bound on the cases")
	}
}
