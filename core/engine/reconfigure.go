package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

// Retired is a Backend that gets no new Executions any more.
type Retired struct {
	executor.Backend
	// Drained is closed when nothing of the Engine is on the Backend any more, or when the Engine begins to close. The Backend can
	// then be stopped.
	Drained <-chan struct{}
}

// Reconfigure replaces the settings of an Engine that works: Backends, DefaultBackend, Engine, Limits, Retention, Sessions, SpoolBytes and
// HostDirectories of o. The other fields of o are ignored. New Executions and Sessions get the new settings, and those that are there
// keep their limits, times and backends.
//
// A Backend that was there before under the same name goes on. Any other one from before is retired: it ends what it has, also its waiting
// Executions, and serves the open Sessions. After Engine.DrainTimeoutSeconds of o what is left on it is lost, with a Failure that says so.
// Only an Execution that still waits, and is in no Session, goes to the backend that has the name now, or to the default one if its Spec
// named none.
//
// An error changes nothing. Codes: invalid, unavailable (the Engine is not serving).
func (e *Engine) Reconfigure(o Options) ([]Retired, error) {
	e.reconfiguring.Lock()
	defer e.reconfiguring.Unlock()
	before := e.now()
	next, err := e.newSettings(o, before)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.acceptingLocked(); err != nil {
		return nil, err
	}
	e.settings.Store(next)
	e.queue.slots, e.queue.maxQueued, e.queue.perOwner = next.engine.MaxConcurrent, next.engine.MaxQueued, next.engine.MaxPerOwner
	e.queue.share = next.engine.MaxRunningPerOwner
	e.sessions.SetRules(next.sessions)
	e.retention.setBounds(o.Retention)
	var retired []Retired
	for _, name := range before.names {
		b := before.backends[name]
		if next.backends[name] == b {
			continue
		}
		b.retire(time.Now().Add(next.engine.DrainTimeout()))
		e.retired = append(e.retired, b)
		drained := make(chan struct{})
		e.spawnLocked(func() { e.drain(b, next.engine.DrainTimeout(), drained) })
		retired = append(retired, Retired{b.Backend, drained})
	}
	for _, name := range next.names {
		e.metrics.active.WithLabelValues(name).Add(0)
	}
	e.dispatch()
	return retired, nil
}

// drain waits until nothing is on b, which is retired. After limit it ends what is left.
func (e *Engine) drain(b *backend, limit time.Duration, drained chan<- struct{}) {
	defer close(drained)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-b.idle:
	case <-e.stopping:
		return
	case <-timer.C:
		e.endLeft(b, limit)
		select {
		case <-b.idle:
		case <-e.stopping:
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retired = slices.DeleteFunc(e.retired, func(other *backend) bool { return other == b })
	e.queue.forget(b.key)
	e.log.Info("backend drained", "backend", b.name)
}

// endLeft ends what is on b when the time of its drain is over.
func (e *Engine) endLeft(b *backend, limit time.Duration) {
	reason := fmt.Sprintf("the configuration of backend %s has changed, and the %s that the former one had to drain are over", b.name, limit)
	var lost []*execution
	e.mu.Lock()
	for _, x := range e.live {
		if x.on == b && !e.moveLocked(x) {
			lost = append(lost, x)
		}
	}
	e.dispatch()
	e.mu.Unlock()
	for _, x := range lost {
		x.stop(&sessions.End{Status: executor.StatusLost, Message: reason})
	}
	e.sessions.Abandon(b, reason)
	e.log.Warn("backend not drained in time", "backend", b.name, "after", limit, "executions_lost", len(lost))
}

// moveLocked gives x, which waits on a retired backend, another backend. It reports whether there was one. The caller holds the lock.
func (e *Engine) moveLocked(x *execution) bool {
	now := e.now()
	to := now.backends[x.backend]
	if to == nil && x.anyBackend {
		to = now.backends[now.defaultBackend]
	}
	if to == nil || x.session != nil || x.state != stateQueued {
		return false
	}
	to.Join()
	x.on.Leave()
	x.on, x.backend = to, to.name
	e.queue.transfer(x.place, to.key)
	return true
}

// describeRetired returns an Info of each retired backend, which says what is left on it.
func (e *Engine) describeRetired(ctx context.Context) []executor.Info {
	e.mu.Lock()
	retired := slices.Clone(e.retired)
	e.mu.Unlock()
	infos := e.ask(ctx, retired)
	for i, b := range retired {
		message, err := b.leftover(), infos[i].Message
		infos[i].Message = strings.TrimSuffix(message+": "+err, ": ")
	}
	return infos
}
