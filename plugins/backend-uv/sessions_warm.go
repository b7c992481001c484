package uvbackend

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/runner"
)

// warmTime is how long an interpreter that was started ahead waits for its session.
const warmTime = 10 * time.Minute

// warmSessions are interpreters that are ready before anybody asks: for a session like the last one that was opened, because
// nearly everybody asks for the same. Those with requirements are not made ahead: their environment would be in use.
type warmSessions struct {
	keep int

	mu      sync.Mutex
	key     string
	ready   []*slot
	filling int
	closed  bool
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

// take returns the slot of an interpreter that fits; nil: there is none. What does not live any more is given back.
func (w *warmSessions) take(b *Backend, key string) *slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key == w.key && len(w.ready) > 0 {
		s := w.ready[0]
		w.ready = w.ready[1:]
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
	key := warmKey(start)
	if key != w.key {
		w.emptyLocked(b)
		w.key = key
	}
	if w.expiry != nil {
		w.expiry.Stop()
	}
	w.expiry = time.AfterFunc(warmTime, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.emptyLocked(b)
	})
	for len(w.ready)+w.filling < w.keep {
		w.filling++
		b.wg.Go(func() { w.add(b, key, start) })
	}
}

// add makes one. Whoever needs its place more is not kept waiting: an error only means that there is none.
func (w *warmSessions) add(b *Backend, key string, start runner.SessionStart) {
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
	w.filling--
	switch {
	case err != nil:
		b.log.Debug("no interpreter could be started ahead", "error", err)
	case w.closed || w.key != key:
		b.wg.Go(func() { b.giveBack(s, nil) })
	default:
		w.ready = append(w.ready, s)
	}
}

// emptyLocked gives all back.
func (w *warmSessions) emptyLocked(b *Backend) {
	w.key = ""
	for _, s := range w.ready {
		b.wg.Go(func() { b.giveBack(s, nil) })
	}
	w.ready = nil
}

// close lets nothing be made any more. What is ready ends with the slots.
func (w *warmSessions) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.ready = nil
	if w.expiry != nil {
		w.expiry.Stop()
	}
}
