package dockerbackend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// minResults is the least number of containers that wait to be removed; a machine with more CPUs may have more.
const minResults = 32

// results are the containers of Executions that have ended: the runner in each has the Result, and gives it to whoever
// attaches, until the Execution is removed, which is what an Engine does once the end is in its log. We let go of the runner
// meanwhile, so it ends after Config.SilenceSeconds; before that it goes only to make room. Safe for concurrent use.
type results struct {
	most int

	mu   sync.Mutex
	kept []keptResult // the oldest first, an Execution once
}

// keptResult is the container of one that has ended.
type keptResult struct {
	id    string
	box   *sandbox
	since time.Time
}

// put keeps box for id. What is returned has to make room for it.
func (r *results) put(id string, box *sandbox) (evicted []keptResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, keptResult{id, box, time.Now()})
	if n := len(r.kept) - r.most; n > 0 {
		evicted = slices.Clone(r.kept[:n])
		r.kept = slices.Delete(r.kept, 0, n)
	}
	return evicted
}

// take gives up what is kept for id; nil: nothing is.
func (r *results) take(id string) *sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.kept, func(k keptResult) bool { return k.id == id })
	if i < 0 {
		return nil
	}
	box := r.kept[i].box
	r.kept = slices.Delete(r.kept, i, i+1)
	return box
}

// takeIf gives up all for which cond holds.
func (r *results) takeIf(cond func(keptResult) bool) (taken []keptResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = slices.DeleteFunc(r.kept, func(k keptResult) bool {
		gone := cond(k)
		if gone {
			taken = append(taken, k)
		}
		return gone
	})
	return taken
}

func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept)
}

// retire is what becomes of the container of a job that is over for who called us: the outcome may be asked for again, until
// it is removed. Where nobody can ask it goes now, behind the answer.
func (b *Backend) retire(id string, s *sandbox, started bool, err error) {
	if b.embedded || !started || err != nil && executor.CodeOf(err) != executor.Unavailable {
		b.clear(id, s)
		return
	}
	b.wg.Go(func() { _ = s.conn.Detach() }) // behind the answer; the connection is of no more use
	for _, old := range b.results.put(id, s) {
		b.clear(old.id, old.box)
	}
}

// clear removes a container that nobody asks for, behind the answer.
func (b *Backend) clear(id string, s *sandbox) {
	b.factory.discard(s)
	b.unclaim(id, s.id)
}

// unclaim forgets that a container is id's, if it is; another may have taken its place.
func (b *Backend) unclaim(id, container string) {
	if claim, ok := b.claims.find(id); ok && claim.Container == container {
		b.claims.drop(id)
	}
}

// expire removes what nobody has removed in time, if it has not ended by itself.
func (b *Backend) expire(now time.Time) {
	for _, old := range b.results.takeIf(func(k keptResult) bool { return now.Sub(k.since) > b.config.silence() }) {
		b.log.Debug("an execution that has ended was not removed", "execution", old.id, "container", short(old.box.id))
		b.clear(old.id, old.box)
	}
}

// removeClaimed removes the container that there is for an Execution or a Session that does not run here: it has ended, or
// an earlier life of this plugin has left it.
func (b *Backend) removeClaimed(ctx context.Context, id string) error {
	claim, ok := b.claims.find(id)
	if !ok {
		return nil
	}
	return b.cleaner.now(ctx, func(ctx context.Context) error {
		b.results.takeIf(func(k keptResult) bool { return k.box.id == claim.Container })
		err := b.daemon.remove(ctx, claim.Container)
		if err == nil {
			b.unclaim(id, claim.Container)
		}
		return err
	})
}
