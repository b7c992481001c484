package dockerbackend

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// lateContext calls late when a caller begins to wait for its end.
type lateContext struct {
	context.Context
	late func()
}

func (c lateContext) Done() <-chan struct{} {
	c.late()
	return c.Context.Done()
}

// idleAfter returns how many sandboxes wait in p after d.
func idleAfter(p *pool, d time.Duration) int {
	time.Sleep(d)
	synctest.Wait()
	idle, _, _ := p.counts()
	return idle
}

// TestAPoolRefills checks which sandboxes are made, when, and how many at a time. Making one takes a second.
func TestAPoolRefills(t *testing.T) {
	t.Parallel()
	a, b := class{Image: "a"}, class{Image: "b"}
	broken := errors.New("no daemon")
	runPoolCases(t, map[string]func(*testing.T, *toys){
		"sessions have a minimum of their own": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 3, minSessions: 1, max: 8})
			defer p.close()
			p.warm(class{Image: "a", Session: true}, small)
			if idle := idleAfter(p, 5*time.Second); idle != 1 {
				t.Errorf("%d sandboxes wait, want 1", idle)
			}
		},
		"as many as are busy wait, however long they are busy": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 8, maxMaking: 8})
			defer p.close()
			for range 3 {
				claimed(t, p, a, small)
			}
			if idle := idleAfter(p, 2*forgetAfter); idle != 3 {
				t.Errorf("%d sandboxes wait, want 3", idle)
			}
		},
		"the peak lasts from the last time that it was reached": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 8})
			defer p.close()
			claimed(t, p, a, small)
			claimed(t, p, a, small)
			p.done(a)
			time.Sleep(2 * peakLasts / 3)
			claimed(t, p, a, small)
			p.done(a)
			p.done(a)
			if idle := idleAfter(p, 2*peakLasts/3); idle != 2 {
				t.Errorf("%d sandboxes wait, want 2", idle)
			}
		},
		"a claimed sandbox starts before its successor is made": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 8})
			defer p.close()
			p.warm(a, small)
			time.Sleep(5 * time.Second)
			claimed(t, p, a, small)
			synctest.Wait()
			if _, making, _ := p.counts(); making != 0 {
				t.Errorf("%d sandboxes are made at once, want 0", making)
			}
			time.Sleep(refillPause)
			synctest.Wait()
			if _, making, _ := p.counts(); making != 1 {
				t.Errorf("%d sandboxes are made after the pause, want 1", making)
			}
		},
		"a sandbox with the wanted limits comes before one that has waited longer": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 8})
			defer p.close()
			large := capacity{MemoryBytes: 10}
			p.warm(a, small)
			time.Sleep(5 * time.Second)
			for n := range 2 {
				claimed(t, p, a, large)
				time.Sleep(5 * time.Second)
				if y.updated != 1 {
					t.Errorf("%d updates after claim %d, want 1", y.updated, n+1)
				}
			}
		},
		"the limits of a class that was claimed from stay those of the claim": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 8})
			defer p.close()
			large := capacity{MemoryBytes: 10}
			for range 2 { // the second one leaves a sandbox, so its successor is made after the call of warm
				claimed(t, p, a, large)
				p.warm(a, small)
				time.Sleep(5 * time.Second)
			}
			claimed(t, p, a, large)
			claimed(t, p, a, large)
			if y.updated != 0 {
				t.Errorf("%d updates, want 0", y.updated)
			}
		},
		"a claim lets a class wait for its next time": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 8})
			defer p.close()
			for n := range 3 {
				if _, warm := claimed(t, p, a, small); warm != (n > 0) {
					t.Errorf("claim %d: warm %v", n, warm)
				}
				p.done(a)
				time.Sleep(forgetAfter - time.Minute)
			}
		},
		"sandboxes that nobody waits for any more are discarded beyond max": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 1})
			defer p.close()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if _, _, err := p.claim(ctx, a, small); err == nil {
						t.Error("a claim got a sandbox although its time was over")
					}
				})
			}
			wg.Wait()
			if idle := idleAfter(p, sweepInterval+time.Second); idle != 1 {
				t.Errorf("%d sandboxes wait, want 1", idle)
			}
		},
		"sandboxes that are finished together are not made twice": func(t *testing.T, y *toys) {
			for range 200 {
				p := toyPool(y, poolOptions{min: 8, max: 16, maxMaking: 16})
				before, _ := y.counts()
				p.warm(a, small)
				idleAfter(p, 3*time.Second)
				after, _ := y.counts()
				p.close()
				if after-before != 8 {
					t.Fatalf("made %d sandboxes, want 8", after-before)
				}
			}
		},
		"no more than maxMaking are made at a time": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 4, max: 8, maxMaking: 2})
			defer p.close()
			p.warm(a, small)
			if _, making, _ := p.counts(); making != 2 {
				t.Errorf("making %d sandboxes, want 2", making)
			}
			if idle := idleAfter(p, time.Second); idle != 2 {
				t.Errorf("%d sandboxes wait after a second, want 2", idle)
			}
		},
		"the bound on waiting sandboxes delays no claim": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 1})
			defer p.close()
			begun := time.Now()
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { claimed(t, p, a, small) })
			}
			wg.Wait()
			if took := time.Since(begun); took != time.Second {
				t.Errorf("three claims took %s, want a second", took)
			}
		},
		"a successor is made together with the claimed sandbox": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			claimed(t, p, a, small)
			if idle := idleAfter(p, 0); idle != 1 {
				t.Errorf("%d sandboxes wait after the first claim, want 1", idle)
			}
		},
		"the class that was used last comes first": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 50, maxMaking: 1})
			defer p.close()
			p.warm(b, small)
			var last class
			for n := range 30 {
				time.Sleep(time.Millisecond)
				last = class{Image: strconv.Itoa(n)}
				p.warm(last, small)
			}
			idleAfter(p, 2*time.Second)
			y.mu.Lock()
			defer y.mu.Unlock()
			if len(y.made) != 2 || y.made[1].class != last {
				t.Errorf("made %d sandboxes, the second of class %s, want 2 and class %s", len(y.made), y.made[1].class.Image, last.Image)
			}
		},
		"a refill that fails is repeated after a pause, which grows to a bound": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			y.setFail(broken)
			p.warm(a, small)
			time.Sleep(time.Hour)
			// Each failure takes a second, followed by a pause of half a minute.
			if n := p.failures.Load(); n < 110 || n > 130 {
				t.Errorf("failed %d times in an hour, want 110 to 130", n)
			}
			y.setFail(nil)
			if idle := idleAfter(p, retryLast+sweepInterval+time.Second); idle != 1 {
				t.Errorf("%d sandboxes wait, want 1", idle)
			}
			// After a success the pause is short again.
			y.setFail(broken)
			claimed(t, p, a, small)
			time.Sleep(1100 * time.Millisecond)
			y.setFail(nil)
			if idle := idleAfter(p, 2*time.Second); idle != 1 {
				t.Errorf("%d sandboxes wait after a failure that follows a success, want 1", idle)
			}
		},
		"a failure of one class holds up no other": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4, maxMaking: 1})
			defer p.close()
			y.setFail(broken)
			p.warm(a, small)
			p.warm(b, small)
			time.Sleep(1500 * time.Millisecond)
			if n := y.asked.Load(); n != 2 {
				t.Errorf("make was called %d times, want 2", n)
			}
		},
		"the end of a use ends the pause after a failure": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			claimed(t, p, a, small)
			claimed(t, p, a, small)
			y.setFail(broken)
			for range 60_000 {
				if time.Sleep(time.Millisecond); p.failures.Load() == 6 {
					break
				}
			}
			y.setFail(nil)
			p.done(a)
			if idle := idleAfter(p, time.Second); idle == 0 {
				t.Error("no sandbox waits")
			}
		},
		"each failure answers one claim, and the next try follows at once": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{max: 4, maxMaking: 1})
			defer p.close()
			y.setFail(broken)
			begun := time.Now()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if _, _, err := p.claim(t.Context(), a, small); !errors.Is(err, broken) {
						t.Errorf("got %v", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(begun); took != 2*time.Second {
				t.Errorf("two answers took %s, want two seconds", took)
			}
			y.setFail(nil)
			s, _ := claimed(t, p, a, small)
			if made, _ := y.counts(); made != 1 || s != y.made[0] {
				t.Errorf("made %d sandboxes for one claim", made)
			}
		},
	})
}

