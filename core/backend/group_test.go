package backend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAWaiterThatLeavesHurtsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int](t.Context())
		release := make(chan struct{})
		runs := 0
		work := func(ctx context.Context, _ func(executor.Progress)) (int, error) {
			runs++
			select {
			case <-release:
				return 42, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
		leaving, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Do(leaving, "a", NoProgress, work); !errors.Is(err, gone) {
				t.Errorf("the waiter that left got %v", err)
			}
		})
		for range 5 {
			wg.Go(func() {
				if n, err := g.Do(t.Context(), "a", NoProgress, work); n != 42 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
			})
		}
		synctest.Wait()
		leave(gone)
		synctest.Wait()
		close(release)
		wg.Wait()
		g.Wait()
		if runs != 1 {
			t.Errorf("worked %d times", runs)
		}
	})
}

func TestTheLastWaiterEndsTheWorkAndWaitsForItsCleaningUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int](t.Context())
		ctx, leave := context.WithCancelCause(t.Context())
		cleaned := false
		go func() {
			synctest.Wait()
			leave(errors.New("gone"))
		}()
		_, err := g.Do(ctx, "a", NoProgress, func(ctx context.Context, _ func(executor.Progress)) (int, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errAbandoned) {
				t.Errorf("ended by %v", context.Cause(ctx))
			}
			// A caller that comes during the cleaning up does not join the work that ends.
			if n, err := g.Do(t.Context(), "a", NoProgress, func(context.Context, func(executor.Progress)) (int, error) { return 1, nil }); n != 1 || err != nil {
				t.Errorf("the next one got %d, %v", n, err)
			}
			cleaned = true
			return 0, context.Cause(ctx)
		})
		if err == nil || !cleaned {
			t.Errorf("err %v, cleaned %v", err, cleaned)
		}
	})
}

func TestProgressReachesAllWaitersAtMostFiveTimesASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int](t.Context())
		got := 0
		_, err := g.Do(t.Context(), "a", func(executor.Progress) { got++ }, func(_ context.Context, notify func(executor.Progress)) (int, error) {
			for range 1000 {
				notify(executor.Progress{Message: "x"})
			}
			return 0, nil
		})
		if err != nil || got > 2 {
			t.Errorf("told %d times, %v", got, err)
		}
	})
}

func TestTheWorkEndsWithItsGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, end := context.WithCancelCause(t.Context())
		closed := errors.New("closed")
		g := NewGroup[int](base)
		wait := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		g.Go(func(ctx context.Context) {
			if err := wait(ctx); !errors.Is(err, closed) {
				t.Errorf("a task in the background ended by %v", err)
			}
		})
		go func() {
			synctest.Wait()
			end(closed)
		}()
		_, err := g.Do(t.Context(), "a", NoProgress, func(ctx context.Context, _ func(executor.Progress)) (int, error) { return 0, wait(ctx) })
		if !errors.Is(err, closed) {
			t.Errorf("the work ended by %v", err)
		}
		g.Wait()
	})
}
