package calls

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAnswersOfCallsThatPanicOrEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	_, err := Guard(func() (int, error) { panic("here") })
	if p, ok := errors.AsType[*PanicError](err); !ok || p.Value != "here" || !strings.Contains(err.Error(), "calls_test.go") {
		t.Errorf("a panic is %v", err)
	}
	for name, f := range map[string]func() (int, error){
		"panic":           func() (int, error) { panic("here") },
		"ended goroutine": func() (int, error) { runtime.Goexit(); return 0, nil },
		"an error":        func() (int, error) { return 0, errors.New("no") },
	} {
		answers, returned := Go(f)
		if got := <-answers; got.Err == nil {
			t.Errorf("%s: no error", name)
		}
		<-returned
	}
}

func TestAskGivesUpOnlyAfterTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			returns time.Duration // after the end of ctx
			givenUp bool
		}{{2 * time.Second, false}, {4 * time.Second, true}} {
			var abandoned Abandoned
			began := time.Now()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
			got, err := Ask(ctx, &abandoned, "a call", 3*time.Second, func() (int, error) {
				<-ctx.Done()
				time.Sleep(c.returns)
				return 7, nil
			})
			cancel()
			if errors.Is(err, ErrGivenUp) != c.givenUp || (got == 7) == c.givenUp {
				t.Errorf("a call that returns %s late: %d, %v", c.returns, got, err)
			}
			if took := time.Since(began); took != time.Second+min(c.returns, 3*time.Second) {
				t.Errorf("a call that returns %s late took %s", c.returns, took)
			}
			if c.givenUp && (executor.CodeOf(err) != executor.Unavailable || err.Error() != "a call: too long") {
				t.Errorf("it says %v", err)
			}
			now, stop := context.WithTimeout(t.Context(), 0)
			if left := abandoned.Wait(now); (left != nil) != c.givenUp || left != nil && left.Error() != "a call has not returned" {
				t.Errorf("left: %v", left)
			}
			stop()
			if err := abandoned.Wait(t.Context()); err != nil {
				t.Errorf("after it has returned: %v", err)
			}
		}
	})
}

func TestStraysForgetsWhatHasReturned(t *testing.T) {
	t.Parallel()
	var s Abandoned
	done, open := make(chan struct{}), make(chan struct{})
	close(done)
	s.Add(done, "one")
	s.Add(open, "two")
	if len(s.left) != 1 || s.left[open] != "two" {
		t.Errorf("left: %v", s.left)
	}
}

func TestAStoreContextOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	kept, stop := StoreContext(ctx)
	defer stop()
	deadline, ok := kept.Deadline()
	if kept.Err() != nil || !ok || time.Until(deadline) > storeTimeout {
		t.Errorf("%v, until %v", kept.Err(), deadline)
	}
}
