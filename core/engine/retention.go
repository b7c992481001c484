package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// sweepInterval is how often the sweep looks for leftover blobs, and minBlobAge how old one must be: a younger blob may belong to an
// Execution that is being made.
const (
	sweepInterval = time.Hour
	minBlobAge    = 10 * time.Minute
)

// finished is a finished Execution.
type finished struct {
	id, owner string
	at        time.Time
	bytes     int64
}

func finishedOf(rec executor.Record) finished {
	k := finished{id: rec.ID, owner: rec.Owner, at: rec.FinishedAt, bytes: rec.LogBytes + rec.SpecBytes}
	if rec.Result != nil && rec.ArtifactsBlob != "" {
		for _, a := range rec.Result.Artifacts {
			k.bytes += a.SizeBytes + 1024 // headers and padding of a tar
		}
	}
	return k
}

// retention deletes finished Executions beyond the configured bounds. Beyond the age that is the longest finished one. Beyond another bound it
// is the longest finished one of the owner that has most of what is bounded. So nobody who keeps less than an equal share loses results
// because of others.
type retention struct {
	engine *Engine
	wake   chan struct{}

	mu sync.Mutex
	// A bound of 0 is off.
	age   time.Duration
	count int
	bytes int64
	// shelves have the finished Executions of each owner that has some. number counts all of them, and total is the sum of their bytes.
	shelves map[string]*shelf
	number  int
	total   int64
}

// shelf has the finished Executions of one owner, in the order of their end.
type shelf struct {
	kept  []finished
	bytes int64
}

func newRetention(e *Engine, c config.Retention) *retention {
	r := &retention{
		engine:  e,
		wake:    make(chan struct{}, 1),
		shelves: map[string]*shelf{},
	}
	r.setBounds(c)
	return r
}

// setBounds replaces the bounds.
func (r *retention) setBounds(c config.Retention) {
	r.mu.Lock()
	r.age, r.count, r.bytes = time.Duration(c.MaxAgeSeconds*float64(time.Second)), c.MaxExecutions, c.MaxBytes
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add takes the Executions that finished before the server started.
func (r *retention) add(list []finished) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range list {
		r.putLocked(k)
	}
	for _, s := range r.shelves {
		slices.SortFunc(s.kept, func(a, b finished) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.id, b.id)) })
	}
}

func (r *retention) putLocked(k finished) {
	s := r.shelves[k.owner]
	if s == nil {
		s = &shelf{}
		r.shelves[k.owner] = s
	}
	s.kept = append(s.kept, k)
	s.bytes += k.bytes
	r.number++
	r.total += k.bytes
}

