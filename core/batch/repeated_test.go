package batch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// A batch that is repeated under its key takes over the cases that have ended, and runs the others.
func TestARepeatedBatchGoesOn(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		spec := interpreter()
		spec.IdempotencyKey = "key"
		b := batch.Batch{Spec: spec, Parallel: 2, Cases: []batch.Case{
			command("print 0", batch.Expect{Stdout: new("0\n")}), command("sleep 5s", batch.Expect{}), command("exit 1", batch.Expect{}), command("print 3", batch.Expect{}),
		}}
		gone := errors.New("gone")
		_, first, err := r.run(r.ctx, b, func(batch.Outcome) error { return gone })
		if !errors.Is(err, gone) {
			t.Fatal(err)
		}
		_, second, err := r.run(r.ctx, b, nil)
		if err != nil || second.verdicts() != "passed passed failed passed" {
			t.Fatalf("%s, %v", second.verdicts(), err)
		}
		if a, b := first.outcomes[0].Execution.ID, second.outcomes[0].Execution.ID; a != b || second.output[0] != "0\n" {
			t.Errorf("case 0 ran as %s and %s, output %q", a, b, second.output[0])
		}
		_, third, err := r.run(r.ctx, b, nil)
		for i, o := range third.outcomes {
			if o.Execution.ID != second.outcomes[i].Execution.ID {
				t.Errorf("case %d ran again", i)
			}
		}
		b.Cases[0].Args = []string{"print 1"}
		_, _, conflict := r.run(r.ctx, b, nil)
		if err != nil || executor.CodeOf(conflict) != executor.Conflict {
			t.Errorf("%v; another batch under the key: %v", err, conflict)
		}
	})
}

// A case that runs for an earlier call of the same key is not ended by a later one that stops at a failure.
func TestABatchThatStopsLeavesTheCasesOfAnEarlierCall(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		spec := interpreter()
		spec.IdempotencyKey = "key"
		b := batch.Batch{Spec: spec, Parallel: 2, Cases: []batch.Case{command("sleep 2s\nexit 1", batch.Expect{}), command("sleep 5s", batch.Expect{})}}
		earlier, whole := make(chan string), b
		go func() {
			_, w, err := r.run(r.ctx, whole, nil)
			earlier <- fmt.Sprint(w.verdicts(), err)
		}()
		synctest.Wait() // the earlier call has made the cases, at the same time of the bubble's clock
		b.StopAtFirstFailure = true
		if _, later, err := r.run(r.ctx, b, nil); err != nil || later.verdicts() != "failed skipped" {
			t.Errorf("the later call: %s, %v", later.verdicts(), err)
		}
		if got := <-earlier; got != "failed passed<nil>" {
			t.Errorf("the earlier call: %s", got)
		}
	})
}

// A case whose every run was killed is not run for ever, and says so.
func TestACaseThatIsKilledEachTimeIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
		spec := interpreter()
		spec.IdempotencyKey = "key"
		b := batch.Batch{Spec: spec, Cases: []batch.Case{command("hang", batch.Expect{})}}
		for n := range 21 {
			ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
			_, w, err := r.run(ctx, b, nil)
			cancel()
			if n < 20 && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("call %d: %s, %v", n, w.verdicts(), err)
			}
			if o := w.outcomes[0]; n == 20 && (err != nil || o.Verdict != batch.Killed || !strings.Contains(o.Detail, "20 runs")) {
				t.Errorf("the last call: %+v, %v", o, err)
			}
		}
	})
}

// told is a service that tells another status of one Execution.
type told struct {
	executor.Executions
	id     string
	status executor.Status
}

func (s told) Get(ctx context.Context, id string) (executor.Execution, error) {
	x, err := s.Executions.Get(ctx, id)
	if id == s.id {
		x.Status = s.status
	}
	return x, err
}

// A repeated batch runs a case again whose run was lost. A run whose log has ended and which goes on all the same is an error.
func TestARepeatedCaseHasTheStatusOfItsRun(t *testing.T) {
	t.Parallel()
	for status, want := range map[executor.Status]string{executor.StatusLost: "passed", executor.StatusRunning: "refused"} {
		inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
			spec := interpreter()
			spec.IdempotencyKey = "key"
			b := batch.Batch{Spec: spec, Cases: []batch.Case{command("exit 0", batch.Expect{})}}
			_, first, err := r.run(r.ctx, b, nil)
			if err != nil {
				t.Fatal(err)
			}
			w := &watched{outcomes: map[int]batch.Outcome{}, output: map[int]string{}}
			_, err = batch.Run(r.ctx, told{r, first.outcomes[0].Execution.ID, status}, b, func() {}, w.watch)
			if err != nil || w.verdicts() != want {
				t.Errorf("%s: %s, want %s, %v", status, w.verdicts(), want, err)
			}
		})
	}
}
