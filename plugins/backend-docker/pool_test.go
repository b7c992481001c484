package dockerbackend

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

// toys is a maker without a daemon. Making a sandbox takes a second of the bubble's clock.
type toys struct {
	mu        sync.Mutex
	made      []*sandbox
	discarded []*sandbox
	updated   int
	sick      map[*sandbox]bool
	gone      []chan struct{} // the gone channels of made
	asked     atomic.Int64    // the number of calls of make
	checked   atomic.Int64
	fail      error
}

func (y *toys) make(ctx context.Context, c class, limits capacity) (*sandbox, error) {
	y.asked.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.fail != nil {
		return nil, y.fail
	}
	gone := make(chan struct{})
	s := &sandbox{class: c, has: limits, gone: gone}
	y.made, y.gone = append(y.made, s), append(y.gone, gone)
	return s, nil
}

func (y *toys) update(context.Context, *sandbox, capacity) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.updated++
	return nil
}

func (y *toys) check(ctx context.Context, s *sandbox) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.checked.Add(1)
	if y.sick[s] {
		return errSilent
	}
	return ctx.Err()
}

func (y *toys) setFail(err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.fail = err
}

func (y *toys) discard(s *sandbox) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.discarded = append(y.discarded, s)
}

func (y *toys) counts() (made, discarded int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.made), len(y.discarded)
}

var small = capacity{MemoryBytes: 1, CPUShares: 2, PIDs: 3}

func toyPool(y *toys, o poolOptions) *pool {
	o.log = slog.New(slog.DiscardHandler)
	if o.maxMaking == 0 {
		o.maxMaking = 4
	}
	return newPool(y, o)
}

// claimed claims a sandbox and fails the test if it gets none.
func claimed(t *testing.T, p *pool, c class, limits capacity) (*sandbox, bool) {
	t.Helper()
	s, warm, err := p.claim(t.Context(), c, limits)
	if err != nil {
		t.Fatal(err)
	}
	return s, warm
}

