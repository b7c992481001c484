package dockerbackend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// minResults is the lowest bound of kept containers. It is higher on machines with many CPUs.
const minResults = 32

// results holds the containers of Executions that have ended. The runner in each has the Result, and sends it to a client that
// attaches, until the Execution is removed. An Engine removes it once the end is in its log. The backend has detached from the
// runner, which therefore ends after Config.SilenceSeconds. Before that a container is removed only to make room. It is safe
// for concurrent use.
type results struct {
	max int

	mu   sync.Mutex
	kept []keptResult // oldest first; each Execution at most once
}

// keptResult is the container of one Execution that has ended.
type keptResult struct {
	id    string
	box   *sandbox
	since time.Time
}

// put keeps box for id. It returns the containers that the caller must remove to make room.
func (r *results) put(id string, box *sandbox) (evicted []keptResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, keptResult{id, box, time.Now()})
	if n := len(r.kept) - r.max; n > 0 {
		evicted = slices.Clone(r.kept[:n])
		r.kept = slices.Delete(r.kept, 0, n)
	}
	return evicted
}

// take returns the container kept for id, and no longer keeps it; nil means that there is none.
func (r *results) take(id string) *sandbox {
	if taken := r.takeIf(func(k keptResult) bool { return k.id == id }); len(taken) > 0 {
		return taken[0].box
	}
	return nil
}

// takeIf returns all for which cond holds, and no longer keeps them.
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

// retire handles the container of a job that has ended for its caller. The outcome may be requested again until the job is
// removed, so the container is kept. If no later request is possible, retire removes the container in the background.
func (b *Backend) retire(id string, s *sandbox, started bool, err error) {
	if b.embedded || !started || err != nil && executor.CodeOf(err) != executor.Unavailable {
		b.clear(id, s)
		return
	}
	b.wg.Go(func() { _ = s.conn.Detach() }) // in the background; the connection has no further use
	for _, old := range b.results.put(id, s) {
		b.clear(old.id, old.box)
	}
}

// clear removes a container and its claim. The container is removed in the background.
func (b *Backend) clear(id string, s *sandbox) {
	b.factory.discard(s)
	b.unclaim(id, s.id)
}

// unclaim drops the claim of id if it is on this container. A later container may have replaced it.
func (b *Backend) unclaim(id, container string) {
	if claim, ok := b.claims.find(id); ok && claim.Container == container {
		b.claims.drop(id)
	}
}

// expire removes the kept containers that nobody has removed within Config.SilenceSeconds.
func (b *Backend) expire(now time.Time) {
	for _, old := range b.results.takeIf(func(k keptResult) bool { return now.Sub(k.since) > b.config.silence() }) {
		b.log.Debug("removing the container of an execution that was not removed in time", "execution", old.id, "container", short(old.box.id))
		b.clear(old.id, old.box)
	}
}

// removeClaimed removes the container of an Execution or Session that does not run in this backend: it has ended, or an earlier
// life of the plugin left it.
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
