package dockerbackend

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	// refillPause delays a refill after a claim while other sandboxes still wait on the shelf, so that the claimed sandbox
	// starts first.
	refillPause = 25 * time.Millisecond
	// checkAfter is how long a sandbox may have waited and still be used without a check.
	checkAfter = time.Second
	// checkTime bounds a check.
	checkTime = time.Second
	// forgetAfter is how long a shelf without claims keeps its sandboxes.
	forgetAfter = 10 * time.Minute
	// sweepInterval is the time between two sweeps of the shelves.
	sweepInterval = 5 * time.Second
	// peakLasts is how long the highest number of busy sandboxes counts as the expected demand.
	peakLasts = 30 * time.Second
	// retryFirst and retryLast are the first and the longest pause after a failed refill.
	retryFirst, retryLast = time.Second, 30 * time.Second
)

// maker makes and discards the sandboxes of a pool. The pool calls its methods without its lock.
type maker interface {
	make(ctx context.Context, c class, limits capacity) (*sandbox, error)
	// update changes a sandbox's limits.
	update(ctx context.Context, s *sandbox, limits capacity) error
	// check returns an error if a sandbox cannot be used. ctx bounds the check.
	check(ctx context.Context, s *sandbox) error
	// discard removes a sandbox in the background, whatever the sandbox does.
	discard(s *sandbox)
}

// poolOptions are the bounds of a pool.
type poolOptions struct {
	// min is the number of waiting sandboxes per class, minSessions that per class of Sessions. 0 means that none wait.
	min, minSessions int
	// max bounds the waiting sandboxes of all classes together.
	max int
	// maxMaking bounds the sandboxes that are being made at the same time. Those for waiting claims come before refills.
	maxMaking int
	log       *slog.Logger
}

// pool holds sandboxes that wait for work, on one shelf per class. Each sandbox is used once. It is safe for concurrent use.
type pool struct {
	maker   maker
	options poolOptions
	base    context.Context //nolint:containedctx // sandboxes are made for later requests
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	shelves map[class]*shelf
	idle    int // the sum over all shelves
	making  int // the sum over all shelves

	hits, misses, updates, refills, failures, died, evicted atomic.Int64
}

// shelf holds the waiting sandboxes of one class.
type shelf struct {
	class class
	// wants are the limits of the last claim. New sandboxes are made with them.
	wants capacity
	idle  []*sandbox
	// making counts the sandboxes that are being made. A finished one goes to the first of waiting, else to idle.
	making  int
	waiting []chan delivery
	busy    int
	peak    int
	peakAt  time.Time
	used    time.Time
	// keep reports whether the shelf is kept even if nobody claims from it.
	keep bool
	// refillAt is the earliest time of the next refill; zero means now. pause is the delay after the next failure.
	refillAt time.Time
	pause    time.Duration
}

// delivery is the answer to a waiting claim: a sandbox or an error.
type delivery struct {
	sandbox *sandbox
	err     error
}

func newPool(m maker, o poolOptions) *pool {
	base, stop := context.WithCancelCause(context.Background())
	p := &pool{maker: m, options: o, base: base, stop: stop, shelves: map[class]*shelf{}}
	p.wg.Go(p.sweepLoop)
	return p
}

