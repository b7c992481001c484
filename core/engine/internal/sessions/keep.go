package sessions

import (
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	// lookInterval is how often Keep asks the backends of open Sessions, used or not, so that a lost Session gets its status.
	lookInterval = 10 * time.Second
	// lookAgain is how soon Keep asks a backend again that does not answer: it is being restarted.
	lookAgain = time.Second
	// maxEnded bounds how many ended Sessions are kept, however short their lives were: the Store has all of them in memory.
	maxEnded = 1000
	// saveInterval is how old the Store's LastUsed may be.
	saveInterval = time.Minute
)

type endedSession struct {
	id string
	at time.Time
}

func (r *Registry) addEndedLocked(id string, at time.Time) {
	r.ended = append(r.ended, endedSession{id, at})
	slices.SortStableFunc(r.ended, func(a, b endedSession) int { return a.at.Compare(b.at) })
}

// nextExpired takes out an ended Session whose record was kept for long enough, or is too many.
func (r *Registry) nextExpired() (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ended) == 0 || len(r.ended) <= maxEnded && time.Since(r.ended[0].at) < r.options.Rules.KeepClosed() {
		return "", false
	}
	id = r.ended[0].id
	r.ended = r.ended[1:]
	return id, true
}

// Keep looks after the Sessions until the engine stops: it asks backends that were restarted whether they still have the
// sandboxes, writes records that have changed, and deletes those that were kept for long enough.
func (r *Registry) Keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.options.Stopping:
			return
		case <-r.lookNow:
		case <-timer.C:
		}
		away := r.look()
		timer.Stop()
		if wait, ok := r.nextLook(); ok {
			if away {
				wait = min(wait, lookAgain)
			}
			timer.Reset(wait)
		}
	}
}

// Look makes Keep look now: a backend has come back.
func (r *Registry) Look() {
	select {
	case r.lookNow <- struct{}{}:
	default:
	}
}

// nextLook returns how long nothing is to be done. It reports false if there is nothing to do at all.
func (r *Registry) nextLook() (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.open)+len(r.leftovers) > 0:
		return lookInterval, true
	case len(r.ended) == 0:
		return 0, false
	}
	return max(time.Until(r.ended[0].at.Add(r.options.Rules.KeepClosed())), time.Second), true
}

// look reports whether a backend that was asked does not answer.
func (r *Registry) look() (away bool) {
	leftovers := r.leftoversByHome()
	asked := map[Home]bool{}
	for home := range leftovers {
		asked[home] = true
	}
	for _, s := range r.filter(func(*Session) bool { return true }) {
		asked[s.home] = true
	}
	delete(asked, nil)            // not configured any more
	generations := map[Home]int{} // of the backends that answer
	for home := range asked {
		info, err := home.Describe(r.options.Base)
		if err != nil {
			away = true
			continue
		}
		generations[home] = info.Generation
	}
	var wg sync.WaitGroup
	for _, s := range r.filter(func(s *Session) bool {
		generation, up := generations[s.home]
		return s.home == nil || up && (!s.verified || s.rec.Generation != generation)
	}) {
		wg.Go(func() { _ = s.Check(r.options.Base) }) // what it finds is in s
	}
	for home, ids := range leftovers {
		if _, up := generations[home]; !up {
			continue
		}
		for id, backend := range ids {
			wg.Go(func() { r.clearAway(id, backend, home) })
		}
	}
	wg.Wait()
	for _, s := range r.filter(func(s *Session) bool { return s.rec.LastUsed.Sub(s.saved) >= saveInterval }) {
		s.save()
	}
	r.deleteExpired()
	return away
}

func (r *Registry) deleteExpired() {
	for {
		id, ok := r.nextExpired()
		if !ok {
			return
		}
		ctx, cancel := calls.StoreContext(r.options.Base)
		err := r.options.Store.DeleteSession(ctx, id)
		cancel()
		if err != nil {
			r.options.Log.Error("session not deleted", "session", id, "error", err)
			r.mu.Lock()
			r.addEndedLocked(id, time.Now())
			r.mu.Unlock()
			return
		}
	}
}

// leftoversByHome returns the ids of ended Sessions whose sandboxes may still be there, with the names of their backends. The backend
// that has such a name now is asked: a former one has ended all of its own, or leaves it to its successor.
func (r *Registry) leftoversByHome() map[Home]map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	byHome := map[Home]map[string]string{}
	for id, backend := range r.leftovers {
		home := r.options.Home(backend)
		if byHome[home] == nil {
			byHome[home] = map[string]string{}
		}
		byHome[home][id] = backend
	}
	return byHome
}

// clearAway ends the sandbox of a Session that has ended.
func (r *Registry) clearAway(id, backend string, home Home) {
	if r.closeSandbox(id, backend, home) != nil {
		return
	}
	r.mu.Lock()
	delete(r.leftovers, id)
	r.mu.Unlock()
	_ = r.update(id, func(rec *executor.SessionRecord) { rec.Handle = nil }) // update has logged what is wrong
}

// update changes the record of a Session. It logs an error, unless there is no record any more.
func (r *Registry) update(id string, change func(*executor.SessionRecord)) error {
	ctx, cancel := calls.StoreContext(r.options.Base)
	defer cancel()
	_, err := r.options.Store.UpdateSession(ctx, id, change)
	if err != nil && executor.CodeOf(err) != executor.NotFound {
		r.options.Log.Error("session not written", "session", id, "error", err)
	}
	return err
}