// TestAPoolLosesNone checks that every sandbox is claimed, waits or is discarded, whatever happens at the same moment.
func TestAPoolLosesNone(t *testing.T) {
	t.Parallel()
	a, b := class{Image: "a"}, class{Image: "b"}
	runPoolCases(t, map[string]func(*testing.T, *toys){
		"counts no claim that failed": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{max: 4})
			defer p.close()
			y.fail = errors.New("no daemon")
			if _, _, err := p.claim(t.Context(), a, small); !errors.Is(err, y.fail) {
				t.Errorf("got %v", err)
			}
			if _, _, busy := p.counts(); busy != 0 {
				t.Errorf("%d sandboxes are busy after a failed claim", busy)
			}
		},
		"keeps or discards a sandbox that arrives as its claim ends": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{max: 4})
			defer p.close()
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(errSilent)
			for range 50 { // select chooses one of two ready cases at random
				s := &sandbox{class: a, has: small}
				got, _, _ := p.claim(lateContext{ended, func() { p.put(s) }}, a, small)
				y.mu.Lock()
				discarded := slices.Contains(y.discarded, s)
				y.mu.Unlock()
				if (got == s) == discarded {
					t.Fatalf("claimed: %v, discarded: %v", got == s, discarded)
				}
			}
		},
		"discards a sandbox that is put after close": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			p.close()
			p.put(&sandbox{class: a, has: small})
			if _, discarded := y.counts(); discarded != 1 {
				t.Errorf("discarded %d sandboxes, want 1", discarded)
			}
		},
		"checks only sandboxes that have waited for long": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			p.warm(a, small)
			idleAfter(p, time.Second)
			claimed(t, p, a, small)
			if y.checked.Load() != 0 {
				t.Error("a new sandbox was checked")
			}
			idleAfter(p, 10*time.Second)
			claimed(t, p, a, small)
			if n := y.checked.Load(); n != 1 {
				t.Errorf("checked %d sandboxes, want 1", n)
			}
		},
		"discards at most one sandbox for a cancelled claim": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 3, max: 4})
			defer p.close()
			p.warm(a, small)
			idleAfter(p, 10*time.Second)
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(errSilent)
			if _, _, err := p.claim(ended, a, small); err == nil {
				t.Error("a cancelled claim succeeded")
			}
			if _, discarded := y.counts(); discarded != 1 {
				t.Errorf("discarded %d sandboxes, want 1", discarded)
			}
		},
		"answers a claim that ends while the pool is closed": func(t *testing.T, y *toys) {
			for range 50 {
				p := toyPool(y, poolOptions{max: 4})
				ended, cancel := context.WithCancelCause(t.Context())
				cancel(errSilent)
				if _, _, err := p.claim(lateContext{ended, p.close}, b, small); executor.CodeOf(err) != executor.Unavailable {
					t.Errorf("got %v", err)
				}
			}
		},
		"makes none once it is closed": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 4})
			claimed(t, p, a, small)
			idleAfter(p, 5*time.Second)
			p.close()
			if idle, _, _ := p.counts(); idle != 0 {
				t.Errorf("%d sandboxes wait in a closed pool", idle)
			}
			asked := y.asked.Load()
			p.done(a)
			synctest.Wait()
			if n := y.asked.Load(); n != asked {
				t.Errorf("make was called %d times after close", n-asked)
			}
		},
	})
}
