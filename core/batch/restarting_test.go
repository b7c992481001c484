package batch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// restarting is a service whose backend is down from its second Submit on, for a while.
type restarting struct {
	executor.Executions
	down  time.Duration
	since *time.Time
}

func (s restarting) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	if s.since.IsZero() {
		*s.since = time.Now()
		return s.Executions.Submit(ctx, spec, in)
	}
	if time.Since(*s.since) < s.down {
		return executor.Execution{}, &executor.Error{Code: executor.Unavailable, Message: "backend fake is down", RetryAfter: time.Second}
	}
	return s.Executions.Submit(ctx, spec, in)
}

// Cases that have not started wait for a backend that comes back, and do not wait for ever.
func TestCasesWaitForABackendThatIsRestarted(t *testing.T) {
	t.Parallel()
	for down, want := range map[time.Duration]string{5 * time.Second: "passed passed passed", time.Hour: "passed refused refused"} {
		inBubble(t, config.Engine{MaxConcurrent: 2, MaxQueued: 100}, func(r *rig) {
			w := &watched{outcomes: map[int]batch.Outcome{}, output: map[int]string{}}
			b := batch.Batch{Spec: interpreter(), Cases: repeat(3, command("exit 0", batch.Expect{}))}
			_, err := batch.Run(r.ctx, restarting{r, down, new(time.Time)}, b, func() {}, w.watch)
			if err != nil || w.verdicts() != want {
				t.Errorf("down for %v: %s, %v", down, w.verdicts(), err)
			}
		})
	}
}

// patient is a service that asks those without a place to come again in an hour. It counts the inputs that it has to copy.
type patient struct {
	executor.Executions
	copies *atomic.Int32
}

func (s patient) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	if !in.Lasting {
		s.copies.Add(1)
	}
	x, err := s.Executions.Submit(ctx, spec, in)
	if e, ok := errors.AsType[*executor.Error](err); ok && e.Code == executor.Exhausted {
		again := *e
		again.RetryAfter = time.Hour
		err = &again
	}
	return x, err
}

// A case that waits for a place takes the one that another case has left, whatever time the server asked for.
func TestACaseTakesThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, config.Engine{MaxConcurrent: 1}, func(r *rig) {
		w := &watched{outcomes: map[int]batch.Outcome{}, output: map[int]string{}}
		b := batch.Batch{Spec: interpreter(), Stdin: text("in"), Cases: repeat(6, command("sleep 1s", batch.Expect{})), Parallel: 3}
		svc := patient{r, new(atomic.Int32)}
		s, err := batch.Run(r.ctx, svc, b, func() {}, w.watch)
		if err != nil || w.verdicts() != "passed passed passed passed passed passed" || s.Wall > time.Minute {
			t.Errorf("%s after %s, %v", w.verdicts(), s.Wall, err)
		}
		if n := svc.copies.Load(); n > 0 {
			t.Errorf("%d copies of the input", n)
		}
	})
}
