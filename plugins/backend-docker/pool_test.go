package dockerbackend

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// toys is a maker without a daemon. Making takes a second of the bubble's clock.
type toys struct {
	mu        sync.Mutex
	made      []*sandbox
	discarded []*sandbox
	updated   int
	sick      map[*sandbox]bool
	gone      []chan struct{} // of those made
	fail      error
}

func (y *toys) make(ctx context.Context, c class, limits capacity) (*sandbox, error) {
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

func (y *toys) check(_ context.Context, s *sandbox) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.sick[s] {
		return errSilent
	}
	return nil
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
	if o.atOnce == 0 {
		o.atOnce = 4
	}
	return newPool(y, o)
}

// claimed claims one and fails the test if that is not possible.
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
		"refills what was claimed, and never gives the same twice": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 4})
			defer p.close()
			var got []*sandbox
			for n := range 5 {
				s, warm := claimed(t, p, a, small)
				if slices.Contains(got, s) {
					t.Error("it was used before")
				}
				got = append(got, s)
				if warm != (n > 0) {
					t.Errorf("claim %d: warm %v", n, warm)
				}
				p.done(a)
				time.Sleep(5 * time.Second)
				if idle, _, _ := p.counts(); idle != 2 {
					t.Errorf("%d wait, want 2", idle)
				}
			}
		},
		"has nothing waiting with a minimum of 0": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{max: 4})
			defer p.close()
			claimed(t, p, a, small)
			p.done(a)
			time.Sleep(time.Minute)
			if made, _ := y.counts(); made != 1 {
				t.Errorf("%d were made, want 1", made)
			}
		},
		"holds as many as were busy at once not long ago, and fewer later": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 6, atOnce: 8})
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
				t.Errorf("%d wait, want 5", idle)
			}
			time.Sleep(2 * time.Minute)
			if idle, _, _ := p.counts(); idle != 1 {
				t.Errorf("%d wait two minutes later, want 1", idle)
			}
		},
		"is bounded in all, and takes from the class that was not used for longest": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 3, max: 4})
			defer p.close()
			for _, c := range []class{a, b} {
				claimed(t, p, c, small)
				p.done(c)
				time.Sleep(10 * time.Second)
			}
			if idle, making, _ := p.counts(); idle+making != 4 {
				t.Errorf("%d wait, want 4", idle+making)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := len(p.shelves[b].idle); n != 3 {
				t.Errorf("%d of the last class wait, want 3", n)
			}
		},
		"changes limits only where others are asked for, and then makes those": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			large := capacity{MemoryBytes: 10, CPUShares: 2, PIDs: 3}
			for n, limits := range []capacity{small, small, large, large, large} {
				s, _ := claimed(t, p, a, limits)
				if s.has != limits {
					t.Errorf("claim %d has %+v", n, s.has)
				}
				p.done(a)
				time.Sleep(5 * time.Second)
			}
			if y.updated != 1 {
				t.Errorf("%d updates, want 1", y.updated)
			}
		},
		"does not hand out one that is not well": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 2, max: 4})
			defer p.close()
			p.warm(a, small)
			time.Sleep(5 * time.Second)
			y.mu.Lock()
			y.sick = map[*sandbox]bool{y.made[0]: true, y.made[1]: true}
			y.mu.Unlock()
			s, warm := claimed(t, p, a, small)
			if warm || y.sick[s] {
				t.Error("a sick one was handed out")
			}
			if _, discarded := y.counts(); discarded != 2 {
				t.Errorf("%d were discarded, want 2", discarded)
			}
		},
		"sees that one has died while it waited": func(t *testing.T, y *toys) {
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
		"gives one that nobody waits for any more to the next": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 1, atOnce: 1})
			defer p.close()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, _, err := p.claim(ctx, a, small); executor.CodeOf(err) != executor.Unavailable {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Second)
			if _, warm := claimed(t, p, a, small); !warm {
				t.Error("it was made and is not there")
			}
		},
		"tells who waits why nothing could be made, and tries again by itself later": func(t *testing.T, y *toys) {
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
				t.Errorf("%d wait, want 1", idle)
			}
		},
		"forgets a class that nobody asks for, unless it is to be kept": func(t *testing.T, y *toys) {
			p := toyPool(y, poolOptions{min: 1, max: 4})
			defer p.close()
			p.warm(a, small)
			claimed(t, p, b, small)
			p.done(b)
			time.Sleep(time.Hour)
			if idle, _, _ := p.counts(); idle != 1 || len(p.shelves) != 1 {
				t.Errorf("%d wait on %d shelves, want 1 on 1", idle, len(p.shelves))
			}
		},
		"clears everything away when it is closed": func(t *testing.T, y *toys) {
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
			if err := <-waits; !errors.Is(err, errClosed) {
				t.Errorf("who waited got %v", err)
			}
			if made, discarded := y.counts(); made != discarded+1 {
				t.Errorf("%d were made, %d discarded, and one was handed out", made, discarded)
			}
			if _, _, err := p.claim(t.Context(), a, small); !errors.Is(err, errClosed) {
				t.Errorf("got %v", err)
			}
		},
	}
	for name, check := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { check(t, &toys{}) }) })
	}
}
