package host

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// ledger is a Service that writes down what is cancelled, and by whom.
type ledger struct {
	executor.Service
	mu        sync.Mutex
	cancelled []string
}

func (*ledger) Submit(_ context.Context, spec executor.Spec, _ executor.Input) (executor.Execution, error) {
	x := executor.Execution{ID: spec.Code, Status: executor.StatusRunning}
	if spec.Code == "over" {
		x.Status = executor.StatusSucceeded
	}
	return x, nil
}

func (l *ledger) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelled = append(l.cancelled, executor.PrincipalFrom(ctx).Owner+" "+id)
	return executor.Execution{ID: id}, ctx.Err()
}

func (*ledger) Events(_ context.Context, id string, _ uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		if yield(executor.Event{Body: executor.Started{}}, nil) && id == "followed" {
			yield(executor.Event{Body: executor.Finished{}}, nil)
		}
	}
}

func (*ledger) Admit(context.Context) error { return executor.Errorf(executor.Exhausted, "full") }

func TestWhatADeadFrontendAwaitedIsEnded(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	c := newCaller(l, slog.New(slog.DiscardHandler))
	ctx := executor.WithPrincipal(t.Context(), executor.Principal{Owner: "ann"})
	submit := func(id string, durable bool) {
		t.Helper()
		if _, err := c.Submit(ctx, executor.Spec{Code: id, Durable: durable}, executor.Input{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"awaited", "followed", "half", "cancelled", "not cancelled", "over"} {
		submit(id, false)
	}
	submit("job", true)
	for _, id := range []string{"followed", "half"} {
		for range c.Events(ctx, id, 0) {
		}
	}
	if _, err := c.Cancel(ctx, "cancelled"); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(ctx)
	cancel(nil)
	if _, err := c.Cancel(gone, "not cancelled"); err == nil {
		t.Error("the ledger has not refused")
	}
	l.cancelled = nil
	c.abandon(t.Context()) // without a principal
	submit("late", false)
	submit("late job", true)
	slices.Sort(l.cancelled)
	if want := []string{"ann awaited", "ann half", "ann late", "ann not cancelled"}; !slices.Equal(l.cancelled, want) {
		t.Errorf("%q, want %q", l.cancelled, want)
	}
	if err := c.Admit(ctx); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("%v", err)
	}
	if err := newCaller(struct{ executor.Service }{}, nil).Admit(ctx); err != nil {
		t.Errorf("%v", err)
	}
}

// silent is a Service whose Cancel ends with its ctx only.
type silent struct{ ledger }

func (*silent) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	<-ctx.Done()
	return executor.Execution{ID: id}, context.Cause(ctx)
}

func TestTheCancelsForADeadFrontendAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ closing, want time.Duration }{
		"the host goes on":                  {time.Hour, abandonLimit},
		"the host is closing":               {5 * time.Second, 5*time.Second + abandonGrace},
		"the host's time has passed before": {0, abandonGrace},
	} {
		synctest.Test(t, func(t *testing.T) {
			caller := newCaller(&silent{}, slog.New(slog.DiscardHandler))
			for _, id := range []string{"one", "two"} {
				if _, err := caller.Submit(t.Context(), executor.Spec{Code: id}, executor.Input{}); err != nil {
					t.Fatal(err)
				}
			}
			closing, cancel := context.WithTimeout(t.Context(), c.closing)
			defer cancel()
			began := time.Now()
			caller.abandon(closing)
			if got := time.Since(began); got != c.want {
				t.Errorf("%s: it took %s, want %s", name, got, c.want)
			}
		})
	}
}
