package awaittest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// spy notes how a wait fails.
type spy struct{ end string }

func (s *spy) Helper() {}

func (s *spy) Fatalf(format string, args ...any) {
	s.end = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs f with a spy and returns how it failed, or "".
func failure(f func(T)) string {
	var s spy
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(&s)
	}()
	<-done
	return s.end
}

func TestAWaitEndsWhenItsEventIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var there atomic.Bool
		closed, values := make(chan struct{}), make(chan int)
		go func() {
			time.Sleep(5 * time.Minute)
			there.Store(true)
			values <- 7
			close(closed)
		}()
		if end := failure(func(t T) {
			Until(t, "it", there.Load)
			if v := Recv(t, "a value", values); v != 7 {
				t.Fatalf("got %d", v)
			}
			Closed(t, "the end", closed)
		}); end != "" {
			t.Error(end)
		}
		if took := time.Since(begin); took > 5*time.Minute+time.Second {
			t.Errorf("the waits took %s", took)
		}
	})
}

func TestAHangFailsWithEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, wait := range map[string]func(T){
			"a condition": func(t T) { Until(t, "it", func() bool { return false }) },
			"an error":    func(t T) { UntilNil(t, "it", func() error { return errors.New("refused") }) },
			"a value":     func(t T) { Recv(t, "it", make(chan int)) },
			"an end":      func(t T) { Closed(t, "it", make(chan int)) },
		} {
			begin := time.Now()
			end := failure(wait)
			if took := time.Since(begin); took < Bound || took > Bound+time.Second {
				t.Errorf("%s: it took %s", name, took)
			}
			for _, want := range []string{"it did not happen within 10m0s", "processes:\n", "TestAHangFailsWithEvidence"} {
				if !strings.Contains(end, want) {
					t.Errorf("%s: the failure lacks %q:\n%.300s", name, want, end)
				}
			}
			if words := WithoutEvidence(end); !strings.HasPrefix(end, words) || strings.Contains(words, "\n") {
				t.Errorf("%s: without the evidence it is %q", name, words)
			}
			if name == "an error" && !strings.Contains(end, "refused") {
				t.Errorf("the failure lacks the last error: %.300s", end)
			}
		}
	})
	if end := failure(func(t T) {
		c := make(chan int)
		close(c)
		Recv(t, "a value", c)
	}); !strings.Contains(end, "the channel was closed") {
		t.Errorf("a closed channel: %q", end)
	}
}

func TestNeverLooksUntilItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			at   time.Duration
			want string
		}{
			"before the event": {time.Second, "a start happened"},
			"with the event":   {time.Minute, "a start happened"},
			"after the event":  {2 * time.Minute, ""},
		} {
			begin := time.Now()
			if end := failure(func(t T) {
				Never(t, "a start", func() bool { return time.Since(begin) >= c.at }, func() { time.Sleep(time.Minute) })
			}); end != c.want {
				t.Errorf("%s: %q, want %q", name, end, c.want)
			}
		}
	})
}

func TestALadderGoesOnUntilTheLimitComesWhereItIsToCome(t *testing.T) {
	var limits []time.Duration
	got := Ladder(t, time.Second, func(limit time.Duration) (string, bool) {
		limits = append(limits, limit)
		return limit.String(), limit > 20*time.Second
	})
	if got != "25s" || len(limits) != 3 {
		t.Errorf("got %s after %v", got, limits)
	}
	if end := failure(func(t T) {
		Ladder(t, time.Second, func(time.Duration) (int, bool) { return 0, false })
	}); !strings.HasPrefix(end, "the limit came too early in each run, with [1s 5s 25s 2m5s]") {
		t.Errorf("a limit that is never reached: %.200q", end)
	}
}

func TestSettledReturnsTheHighestValueAfterTheGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got := Settled(t, "it", func() int64 {
			seconds := int64(time.Since(begin) / (80 * time.Millisecond)) // less than the time that counts as the end
			if seconds > 10 {
				return 3
			}
			return seconds
		})
		if got != 10 {
			t.Errorf("got %d", got)
		}
	})
}

// impatient is a T with a bound of its own.
type impatient struct{ *spy }

func (impatient) Bound() time.Duration { return time.Second }

func TestASuiteThatWaitsInVainHasItsOwnBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, wait := range map[string]func(T){
			"a condition": func(t T) { Until(t, "it", func() bool { return false }) },
			"a value":     func(t T) { Recv(t, "it", make(chan int)) },
		} {
			begin := time.Now()
			end := failure(func(spied T) { wait(impatient{spied.(*spy)}) })
			if took := time.Since(begin); took > 2*time.Second || !strings.Contains(end, "within 1s") {
				t.Errorf("%s: after %s: %.100s", name, took, end)
			}
		}
	})
}

func TestNoneReturnsWhatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var gone atomic.Bool
		time.AfterFunc(time.Minute, func() { gone.Store(true) })
		left := func() []string {
			if gone.Load() {
				return nil
			}
			return []string{"a"}
		}
		if got := None(left); got != nil || time.Since(begin) > 2*time.Minute {
			t.Errorf("%v after %s", got, time.Since(begin))
		}
		if got := None(func() []int { return []int{7} }); len(got) != 1 || time.Since(begin) < Bound {
			t.Errorf("%v after %s", got, time.Since(begin))
		}
	})
}

func TestAGoroutineThatWaitsForALockIsSeen(t *testing.T) {
	var mu sync.Mutex
	mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // only the wait counts
	}()
	Until(t, "the wait", func() bool { return Blocked("TestAGoroutineThatWaitsForALockIsSeen.func", "created by") })
	if Blocked("TestAGoroutineThatWaitsForALockIsSeen.func", "elsewhere") {
		t.Error("a goroutine counts that is elsewhere")
	}
	mu.Unlock()
	<-done
}
