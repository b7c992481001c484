package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// lookInterval is how often backends with open Sessions are looked at, whether or not somebody uses them: a Session that
// was lost shall say so.
const lookInterval = 10 * time.Second

// lookAgain is how soon a backend with open Sessions that does not answer is looked at again: it is being restarted.
const lookAgain = time.Second

// maxEnded bounds how many ended Sessions are kept, however short their lives were: the Store has all of them in memory.
const maxEnded = 1000

// endedSessions are those whose record is kept for a while.
type endedSessions struct {
	kept time.Duration
	mu   sync.Mutex
	list []endedSession
}

type endedSession struct {
	id string
	at time.Time
}

// add reports whether there are too many now.
func (l *endedSessions) add(id string, at time.Time) (full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, endedSession{id, at})
	slices.SortStableFunc(l.list, func(a, b endedSession) int { return a.at.Compare(b.at) })
	return len(l.list) > maxEnded
}

// expired takes out one that was kept for long enough, or that is too many.
func (l *endedSessions) expired() (id string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 || len(l.list) <= maxEnded && time.Since(l.list[0].at) < l.kept {
		return "", false
	}
	id = l.list[0].id
	l.list = l.list[1:]
	return id, true
}

// loadSessions takes over the Sessions of an earlier life. Whether their sandboxes are there is found out beside, or at
// their first use.
func (e *Engine) loadSessions(ctx context.Context) error {
	recs, err := e.store.ListSessionRecords(ctx, "")
	if err != nil {
		return e.internal("read the sessions", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rec := range recs {
		if rec.Status == executor.SessionClosed || !rec.EndedAt.IsZero() {
			at := rec.EndedAt
			if at.IsZero() {
				at = rec.CreatedAt
			}
			e.ended.add(rec.ID, at)
			if len(rec.Handle) > 0 {
				e.leftovers[rec.ID] = rec.Backend
			}
			continue
		}
		e.sessions[rec.ID] = &session{
			engine: e, id: rec.ID, owner: rec.Owner, backend: rec.Backend, rec: rec, saved: rec.LastUsed,
		}
	}
	return nil
}

// keepSessions looks after the Sessions until the Engine stops: whether their backends still have them, what is to be
// written of them, which records are to be deleted.
func (e *Engine) keepSessions() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-e.stopping:
			return
		case <-e.lookNow:
		case <-timer.C:
		}
		away := e.lookAfterSessions()
		timer.Stop()
		if wait, ok := e.nextLook(); ok {
			if away {
				wait = min(wait, lookAgain)
			}
			timer.Reset(wait)
		}
	}
}

// nextLook is how long nothing is to be done; ok is false if there is nothing at all.
func (e *Engine) nextLook() (wait time.Duration, ok bool) {
	e.mu.Lock()
	watched := len(e.sessions) + len(e.leftovers)
	e.mu.Unlock()
	if watched > 0 {
		return lookInterval, true
	}
	e.ended.mu.Lock()
	defer e.ended.mu.Unlock()
	if len(e.ended.list) == 0 {
		return 0, false
	}
	return max(time.Until(e.ended.list[0].at.Add(e.ended.kept)), time.Second), true
}

// lookAfterSessions reports whether a backend that is asked for does not answer.
func (e *Engine) lookAfterSessions() (away bool) {
	generations := map[string]int{}
	leftovers := e.leftBehind()
	for _, name := range e.names {
		if len(e.sessionsOf(func(s *session) bool { return s.backend == name })) == 0 && len(leftovers[name]) == 0 {
			continue
		}
		info, err := e.info(e.base, name)
		if err != nil {
			away = true
			continue
		}
		generations[name] = info.Generation
	}
	var wg sync.WaitGroup
	for _, s := range e.sessionsOf(func(s *session) bool {
		generation, up := generations[s.backend]
		gone := e.backends[s.backend] == nil
		return gone || up && (!s.verified || s.rec.Generation != generation)
	}) {
		wg.Go(func() { _ = e.checkSandbox(e.base, s) }) // what it finds is in s
	}
	for backend, ids := range leftovers {
		if _, up := generations[backend]; !up && e.backends[backend] != nil {
			continue
		}
		for _, id := range ids {
			wg.Go(func() { e.clearAway(id, backend) })
		}
	}
	wg.Wait()
	for _, s := range e.sessionsOf(func(s *session) bool { return s.rec.LastUsed.Sub(s.saved) >= saveInterval }) {
		s.save()
	}
	for {
		id, ok := e.ended.expired()
		if !ok {
			return away
		}
		ctx, cancel := storeContext(e.base)
		err := e.store.DeleteSession(ctx, id)
		cancel()
		if err != nil {
			e.log.Error("session not deleted", "session", id, "error", err)
			e.ended.add(id, time.Now())
			return away
		}
	}
}

// leftBehind are the ids of ended Sessions whose sandboxes may still be there, by backend.
func (e *Engine) leftBehind() map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	byBackend := map[string][]string{}
	for id, backend := range e.leftovers {
		byBackend[backend] = append(byBackend[backend], id)
	}
	return byBackend
}

// clearAway ends the sandbox of a Session that has ended.
func (e *Engine) clearAway(id, backend string) {
	if e.removeSandbox(id, backend) != nil {
		return
	}
	e.mu.Lock()
	delete(e.leftovers, id)
	e.mu.Unlock()
	ctx, cancel := storeContext(e.base)
	defer cancel()
	_, err := e.store.UpdateSession(ctx, id, func(r *executor.SessionRecord) { r.Handle = nil })
	if err != nil && executor.CodeOf(err) != executor.NotFound {
		e.log.Error("session not written", "session", id, "error", err)
	}
}

// lookSoon makes keepSessions look now: a backend has come back.
func (e *Engine) lookSoon() {
	select {
	case e.lookNow <- struct{}{}:
	default:
	}
}

// releaseSessions ends, when the Engine closes, what would not outlive it: Sessions on backends that cannot adopt them, or
// all of them where no later life of the server reads the Store. The others stay for the next Start.
func (e *Engine) releaseSessions() {
	var wg sync.WaitGroup
	for _, s := range e.sessionsOf(func(*session) bool { return true }) {
		wg.Go(func() {
			b := e.backends[s.backend]
			if b != nil && b.keeps() && !e.embedded {
				e.mu.Lock()
				if s.clock != nil {
					s.clock.Stop()
				}
				unsaved := s.closed == nil && s.rec.LastUsed.After(s.saved)
				e.mu.Unlock()
				if unsaved {
					s.save()
				}
				return
			}
			s.beginClose("the server stopped")
			<-s.closed
		})
	}
	wg.Wait()
}
