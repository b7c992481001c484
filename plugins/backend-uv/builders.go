package uvbackend

import (
	"context"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

// reserved returns the number of uids at the end of a range that only prepare environments. A small range reserves none: each uid
// then prepares an environment or runs programs, but never both at once.
func (u uids) reserved() int { return min(16, u.count()/8) }

// programs returns the uids of a range that run programs.
func (u uids) programs() uids { return uids{u.first, u.last - u.reserved()} }

// programUID claims a uid for a slot of programs.
func (p *slots) programUID() (*uidClaim, error) { return p.ids.take(p.how.uids.programs()) }

// builderUID claims a uid for preparation number n. It prefers the uid that is number n from the end of the range, because that
// uid owns the package cache of n. Codes: exhausted.
func (p *slots) builderUID(n int) (*uidClaim, error) {
	last := max(p.how.uids.last-n, p.how.uids.first)
	if c, err := p.ids.take(uids{last, last}); err == nil {
		return c, nil
	}
	for uid := p.how.uids.last; uid >= p.how.uids.first; uid-- {
		c, err := p.ids.take(uids{uid, uid})
		if executor.CodeOf(err) != executor.Exhausted {
			return c, err
		}
	}
	return p.ids.take(p.how.uids) // returns the error for a range without a free uid
}

// builder makes a slot for preparation number n. It has the network of programs, and besides the port of this host's loopback at which its
// fetches are served. Codes: as take.
func (p *slots) builder(ctx context.Context, n int, port uint16) (*slot, error) {
	p.mu.Lock()
	if p.isClosed {
		p.mu.Unlock()
		return nil, backend.ErrClosed
	}
	p.number++
	number := p.number
	p.wg.Add(1) // make calls Done
	p.mu.Unlock()
	return p.make(ctx, number, slotKind{network: true, private: p.private, loopback: []uint16{port}}, func() (*uidClaim, error) { return p.builderUID(n) })
}

// dropBuilder gives a slot of builder back, and reports whether no process of it is left.
func (p *slots) dropBuilder(s *slot) bool {
	p.drop(s)
	return s.clean
}

// dropIdle gives an idle slot back, so that its uid is free. It returns false if no slot is idle.
func (p *slots) dropIdle() bool {
	p.mu.Lock()
	if p.isClosed || len(p.idle) == 0 {
		p.mu.Unlock()
		return false
	}
	s := p.idle[0]
	p.idle = p.idle[1:]
	if s.idle != nil {
		s.idle.Stop()
	}
	p.limitLocked()
	p.wg.Add(1)
	p.mu.Unlock()
	defer p.wg.Done()
	p.drop(s)
	return true
}

// takeBuilder is slots.builder that frees a uid if none is free: it ends an idle slot, or else a warm interpreter.
func (b *Backend) takeBuilder(ctx context.Context, n int, port uint16) (*slot, error) {
	for {
		s, err := b.slots.builder(ctx, n, port)
		if executor.CodeOf(err) != executor.Exhausted || !b.slots.dropIdle() && !b.endWarm() {
			return s, err
		}
	}
}
