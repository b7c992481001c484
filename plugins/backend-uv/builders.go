package uvbackend

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

// reservedUIDs is how many uids at the end of a range prepare environments and are given to no program. A small range has none
// to spare: a uid then prepares, or runs programs, but never both at once.
func (u uids) reserved() int { return min(16, u.count()/8) }

// programs are the uids of a range that run programs.
func (u uids) programs() uids { return uids{u.first, u.last - u.reserved()} }

// programUID claims a uid for a slot of programs.
func (p *slots) programUID() (*uidClaim, error) { return p.ids.take(p.how.uids.programs()) }

// builderUID claims a uid for preparation number n: the same one for the same number, as long as it is free, because the package
// cache belongs to it.
func (p *slots) builderUID(n int) (*uidClaim, error) {
	last := p.how.uids.last - n
	if c, err := p.ids.take(uids{last, last}); err == nil {
		return c, nil
	}
	for uid := p.how.uids.last; uid >= p.how.uids.first; uid-- {
		c, err := p.ids.take(uids{uid, uid})
		if executor.CodeOf(err) != executor.Exhausted {
			return c, err
		}
	}
	return p.ids.take(p.how.uids) // which says that there is none
}

// builder makes a slot for preparation number n.
func (p *slots) builder(ctx context.Context, n int) (*slot, error) {
	p.mu.Lock()
	if p.isClosed {
		p.mu.Unlock()
		return nil, errClosed
	}
	p.number++
	number := p.number
	p.wg.Add(1) // for make
	p.mu.Unlock()
	return p.make(ctx, number, true, func() (*uidClaim, error) { return p.builderUID(n) })
}

// dropBuilder gives such a slot back for good, and reports whether nothing of it is left.
func (p *slots) dropBuilder(s *slot) bool {
	p.drop(s)
	return s.clean
}

// dropIdle gives an idle slot back, so that its uid is free; false: none is idle.
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
	p.wg.Add(1)
	p.mu.Unlock()
	defer p.wg.Done()
	p.drop(s)
	return true
}

// takeBuilder is slots.builder where uids are scarce: what only waits for work gives its own back.
func (b *Backend) takeBuilder(ctx context.Context, n int) (*slot, error) {
	for {
		s, err := b.slots.builder(ctx, n)
		if executor.CodeOf(err) != executor.Exhausted {
			return s, err
		}
		if b.slots.dropIdle() {
			continue
		}
		b.warm.mu.Lock()
		spare := b.warm.oldestLocked()
		b.warm.mu.Unlock()
		if spare == nil {
			return nil, err
		}
		b.giveBack(spare, nil)
	}
}
