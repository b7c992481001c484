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

// warmTime is how long interpreters that were started ahead wait for a session of their kind.
const warmTime = 10 * time.Minute

// warmSessions are interpreters that are ready before anybody asks: for sessions like those that were opened last, because
// nearly everybody asks for the same. Those with requirements are not made ahead: their environment would be in use.
//
// The first kind gets all of them. One that finds none takes the place of one of the kind that was not asked for longest,
// and what is taken is replaced by its like: so the kinds have what they use.
type warmSessions struct {
	keep int

	mu     sync.Mutex
	kinds  []*warmKind // that was asked for last comes last
	closed bool
}

// warmKind is what is ready for one kind of session.
type warmKind struct {
	key     string
	ready   []*slot
	filling int
	expiry  *time.Timer
}

// warmKey is what two sessions have in common that may take each other's interpreter.
func warmKey(start runner.SessionStart) string {
	start.SessionID = ""
	raw, err := json.Marshal(start)
	if err != nil {
		return ""
	}
	return string(raw)
}

// find returns the place of a kind; -1: it has none. The caller holds the lock.
func (w *warmSessions) find(key string) int {
	return slices.IndexFunc(w.kinds, func(k *warmKind) bool { return k.key == key })
}

// take returns the slot of an interpreter that fits; nil: there is none. What does not live any more is given back.
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

// refill makes what is missing, in the background.
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

// askedLocked is the kind that is asked for now. The caller holds the lock.
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

// oldestLocked takes the slot that will most likely not be missed; nil: none is ready. A kind that has none left goes with it.
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

// add makes one. Whoever needs its place more is not kept waiting: an error only means that there is none.
func (w *warmSessions) add(b *Backend, k *warmKind, start runner.SessionStart) {
	ctx, cancel := context.WithTimeout(b.life, time.Minute)
	defer cancel()
	s, _, err := b.slots.take(ctx, start.Network)
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
		b.log.Debug("no interpreter could be started ahead", "error", err)
	case w.closed || !slices.Contains(w.kinds, k):
		b.wg.Go(func() { b.giveBack(s, nil) })
	default:
		k.ready = append(k.ready, s)
	}
}

// close lets nothing be made any more. What is ready ends with the slots.
func (w *warmSessions) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, k := range w.kinds {
		k.expiry.Stop()
	}
	w.kinds = nil
}

// takeSlot is slots.take for who is asked for: where no uid is free, what waits for sessions gives its own back.
func (b *Backend) takeSlot(ctx context.Context, network bool) (s *slot, fresh bool, err error) {
	for {
		s, fresh, err = b.slots.take(ctx, network)
		if executor.CodeOf(err) != executor.Exhausted {
			return s, fresh, err
		}
		b.warm.mu.Lock()
		spare := b.warm.oldestLocked()
		b.warm.mu.Unlock()
		if spare == nil {
			return s, fresh, err
		}
		b.giveBack(spare, nil)
	}
}