// ended adds an Execution that has just finished.
func (r *retention) ended(id string) {
	ctx, cancel := calls.StoreContext(r.engine.base)
	defer cancel()
	rec, err := r.engine.store.Get(ctx, id)
	if err != nil {
		r.engine.log.Warn("finished execution not counted", "execution", id, "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putLocked(finishedOf(rec))
	if r.overLocked(time.Now()) != nil || r.number == 1 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// overLocked returns the owner whose longest finished Execution is to be deleted because a bound is exceeded, or nil. The caller holds the
// lock.
func (r *retention) overLocked(now time.Time) *shelf {
	oldest := r.firstLocked(func(*shelf, *shelf) int { return 0 })
	switch {
	case oldest == nil:
		return nil
	case r.age > 0 && now.Sub(oldest.kept[0].at) >= r.age:
		return oldest
	case r.count > 0 && r.number > r.count:
		return r.firstLocked(func(a, b *shelf) int { return cmp.Compare(len(b.kept), len(a.kept)) })
	case r.bytes > 0 && r.total > r.bytes:
		return r.firstLocked(func(a, b *shelf) int { return cmp.Compare(b.bytes, a.bytes) })
	}
	return nil
}

// firstLocked returns the first shelf by order, and of several the one whose first Execution has finished first. It returns nil if there is
// none. The caller holds the lock.
func (r *retention) firstLocked(order func(a, b *shelf) int) (first *shelf) {
	for _, s := range r.shelves {
		if first == nil || cmp.Or(order(s, first), s.kept[0].at.Compare(first.kept[0].at), strings.Compare(s.kept[0].id, first.kept[0].id)) < 0 {
			first = s
		}
	}
	return first
}

// run purges whenever a bound is exceeded, and sweeps every sweepInterval, until the Engine stops.
func (r *retention) run() {
	nextSweep := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.engine.stopping:
			return
		case <-r.wake:
		case <-timer.C:
		}
		retry := r.purge()
		if now := time.Now(); !now.Before(nextSweep) {
			r.sweep()
			nextSweep = now.Add(sweepInterval)
		}
		timer.Reset(min(r.untilNext(retry), time.Until(nextSweep)))
	}
}

// untilNext returns when to purge again.
func (r *retention) untilNext(retry bool) time.Duration {
	if retry {
		return time.Minute
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.firstLocked(func(*shelf, *shelf) int { return 0 })
	if r.age <= 0 || oldest == nil {
		return sweepInterval
	}
	return max(time.Until(oldest.kept[0].at.Add(r.age)), time.Millisecond)
}

// purge deletes Executions until no bound is exceeded. It reports whether an error of the Store makes a retry necessary.
func (r *retention) purge() (retry bool) {
	for {
		select {
		case <-r.engine.stopping:
			return false
		default:
		}
		r.mu.Lock()
		over := r.overLocked(time.Now())
		if over == nil {
			r.mu.Unlock()
			return false
		}
		oldest := over.kept[0]
		r.mu.Unlock()
		if err := r.delete(oldest.id); err != nil {
			r.engine.log.Error("finished execution not deleted", "execution", oldest.id, "error", err)
			return true
		}
		r.mu.Lock()
		r.takeLocked(over)
		r.mu.Unlock()
	}
}

// takeLocked removes the first Execution of s. Only the goroutine of purge removes some. The caller holds the lock.
func (r *retention) takeLocked(s *shelf) {
	first := s.kept[0]
	s.kept[0] = finished{}
	s.kept = s.kept[1:]
	s.bytes -= first.bytes
	r.number--
	r.total -= first.bytes
	if len(s.kept) == 0 {
		delete(r.shelves, first.owner)
	}
}

func (r *retention) delete(id string) error {
	ctx, cancel := calls.StoreContext(r.engine.base)
	defer cancel()
	if err := r.engine.store.Delete(ctx, id); err != nil {
		return err
	}
	r.engine.dropBlobs(id, blobArtifacts)
	r.engine.dropInput(id)
	return nil
}

// sweep deletes leftover blobs: of an upload that a crash cut short, of an Execution that is gone, and the input of one that has finished.
func (r *retention) sweep() {
	ctx, cancel := context.WithTimeout(r.engine.base, sweepInterval)
	defer cancel()
	var leftovers []string
	for blob, err := range r.engine.blobs.List(ctx, idPrefix) {
		if err != nil {
			if r.engine.base.Err() == nil { // else the Engine has ended the list
				r.engine.log.Error("blobs not listed", "error", err)
			}
			break
		}
		if time.Since(blob.ModTime) >= minBlobAge && r.isLeftover(ctx, blob.Key) {
			leftovers = append(leftovers, blob.Key)
		}
		select {
		case <-r.engine.stopping:
			return
		default:
		}
	}
	for _, key := range leftovers {
		if err := r.engine.blobs.Delete(ctx, key); err != nil && r.engine.base.Err() == nil {
			r.engine.log.Error("leftover blob not deleted", "blob", key, "error", err)
		}
	}
}

// isLeftover reports whether no Execution needs the blob under key.
func (r *retention) isLeftover(ctx context.Context, key string) bool {
	id, kind, _ := strings.Cut(key, "/")
	if !idForm().MatchString(id) {
		return false // the Engine did not make it
	}
	r.engine.mu.Lock()
	_, live := r.engine.live[id]
	r.engine.mu.Unlock()
	if live {
		return false
	}
	rec, err := r.engine.store.Get(ctx, id)
	switch executor.CodeOf(err) {
	case executor.NotFound, executor.Purged:
		return true
	case "":
		return rec.Status.Terminal() && "/"+kind != blobArtifacts
	}
	return false
}
