package workers

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/worker"
)

const (
	// askPause is the time between two questions for a worker's Info, and askSoon that before a question which a refusal has caused.
	askPause = 2 * time.Second
	askSoon  = 100 * time.Millisecond
	// askLimit bounds one question.
	askLimit = 5 * time.Second
)

// member is a worker. What follows client is guarded by the Pool's lock.
type member struct {
	registration
	client *worker.Client
	// soon makes watch ask soon.
	soon chan struct{}
	// end ends watch.
	end context.CancelCauseFunc

	// listed: it is registered. since is when that has changed.
	listed bool
	since  time.Time
	// info is the last answer. err is why the last question failed; errUnasked before the first answer.
	info executor.Info
	err  error
	// blocked: it has refused a Run, or was not reached, since the last question.
	blocked bool
	// running counts our Executions on it, and peak is the maximum since the last question began. others are those of other servers.
	running, peak, others int
	// used counts all our Executions on it. Of two workers with the same load, the one that was used less is next.
	used int
	// sessions are our Sessions on it.
	sessions map[string]bool
}

var errUnasked = executor.Errorf(executor.Unavailable, "it has not answered yet")

// load is the share of m's slots that is taken.
func (m *member) load() float64 {
	return float64(m.running+m.others) / float64(max(1, m.info.Capacity))
}

// free reports whether m has a free slot, as far as is known here.
func (m *member) free() bool {
	return m.err == nil && !m.blocked && m.running+m.others < m.info.Capacity
}

// watch asks m for its Info until ctx ends. Then it ends the connection.
func (p *Pool) watch(ctx context.Context, m *member) {
	defer m.client.Close() //nolint:errcheck // its calls have ended
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.soon:
			pause := time.NewTimer(askSoon)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		p.ask(ctx, m)
		p.drop(m)
		timer.Reset(askPause)
	}
}

// ask asks m for its Info.
func (p *Pool) ask(ctx context.Context, m *member) {
	p.mu.Lock()
	m.peak = m.running
	p.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, executor.Errorf(executor.Unavailable, "no answer within %s", askLimit))
	defer cancel()
	info, err := m.client.Info(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if (m.err == nil) != (err == nil) {
		if err != nil {
			p.log.Warn("a worker does not answer", "worker", m.name(), "error", err)
		} else {
			p.log.Info("a worker answers", "worker", m.name(), "type", info.Type, "slots", info.Capacity)
		}
	}
	m.err, m.blocked = err, false
	if err == nil {
		m.info = info
		// Each of our Executions counts here longer than there.
		m.others = max(0, int(info.Metrics[worker.MetricRunning])-m.peak)
		p.infoLocked()
	}
	p.changedLocked()
}

// drop forgets m when it is not registered any more and nothing of ours can be on it.
func (p *Pool) drop(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := m.err != nil && time.Since(m.since) >= p.config.returnTimeout()
	if m.listed || m.running > 0 || len(m.sessions) > 0 && !gone {
		return
	}
	for id := range m.sessions {
		delete(p.sessions, id)
	}
	p.forgetLocked(m)
}

// forgetLocked ends the watch of m.
func (p *Pool) forgetLocked(m *member) {
	if p.members[m.ID] == m {
		delete(p.members, m.ID)
	}
	m.end(context.Canceled)
	p.changedLocked()
}

// follow follows the registry until ctx ends, from index on.
func (p *Pool) follow(ctx context.Context, index uint64) {
	const again = time.Second
	failing := false
	for ctx.Err() == nil {
		began := time.Now()
		all, next, err := p.list(ctx, index)
		if err == nil {
			if failing {
				p.log.Info("the registry of workers answers again", "service", p.config.Service)
			}
			failing, index = false, next
			p.apply(all)
			if index > 0 && time.Since(began) > askSoon {
				continue // the registry holds its answers back
			}
		} else if ctx.Err() == nil && !failing {
			// Workers do not end because the registry is away.
			failing = true
			p.log.Warn("the registry of workers does not answer: the known workers stay", "service", p.config.Service, "error", err)
		}
		pause := time.NewTimer(again)
		if err == nil {
			pause.Reset(askSoon)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// list asks the registry, for at most listLimit.
func (p *Pool) list(ctx context.Context, index uint64) ([]registration, uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, executor.Errorf(executor.Unavailable, "no answer within %s", listLimit))
	defer cancel()
	return p.registry.list(ctx, index)
}

// apply makes the members those of all. A worker that is not registered any more keeps what it has, and gets nothing new.
func (p *Pool) apply(all []registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	listed := map[string]bool{}
	for _, r := range all {
		listed[r.ID] = true
		m := p.members[r.ID]
		if m != nil && m.Address == r.Address {
			if !m.listed {
				m.listed, m.since = true, time.Now()
			}
			continue
		}
		client, err := p.dialer.Dial(r.Address)
		if err != nil {
			p.log.Error("a worker cannot be used", "worker", r.name(), "error", err)
			continue
		}
		next := &member{registration: r, client: client, soon: make(chan struct{}, 1), listed: true, since: time.Now(), err: errUnasked, sessions: map[string]bool{}}
		if m != nil { // its process was replaced; what runs there ends with its connection
			next.sessions, m.sessions = m.sessions, next.sessions
			p.unlistLocked(m)
		}
		p.members[r.ID] = next
		p.log.Info("a worker was registered", "worker", r.name(), "allocation", r.Allocation, "node", r.Node)
		ctx, end := context.WithCancelCause(p.life)
		next.end = end
		p.wg.Go(func() { p.watch(ctx, next) })
	}
	for id, m := range p.members {
		if m.listed && !listed[id] {
			p.log.Info("a worker is not registered any more", "worker", m.name(), "executions", m.running, "sessions", len(m.sessions))
			p.unlistLocked(m)
		}
	}
	p.changedLocked()
}

// unlistLocked gives m nothing new. Its watch drops it.
func (p *Pool) unlistLocked(m *member) {
	m.listed, m.since = false, time.Now()
	p.pokeLocked(m)
}

// pokeLocked has m asked soon.
func (p *Pool) pokeLocked(m *member) {
	select {
	case m.soon <- struct{}{}:
	default:
	}
}

// changedLocked wakes those who wait for a change.
func (p *Pool) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}
