package protocol

import (
	"errors"
	"testing"
	"testing/synctest"
)

func TestACreditGivesNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCredit(10)
		for _, want := range []int{7, 3} {
			if n, err := c.Take(7); n != want || err != nil {
				t.Fatalf("took %d, %v, want %d", n, err, want)
			}
		}
		taken := make(chan int)
		go func() {
			n, err := c.Take(7)
			if err != nil {
				t.Error(err)
			}
			taken <- n
		}()
		synctest.Wait() // it waits for credit
		c.Add(4)
		if n := <-taken; n != 4 {
			t.Errorf("took %d of the 4 bytes that were added", n)
		}
	})
}

func TestACreditFailsWithTheFirstReason(t *testing.T) {
	t.Parallel()
	c := NewCredit(10)
	c.Stop(ErrCancelled)
	c.Stop(ErrStopped)
	if n, err := c.Take(1); n != 0 || !errors.Is(err, ErrCancelled) {
		t.Errorf("took %d, %v", n, err)
	}
}
