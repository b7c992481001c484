package workers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// bestLocked returns the least loaded of the members for which fit holds; nil if there is none.
func (p *Pool) bestLocked(fit func(*member) bool, order func(a, b *member) int) *member {
	var best *member
	for _, m := range p.members {
		if m.listed && m.err == nil && m.info.Healthy && !m.blocked && fit(m) && (best == nil || order(m, best) < 0) {
			best = m
		}
	}
	return best
}

// byLoad puts the least loaded worker first.
func byLoad(a, b *member) int {
	return cmp.Or(cmp.Compare(a.load(), b.load()), cmp.Compare(a.used, b.used), strings.Compare(a.ID, b.ID))
}

// bySessions puts the worker with the fewest Sessions per slot first.
func bySessions(a, b *member) int {
	per := func(m *member) float64 { return float64(len(m.sessions)) / float64(max(1, m.info.Capacity)) }
	return cmp.Or(cmp.Compare(per(a), per(b)), byLoad(a, b))
}

// lease waits for a free slot and takes it: of the least loaded worker, or of the worker with the ID only. The caller releases it. Codes:
// exhausted (no slot came free in time), unavailable (no worker came in time), not_found (the only worker is gone).
func (p *Pool) lease(ctx context.Context, only string) (*member, error) {
	deadline := time.NewTimer(p.config.slotTimeout())
	defer deadline.Stop()
	late := false
	for {
		p.mu.Lock()
		var m *member
		if only == "" {
			m = p.bestLocked((*member).free, byLoad)
		} else if m = p.members[only]; m == nil || !m.free() {
			m = nil
		}
		if m != nil {
			m.running++
			m.used++
			m.peak = max(m.peak, m.running)
			p.mu.Unlock()
			return m, nil
		}
		why, changed := p.fullLocked(only), p.changed
		p.mu.Unlock()
		if late || executor.CodeOf(why) == executor.NotFound {
			return nil, why
		}
		select {
		case <-changed:
		case <-deadline.C:
			late = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// fullLocked returns why there is no slot.
func (p *Pool) fullLocked(only string) error {
	if only != "" && p.members[only] == nil {
		return executor.Errorf(executor.NotFound, "the worker is gone")
	}
	answering, slots := 0, 0
	for id, m := range p.members {
		if m.err == nil && (only == "" || only == id) {
			answering++
			slots += m.info.Capacity
		}
	}
	code, message := executor.Exhausted, "all slots of the workers are taken"
	if answering == 0 {
		code, message = executor.Unavailable, p.aloneLocked()
	}
	return &executor.Error{Code: code, Message: message, RetryAfter: askPause}
}

// aloneLocked says why there is no worker to use.
func (p *Pool) aloneLocked() string {
	var reasons []string
	for _, m := range p.members {
		switch {
		case m.err != nil:
			reasons = append(reasons, m.name()+": "+m.err.Error())
		case !m.info.Healthy:
			reasons = append(reasons, m.name()+": "+cmp.Or(m.info.Message, "it is not healthy"))
		}
	}
	if len(reasons) == 0 {
		return "no worker is registered as service " + p.config.Service
	}
	slices.Sort(reasons)
	return "no worker can be used: " + strings.Join(reasons, "; ")
}

// release gives a slot back.
func (p *Pool) release(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.running--
	if !m.listed {
		p.pokeLocked(m)
	}
	p.changedLocked()
}

// block keeps new Executions from m until it has answered again. It has refused one, or was not reached.
func (p *Pool) block(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.blocked = true
	p.pokeLocked(m)
}

// find returns the worker with that ID. It waits for one that is away, at most for patience. Codes: not_found (it is gone), unavailable
// (it is registered and does not answer).
func (p *Pool) find(ctx context.Context, id string, patience time.Duration) (*member, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	late := patience == 0
	for {
		p.mu.Lock()
		m, changed := p.members[id], p.changed
		answers := m != nil && m.err == nil
		registered := m != nil && m.listed
		p.mu.Unlock()
		switch {
		case answers:
			return m, nil
		case late && registered:
			return nil, &executor.Error{Code: executor.Unavailable, Message: "worker " + m.name() + " does not answer", RetryAfter: askPause}
		case late:
			return nil, executor.Errorf(executor.NotFound, "the worker is gone")
		}
		select {
		case <-changed:
		case <-deadline.C:
			late = true
		case <-ctx.Done():
			return nil, executor.Errorf(executor.Unavailable, "%w", context.Cause(ctx))
		}
	}
}
