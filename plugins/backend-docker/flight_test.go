package dockerbackend

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
		f := newFlights[int](t.Context())
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
			if _, err := f.wait(leaving, "a", func(executor.Progress) {}, work); !errors.Is(err, gone) {
				t.Errorf("the one who left got %v", err)
			}
		})
		for range 5 {
			wg.Go(func() {
				if n, err := f.wait(t.Context(), "a", func(executor.Progress) {}, work); n != 42 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
			})
		}
		synctest.Wait()
		leave(gone)
		synctest.Wait()
		close(release)
		wg.Wait()
		f.wg.Wait()
		if runs != 1 {
			t.Errorf("worked %d times", runs)
		}
	})
}

func TestTheLastWaiterEndsTheWorkAndWaitsForItsCleaningUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights[int](t.Context())
		ctx, leave := context.WithCancelCause(t.Context())
		cleaned := false
		go func() {
			synctest.Wait()
			leave(errors.New("gone"))
		}()
		_, err := f.wait(ctx, "a", func(executor.Progress) {}, func(ctx context.Context, _ func(executor.Progress)) (int, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errNobodyWaits) {
				t.Errorf("ended by %v", context.Cause(ctx))
			}
			cleaned = true
			return 0, context.Cause(ctx)
		})
		if err == nil || !cleaned {
			t.Errorf("err %v, cleaned %v", err, cleaned)
		}
		// Who comes now is not told that nobody waits.
		if n, err := f.wait(t.Context(), "a", func(executor.Progress) {}, func(context.Context, func(executor.Progress)) (int, error) { return 1, nil }); n != 1 || err != nil {
			t.Errorf("the next one got %d, %v", n, err)
		}
	})
}

func TestProgressReachesAllWaitersAtMostFiveTimesASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights[int](t.Context())
		got := 0
		_, err := f.wait(t.Context(), "a", func(executor.Progress) { got++ }, func(_ context.Context, notify func(executor.Progress)) (int, error) {
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
