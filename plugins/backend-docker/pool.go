package dockerbackend

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// refillPause lets what was just claimed start before its successor is made, while others still wait on the shelf.
	refillPause = 25 * time.Millisecond
	// checkAfter is how long a sandbox may have waited and still be used without asking whether it is well.
	checkAfter = time.Second
	// checkTime bounds that question.
	checkTime = time.Second
	// forgetAfter is how long a shelf that nobody asks for keeps its sandboxes.
	forgetAfter = 10 * time.Minute
	// lookEvery is how often the shelves are looked over.
	lookEvery = 5 * time.Second
	// peakLasts is how long the most that were busy at once counts as what will be asked for next.
	peakLasts = 30 * time.Second
	// retryFirst and retryLast are the pauses after a refill that failed.
	retryFirst, retryLast = time.Second, 30 * time.Second
)

var errClosed = executor.Errorf(executor.Unavailable, "the backend is closed")

// maker makes what a pool holds, and clears it away. Its methods are called without the pool's lock.
type maker interface {
	make(ctx context.Context, c class, limits capacity) (*sandbox, error)
	// update changes a sandbox's limits.
	update(ctx context.Context, s *sandbox, limits capacity) error
	// check says whether it is well, within ctx.
	check(ctx context.Context, s *sandbox) error
	// discard clears it away, later, whatever it does.
	discard(s *sandbox)
}

// poolOptions size a pool.
type poolOptions struct {
	// min is how many wait per class; of Sessions minSessions.
	min, minSessions int
	// max bounds those that wait, together.
	max int
	// atOnce bounds those that are being made. Whoever waits comes before the refills.
	atOnce int
	log    *slog.Logger
}

// pool holds sandboxes that wait for work, a shelf per class. Each is used once. Safe for concurrent use.
type pool struct {
	maker   maker
	options poolOptions
	base    context.Context //nolint:containedctx // what is made ahead outlives the request
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	shelves map[class]*shelf
	idle    int // on all shelves
	making  int // for all shelves

	hits, misses, updates, refills, failures, died, evicted atomic.Int64
}

// shelf is what waits of one class.
type shelf struct {
	class class
	// wants are the limits that were asked for last: the next are made with them.
	wants capacity
	idle  []*sandbox
	// making counts those on their way to waiting, then to idle.
	making  int
	waiting []chan delivery
	busy    int
	peak    int
	peakAt  time.Time
	used    time.Time
	// keep: it is kept however long nobody asks for it.
	keep bool
	// refillAt holds refills back; pause is how long the next failure will.
	refillAt time.Time
	pause    time.Duration
}

// delivery is what a claim waits for.
type delivery struct {
	sandbox *sandbox
	err     error
}

func newPool(m maker, o poolOptions) *pool {
	base, stop := context.WithCancelCause(context.Background())
	p := &pool{maker: m, options: o, base: base, stop: stop, shelves: map[class]*shelf{}}
	p.wg.Go(p.lookAfter)
	return p
}

// claim takes a sandbox for one use, with these limits; warm: it was waiting. The caller discards it and calls done. Codes:
// those of the maker, unavailable (closed).
func (p *pool) claim(ctx context.Context, c class, limits capacity) (s *sandbox, warm bool, err error) {
	p.begin(c, limits)
	for {
		s, warm, err = p.take(ctx, c)
		if err != nil {
			break
		}
		if err = p.fit(ctx, s, limits, warm); err == nil {
			p.count(warm)
			return s, warm, nil
		}
		p.maker.discard(s)
		if !warm || ctx.Err() != nil {
			break
		}
	}
	p.done(c)
	return nil, false, err
}

func (p *pool) count(warm bool) {
	if warm {
		p.hits.Add(1)
	} else {
		p.misses.Add(1)
	}
}

// begin notes a claim.
func (p *pool) begin(c class, limits capacity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.shelf(c)
	f.wants, f.used = limits, time.Now()
	f.busy++
	if f.busy >= f.peak {
		f.peak, f.peakAt = f.busy, f.used
	}
}

// done notes that what was claimed is not busy any more. It is called once per claim that succeeded.
func (p *pool) done(c class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.shelf(c)
	f.busy--
	f.refillAt = time.Time{}
	p.pump()
}

// fit makes s what was asked for: well, and with these limits.
func (p *pool) fit(ctx context.Context, s *sandbox, limits capacity, warm bool) error {
	if warm && time.Since(s.since) > checkAfter {
		within, cancel := context.WithTimeoutCause(ctx, checkTime, errSilent)
		err := p.maker.check(within, s)
		cancel()
		if err != nil {
			p.died.Add(1)
			return err
		}
	}
	if s.has == limits {
		return nil
	}
	p.updates.Add(1)
	if err := p.maker.update(ctx, s, limits); err != nil {
		return err
	}
	s.has = limits
	return nil
}