// claim takes a sandbox for one use, with the given limits. warm reports whether the sandbox was waiting. The caller discards
// the sandbox and calls done. Codes: those of the maker, unavailable (closed).
func (p *pool) claim(ctx context.Context, c class, limits capacity) (s *sandbox, warm bool, err error) {
	p.begin(c, limits)
	for {
		s, warm, err = p.take(ctx, c)
		if err != nil {
			break
		}
		if err = p.fit(ctx, s, limits, warm); err == nil {
			if warm {
				p.hits.Add(1)
			} else {
				p.misses.Add(1)
			}
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

// begin records a claim.
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

// done records that a claimed sandbox is no longer busy. It is called once per claim that succeeded.
func (p *pool) done(c class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.shelf(c)
	f.busy--
	f.refillAt = time.Time{}
	p.pump()
}

// fit checks s if s has waited for long, and gives it these limits.
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

// take takes a waiting sandbox. If there is none, it waits until one is made.
func (p *pool) take(ctx context.Context, c class) (*sandbox, bool, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, backend.ErrClosed
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
		if d := <-ch; d.sandbox != nil { // the delivery and the end of ctx coincided
			p.put(d.sandbox)
		}
	}
	return nil, false, executor.Errorf(executor.Unavailable, "claim a container: %w", context.Cause(ctx))
}

// pick takes the sandbox that has waited longest. Sandboxes with the wanted limits come first.
func (f *shelf) pick() *sandbox {
	if len(f.idle) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(f.idle, func(s *sandbox) bool { return s.has == f.wants }))
	s := f.idle[i]
	f.idle = slices.Delete(f.idle, i, i+1)
	return s
}

// shelf returns the shelf of c, and makes it if there is none. The caller holds the lock.
func (p *pool) shelf(c class) *shelf {
	f := p.shelves[c]
	if f == nil {
		f = &shelf{class: c, pause: retryFirst, used: time.Now()}
		p.shelves[c] = f
	}
	return f
}

// target is how many sandboxes should wait: the configured minimum, or the recent peak of busy ones if that is higher. A caller
// whose program ends often sends the next.
func (p *pool) target(f *shelf) int {
	minimum := p.options.min
	if f.class.Session {
		minimum = p.options.minSessions
	}
	if minimum == 0 {
		return 0
	}
	return min(max(minimum, f.peak), p.options.max)
}

// warm fills the shelf of a class before the first claim, and keeps the shelf.
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

// pump starts to make sandboxes, up to maxMaking at a time: first for waiting claims, then to refill the shelf that was used
// last. The caller holds the lock.
func (p *pool) pump() {
	for !p.closed && p.making < p.options.maxMaking {
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

// next returns the shelf that needs a sandbox; nil means that none does. refill reports whether no claim waits for the sandbox.
// The caller holds the lock.
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

// evict discards a sandbox of the least recently used shelf, to make room for one on f. It reports whether there was another
// shelf than f to take the sandbox from.
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

// made delivers a new sandbox, or the error that prevented it.
func (p *pool) made(f *shelf, s *sandbox, err error) {
	p.mu.Lock()
	f.making--
	p.making--
	if err != nil {
		p.failures.Add(1)
		f.refillAt = time.Now().Add(f.pause)
		p.later(f.pause)
		f.pause = min(2*f.pause, retryLast)
		// A failure answers one claim. The next sandbox or failure answers the next claim.
		if len(f.waiting) > 0 {
			f.waiting[0] <- delivery{err: err}
			f.waiting = f.waiting[1:]
		} else if !p.closed {
			p.options.log.Warn("refill the pool of containers failed", "image", f.class.Image, "error", err)
		}
		p.pump()
		p.mu.Unlock()
		return
	}
	f.pause = retryFirst
	kept := p.accept(s)
	p.mu.Unlock()
	if !kept {
		p.maker.discard(s)
	}
}

// put returns s to a claim that waits for its class, else to the shelf. If the pool keeps no sandboxes of the class, put
// discards s.
func (p *pool) put(s *sandbox) {
	p.mu.Lock()
	kept := p.accept(s)
	p.mu.Unlock()
	if !kept {
		p.maker.discard(s)
	}
}

// accept gives s to a claim that waits for its class, else to the shelf. It reports whether s was kept. The caller holds the
// lock.
func (p *pool) accept(s *sandbox) bool {
	if p.closed {
		return false
	}
	defer p.pump()
	f := p.shelf(s.class)
	s.since = time.Now()
	if len(f.waiting) > 0 {
		f.waiting[0] <- delivery{sandbox: s}
		f.waiting = f.waiting[1:]
		return true
	}
	if p.target(f) == 0 {
		return false
	}
	f.idle = append(f.idle, s)
	p.idle++
	return true
}

// later calls pump after d. The caller holds the lock.
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
