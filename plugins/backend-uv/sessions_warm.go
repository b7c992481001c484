package uvbackend

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// warmTime is how long a warm interpreter waits for a session of its kind.
const warmTime = 10 * time.Minute

// warmSessions holds interpreters that are ready before a session is opened, for sessions like the last ones. Most sessions are
// alike. Sessions with requirements have no warm interpreters, because each would keep its environment in use.
//
// The first kind of session gets all keep interpreters. Later, a kind without an interpreter takes the place of an interpreter of
// the kind that was asked for longest ago. An interpreter that is taken is replaced by one of its kind.
type warmSessions struct {
	keep int

	mu     sync.Mutex
	kinds  []*warmKind // the kind asked for last comes last
	closed bool
}

// warmKind holds the ready interpreters for one kind of session.
type warmKind struct {
	key     string
	ready   []*slot
	filling int
	expiry  *time.Timer
}

// warmKey is equal for two sessions that may use the same warm interpreter.
func warmKey(start runner.SessionStart) string {
	start.SessionID = ""
	raw, err := json.Marshal(start)
	if err != nil {
		return ""
	}
	return string(raw)
}

// find returns the index of a kind in kinds, or -1. The caller holds the lock.
func (w *warmSessions) find(key string) int {
	return slices.IndexFunc(w.kinds, func(k *warmKind) bool { return k.key == key })
}

// take returns the slot of a warm interpreter of a kind; nil if there is none. Dead slots are given back.
func (w *warmSessions) take(b *Backend, key string) *slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.find(key)
	if i < 0 {
		return nil
	}
	k := w.kinds[i]
	for len(k.ready) > 0 {
		s := k.ready[0]
		k.ready = k.ready[1:]
		if s.alive() {
			return s
		}
		b.slots.put(s)
	}
	return nil
}

// refill starts the missing interpreters in the background.
func (w *warmSessions) refill(b *Backend, start runner.SessionStart) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.keep <= 0 {
		return
	}
	k := w.askedLocked(b, warmKey(start))
	count := 0
	for _, other := range w.kinds {
		count += len(other.ready) + other.filling
	}
	if count >= w.keep && len(k.ready)+k.filling == 0 {
		if s := w.oldestLocked(); s != nil {
			count--
			b.wg.Go(func() { b.giveBack(s, nil) })
		}
	}
	for ; count < w.keep; count++ {
		k.filling++
		b.wg.Go(func() { w.add(b, k, start) })
	}
}

// askedLocked returns the kind of key and makes it the last one asked for. The caller holds the lock.
func (w *warmSessions) askedLocked(b *Backend, key string) *warmKind {
	k := &warmKind{key: key}
	if i := w.find(key); i >= 0 {
		k = w.kinds[i]
		w.kinds = slices.Delete(w.kinds, i, i+1)
		k.expiry.Stop()
	}
	w.kinds = append(w.kinds, k)
	k.expiry = time.AfterFunc(warmTime, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if i := w.find(key); i < 0 || w.kinds[i] != k || w.closed {
			return
		}
		w.kinds = slices.DeleteFunc(w.kinds, func(other *warmKind) bool { return other == k })
		for _, s := range k.ready {
			b.wg.Go(func() { b.giveBack(s, nil) })
		}
	})
	return k
}

// oldestLocked takes a slot of the kind that was asked for longest ago; nil if none is ready. A kind without slots is removed.
// The caller holds the lock.
func (w *warmSessions) oldestLocked() *slot {
	for i, k := range w.kinds {
		if len(k.ready) == 0 {
			continue
		}
		s := k.ready[0]
		if k.ready = k.ready[1:]; len(k.ready)+k.filling == 0 {
			k.expiry.Stop()
			w.kinds = slices.Delete(w.kinds, i, i+1)
		}
		return s
	}
	return nil
}

// add starts one interpreter. It takes no slot from a job: if none is free, there is one warm interpreter less.
func (w *warmSessions) add(b *Backend, k *warmKind, start runner.SessionStart) {
	ctx, cancel := context.WithTimeout(b.life, time.Minute)
	defer cancel()
	s, _, err := b.slots.take(ctx, start.Network, "")
	if err == nil {
		s.weigh(start.Limits.CPUShares)
		if err = s.conn.OpenSession(ctx, start); err != nil {
			b.giveBack(s, nil)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k.filling--
	switch {
	case err != nil:
		b.log.Debug("no interpreter could be started in advance", "error", err)
	case w.closed || !slices.Contains(w.kinds, k):
		b.wg.Go(func() { b.giveBack(s, nil) })
	default:
		k.ready = append(k.ready, s)
	}
}

// close stops the starting of interpreters. Ready ones end with the slots.
func (w *warmSessions) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, k := range w.kinds {
		k.expiry.Stop()
	}
	w.kinds = nil
}

// takeSlot is slots.take for a job or a session. If no uid is free, a warm interpreter gives up its own.
func (b *Backend) takeSlot(ctx context.Context, network bool, fork string) (s *slot, fresh bool, err error) {
	for {
		s, fresh, err = b.slots.take(ctx, network, fork)
		if executor.CodeOf(err) != executor.Exhausted {
			return s, fresh, err
		}
		if !b.endWarm() {
			return s, fresh, err
		}
	}
}

// endWarm ends the warm interpreter of the kind that was asked for longest ago, so that its uid is free. It returns false if there is
// none.
func (b *Backend) endWarm() bool {
	b.warm.mu.Lock()
	spare := b.warm.oldestLocked()
	b.warm.mu.Unlock()
	if spare == nil {
		return false
	}
	b.giveBack(spare, nil)
	return true
}