// take takes one that waits, else waits for one to be made.
func (p *pool) take(ctx context.Context, c class) (*sandbox, bool, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, errClosed
	}
	f := p.shelf(c)
	if s := f.pick(); s != nil {
		p.idle--
		if len(f.idle) > 0 && f.refillAt.IsZero() {
			f.refillAt = time.Now().Add(refillPause)
			p.later(refillPause)
		}
		p.pump()
		p.mu.Unlock()
		return s, true, nil
	}
	ch := make(chan delivery, 1)
	f.waiting = append(f.waiting, ch)
	p.pump()
	p.mu.Unlock()
	select {
	case d := <-ch:
		return d.sandbox, false, d.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	if i := slices.Index(f.waiting, ch); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
		p.mu.Unlock()
	} else {
		p.mu.Unlock()
		if d := <-ch; d.sandbox != nil { // it came at the same moment
			p.put(d.sandbox)
		}
	}
	return nil, false, executor.Errorf(executor.Unavailable, "claim a container: %w", context.Cause(ctx))
}

// pick takes the one that has waited longest of those with the limits that are wanted, else of all.
func (f *shelf) pick() *sandbox {
	if len(f.idle) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(f.idle, func(s *sandbox) bool { return s.has == f.wants }))
	s := f.idle[i]
	f.idle = slices.Delete(f.idle, i, i+1)
	return s
}

// shelf returns the class's own.
func (p *pool) shelf(c class) *shelf {
	f := p.shelves[c]
	if f == nil {
		f = &shelf{class: c, pause: retryFirst, used: time.Now()}
		p.shelves[c] = f
	}
	return f
}

// target is how many should wait: what the configuration says, and as many as were busy at once not long ago, because
// those that are done will ask again.
func (p *pool) target(f *shelf) int {
	least := p.options.min
	if f.class.Session {
		least = p.options.minSessions
	}
	if least == 0 {
		return 0
	}
	return min(max(least, f.peak), p.options.max)
}

// warm makes a class wait before anybody has asked for it, and keeps it.
func (p *pool) warm(c class, limits capacity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.shelf(c)
	f.keep = true
	if f.wants == (capacity{}) {
		f.wants = limits
	}
	p.pump()
}

// pump starts makings as far as they may run at once: first for those who wait, then to refill the shelf that was used
// last. The lock is held.
func (p *pool) pump() {
	for !p.closed && p.making < p.options.atOnce {
		f, refill := p.next()
		if f == nil {
			return
		}
		f.making++
		p.making++
		if refill {
			p.refills.Add(1)
		}
		limits := f.wants
		p.wg.Go(func() {
			s, err := p.maker.make(p.base, f.class, limits)
			p.made(f, s, err)
		})
	}
}

// next is the shelf to make one for; nil: none. The lock is held.
func (p *pool) next() (f *shelf, refill bool) {
	now := time.Now()
	for _, f := range p.shelves {
		if f.making < len(f.waiting) {
			return f, false
		}
	}
	var found *shelf
	for _, f := range p.shelves {
		if len(f.idle)+f.making-len(f.waiting) < p.target(f) && !now.Before(f.refillAt) && (found == nil || f.used.After(found.used)) {
			found = f
		}
	}
	if found == nil || p.idle+p.making >= p.options.max && !p.evict(found) {
		return nil, false
	}
	return found, true
}

// evict makes room for one of f: one goes from the shelf that was not used for longest, if that is another.
func (p *pool) evict(f *shelf) bool {
	oldest := f
	for _, o := range p.shelves {
		if len(o.idle) > 0 && o.used.Before(oldest.used) {
			oldest = o
		}
	}
	if oldest == f {
		return false
	}
	s := oldest.idle[0]
	oldest.idle = oldest.idle[1:]
	p.idle--
	p.evicted.Add(1)
	p.wg.Go(func() { p.maker.discard(s) })
	return true
}

// made hands over what was made.
func (p *pool) made(f *shelf, s *sandbox, err error) {
	p.mu.Lock()
	f.making--
	p.making--
	if err != nil {
		p.failures.Add(1)
		f.refillAt = time.Now().Add(f.pause)
		p.later(f.pause)
		f.pause = min(2*f.pause, retryLast)
		// One making, one answer: whoever waits behind gets the next.
		if len(f.waiting) > 0 {
			f.waiting[0] <- delivery{err: err}
			f.waiting = f.waiting[1:]
		} else if !p.closed {
			p.options.log.Warn("no container could be made ahead", "image", f.class.Image, "error", err)
		}
		p.pump()
		p.mu.Unlock()
		return
	}
	f.pause = retryFirst
	p.mu.Unlock()
	p.put(s)
}

// put gives s to who waits for its class, else onto the shelf.
func (p *pool) put(s *sandbox) {
	p.mu.Lock()
	f := p.shelf(s.class)
	s.since = time.Now()
	keep := true
	switch {
	case p.closed:
		keep = false
	case len(f.waiting) > 0:
		f.waiting[0] <- delivery{sandbox: s}
		f.waiting = f.waiting[1:]
	case p.target(f) == 0:
		keep = false
	default:
		f.idle = append(f.idle, s)
		p.idle++
	}
	p.pump()
	p.mu.Unlock()
	if !keep {
		p.maker.discard(s)
	}
}

// later pumps again after d. The lock is held.
func (p *pool) later(d time.Duration) {
	p.wg.Go(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			p.mu.Lock()
			for _, f := range p.shelves {
				if !f.refillAt.IsZero() && !time.Now().Before(f.refillAt) {
					f.refillAt = time.Time{}
				}
			}
			p.pump()
			p.mu.Unlock()
		case <-p.base.Done():
		}
	})
}
