package dockerbackend

import (
	"time"

	"github.com/python-executor/python-executor/core/backend"
)

// sweepLoop discards stale sandboxes until the pool is closed.
func (p *pool) sweepLoop() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, s := range p.stale(time.Now()) {
				p.maker.discard(s)
			}
		case <-p.base.Done():
			return
		}
	}
}

// stale takes from the shelves the sandboxes that have ended, that exceed the target, and those of shelves without claims since
// forgetAfter.
func (p *pool) stale(now time.Time) []*sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*sandbox
	for c, f := range p.shelves {
		if now.Sub(f.peakAt) > peakLasts {
			f.peak, f.peakAt = f.busy, now
		}
		unused := now.Sub(f.used) > forgetAfter && f.busy == 0 && !f.keep
		var kept []*sandbox
		for _, s := range f.idle {
			switch {
			case s.ended():
				p.died.Add(1)
				out = append(out, s)
			case unused || len(kept) >= p.target(f):
				out = append(out, s)
			default:
				kept = append(kept, s)
			}
		}
		p.idle -= len(f.idle) - len(kept)
		f.idle = kept
		if unused && f.making == 0 && len(f.waiting) == 0 {
			delete(p.shelves, c)
		}
	}
	p.pump()
	return out
}

// counts returns the numbers of sandboxes that wait, that are being made, and that are busy.
func (p *pool) counts() (idle, making, busy int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.shelves {
		busy += f.busy
	}
	return p.idle, p.making, busy
}

// metrics returns the gauges and counters of the pool.
func (p *pool) metrics() map[string]float64 {
	idle, making, busy := p.counts()
	return map[string]float64{
		"pool_idle": float64(idle), "pool_making": float64(making), "pool_busy": float64(busy), "pool_limit": float64(p.options.max),
		"pool_claims_total": float64(p.hits.Load() + p.misses.Load()), "pool_hits_total": float64(p.hits.Load()),
		"pool_cold_total": float64(p.misses.Load()), "pool_refills_total": float64(p.refills.Load()), "pool_updates_total": float64(p.updates.Load()),
		"pool_failures_total": float64(p.failures.Load()), "pool_died_total": float64(p.died.Load()), "pool_evicted_total": float64(p.evicted.Load()),
	}
}

// close discards all waiting sandboxes and those that are still being made. Later claims fail as unavailable. It is idempotent.
func (p *pool) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return
	}
	p.closed = true
	var idle []*sandbox
	for _, f := range p.shelves {
		idle = append(idle, f.idle...)
		f.idle = nil
		for _, ch := range f.waiting {
			ch <- delivery{err: backend.ErrClosed}
		}
		f.waiting = nil
	}
	p.idle = 0
	p.mu.Unlock()
	p.stop(backend.ErrClosed)
	for _, s := range idle {
		p.maker.discard(s)
	}
	p.wg.Wait()
}