func TestAPool(t *testing.T) {
	t.Parallel()
	a, b := class{Image: "a"}, class{Image: "b"}
	cases := map[string]func(t *testing.T, y *toys){
		"refills after a claim, and never gives a sandbox twice": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 4})
			defer p.close()
			var got []*sandbox
			for n := range 5 {
				s, warm := claimed(t, p, a, small)
				if slices.Contains(got, s) {
					t.Error("the claim got a sandbox that was used before")
				}
				got = append(got, s)
				if warm != (n > 0) {
					t.Errorf("claim %d: warm %v", n, warm)
				}
				p.done(a)
				time.Sleep(5 * time.Second)
				if idle, _, _ := p.counts(); idle != 2 {
					t.Errorf("%d sandboxes wait, want 2", idle)
				}
			}
		},
		"keeps no waiting sandbox with a minimum of 0": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{max: 4})
			defer p.close()
			claimed(t, p, a, small)
			p.done(a)
			time.Sleep(time.Minute)
			if made, _ := y.counts(); made != 1 {
				t.Errorf("made %d sandboxes, want 1", made)
			}
		},
		"keeps as many as the recent peak of busy ones, and fewer later": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 6, maxMaking: 8})
			defer p.close()
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { claimed(t, p, a, small) })
			}
			wg.Wait()
			for range 5 {
				p.done(a)
			}
			time.Sleep(5 * time.Second)
			if idle, _, _ := p.counts(); idle != 5 {
				t.Errorf("%d sandboxes wait, want 5", idle)
			}
			time.Sleep(2 * time.Minute)
			if idle, _, _ := p.counts(); idle != 1 {
				t.Errorf("%d sandboxes wait two minutes later, want 1", idle)
			}
		},
		"is bounded in total, and evicts from the least recently used class": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 3, max: 4})
			defer p.close()
			for _, c := range []class{a, b} {
				claimed(t, p, c, small)
				p.done(c)
				time.Sleep(10 * time.Second)
			}
			if idle, making, _ := p.counts(); idle+making != 4 {
				t.Errorf("%d sandboxes wait, want 4", idle+making)
			}
			if _, discarded := y.counts(); discarded == 0 || p.metrics()["pool_evicted_total"] != float64(discarded) {
				t.Errorf("%d sandboxes were discarded; metrics %v", discarded, p.metrics())
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := len(p.shelves[b].idle); n != 3 {
				t.Errorf("%d sandboxes of the last class wait, want 3", n)
			}
		},
		"updates a sandbox only for other limits, and makes the next with those": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			large := capacity{MemoryBytes: 10, CPUShares: 2, PIDs: 3}
			for n, limits := range []capacity{small, small, large, large, large} {
				s, _ := claimed(t, p, a, limits)
				if s.has != limits {
					t.Errorf("claim %d got a sandbox with the limits %+v", n, s.has)
				}
				p.done(a)
				time.Sleep(5 * time.Second)
			}
			if y.updated != 1 {
				t.Errorf("%d updates, want 1", y.updated)
			}
		},
		"does not give a sandbox whose check fails": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 4})
			defer p.close()
			p.warm(a, small)
			time.Sleep(5 * time.Second)
			y.mu.Lock()
			y.sick = map[*sandbox]bool{y.made[0]: true, y.made[1]: true}
			y.mu.Unlock()
			s, warm := claimed(t, p, a, small)
			if warm || y.sick[s] {
				t.Error("the claim got a sandbox whose check fails")
			}
			if _, discarded := y.counts(); discarded != 2 || p.metrics()["pool_died_total"] != 2 {
				t.Errorf("discarded %d sandboxes, want 2; metrics %v", discarded, p.metrics())
			}
			if p.metrics()["pool_busy"] != 1 {
				t.Errorf("one sandbox is busy; metrics %v", p.metrics())
			}
		},
		"replaces a sandbox that died while it waited": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			p.warm(a, small)
			time.Sleep(2 * time.Second)
			y.mu.Lock()
			close(y.gone[0])
			y.mu.Unlock()
			time.Sleep(10 * time.Second)
			if made, discarded := y.counts(); made != 2 || discarded != 1 {
				t.Errorf("%d made, %d discarded, want 2 and 1", made, discarded)
			}
		},
		"gives the sandbox of a cancelled claim to the next claim": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 1, maxMaking: 1})
			defer p.close()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, _, err := p.claim(ctx, a, small); executor.CodeOf(err) != executor.Unavailable {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Second)
			if _, warm := claimed(t, p, a, small); !warm {
				t.Error("the sandbox of a cancelled claim does not wait for the next claim")
			}
		},
		"returns the maker's error to a waiting claim, and tries again later": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 2})
			defer p.close()
			y.fail = errors.New("no daemon")
			if _, _, err := p.claim(t.Context(), a, small); !errors.Is(err, y.fail) {
				t.Errorf("got %v", err)
			}
			y.mu.Lock()
			y.fail = nil
			y.mu.Unlock()
			time.Sleep(time.Minute)
			if idle, _, _ := p.counts(); idle != 1 {
				t.Errorf("%d sandboxes wait, want 1", idle)
			}
		},
		"drops a class without claims, unless it was warmed": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			p.warm(a, small)
			claimed(t, p, b, small)
			p.done(b)
			time.Sleep(time.Hour)
			if idle, _, _ := p.counts(); idle != 1 || len(p.shelves) != 1 {
				t.Errorf("%d sandboxes wait on %d shelves, want 1 on 1", idle, len(p.shelves))
			}
		},
		"discards all sandboxes when it is closed": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 4})
			claimed(t, p, a, small)
			p.done(a)
			time.Sleep(5 * time.Second)
			waits := make(chan error, 1)
			go func() {
				_, _, err := p.claim(t.Context(), b, small)
				waits <- err
			}()
			synctest.Wait()
			for range 2 {
				p.close()
			}
			if err := <-waits; !errors.Is(err, backend.ErrClosed) {
				t.Errorf("the waiting claim got %v", err)
			}
			if made, discarded := y.counts(); made != discarded+1 {
				t.Errorf("made %d sandboxes and discarded %d, want one less: one was claimed", made, discarded)
			}
			if _, _, err := p.claim(t.Context(), a, small); !errors.Is(err, backend.ErrClosed) {
				t.Errorf("got %v", err)
			}
		},
	}
	runPoolCases(t, cases)
}

func runPoolCases(t *testing.T, cases map[string]func(*testing.T, *toys)) {
	t.Helper()
	for name, check := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { check(t, &toys{}) }) })
	}
}
