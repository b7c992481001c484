package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// sweepInterval is how often blobs without a Record are looked for, and strayBlob how old one must be: a younger one may
// belong to an Execution that is being made.
const (
	sweepInterval = time.Hour
	strayBlob     = 10 * time.Minute
)

// kept is a finished Execution as retention sees it.
type kept struct {
	id    string
	at    time.Time
	bytes int64
}

func keptOf(rec executor.Record) kept {
	k := kept{id: rec.ID, at: rec.FinishedAt, bytes: rec.LogBytes + rec.SpecBytes}
	if rec.Result != nil && rec.ArtifactsBlob != "" {
		for _, a := range rec.Result.Artifacts {
			k.bytes += a.SizeBytes + 1024 // headers and padding of a tar
		}
	}
	return k
}

// retention is the janitor: it deletes finished Executions beyond the bounds, the longest finished first.
type retention struct {
	engine *Engine
	age    time.Duration
	most   int
	bytes  int64
	wake   chan struct{}

	mu sync.Mutex
	// kept is in the order of their end.
	kept  []kept
	total int64
}

func newRetention(e *Engine, c config.Retention) *retention {
	return &retention{
		engine: e,
		age:    time.Duration(c.MaxAgeSeconds * float64(time.Second)),
		most:   c.MaxExecutions,
		bytes:  c.MaxBytes,
		wake:   make(chan struct{}, 1),
	}
}

// add takes what was finished before this life of the server.
func (r *retention) add(list []kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(list, r.kept...)
	slices.SortFunc(r.kept, func(a, b kept) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.id, b.id)) })
	for _, k := range list {
		r.total += k.bytes
	}
}

// ended takes an Execution that has just finished.
func (r *retention) ended(id string) {
	ctx, cancel := storeContext(r.engine.base)
	defer cancel()
	rec, err := r.engine.store.Get(ctx, id)
	if err != nil {
		r.engine.log.Warn("finished execution not counted", "execution", id, "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := keptOf(rec)
	r.kept = append(r.kept, k)
	r.total += k.bytes
	if r.overLocked(time.Now()) || len(r.kept) == 1 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// overLocked reports whether a bound is exceeded. The caller holds the lock.
func (r *retention) overLocked(now time.Time) bool {
	if len(r.kept) == 0 {
		return false
	}
	return r.most > 0 && len(r.kept) > r.most || r.bytes > 0 && r.total > r.bytes ||
		r.age > 0 && now.Sub(r.kept[0].at) >= r.age
}

// run deletes what is over the bounds whenever something is, and looks for stray blobs now and then.
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

// untilNext is how long nothing expires.
func (r *retention) untilNext(retry bool) time.Duration {
	if retry {
		return time.Minute
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.age <= 0 || len(r.kept) == 0 {
		return sweepInterval
	}
	return max(time.Until(r.kept[0].at.Add(r.age)), time.Millisecond)
}

// purge deletes what is over the bounds. retry: the Store did not let it.
func (r *retention) purge() (retry bool) {
	for {
		select {
		case <-r.engine.stopping:
			return false
		default:
		}
		r.mu.Lock()
		if !r.overLocked(time.Now()) {
			r.mu.Unlock()
			return false
		}
		oldest := r.kept[0]
		r.mu.Unlock()
		if err := r.delete(oldest.id); err != nil {
			r.engine.log.Error("finished execution not deleted", "execution", oldest.id, "error", err)
			return true
		}
		r.mu.Lock()
		// Only this goroutine takes from the front.
		r.kept[0] = kept{}
		r.kept = r.kept[1:]
		r.total -= oldest.bytes
		r.mu.Unlock()
	}
}

func (r *retention) delete(id string) error {
	ctx, cancel := storeContext(r.engine.base)
	defer cancel()
	if err := r.engine.store.Delete(ctx, id); err != nil {
		return err
	}
	r.engine.dropBlobs(id, blobArtifacts, blobWorkspace, blobStdin)
	return nil
}

// sweep deletes blobs that belong to nothing: of an upload that a crash cut short, of an Execution that is gone, inputs
// of one that has finished.
func (r *retention) sweep() {
	ctx, cancel := context.WithTimeout(r.engine.base, sweepInterval)
	defer cancel()
	var stray []string
	for blob, err := range r.engine.blobs.List(ctx, idPrefix) {
		if err != nil {
			if r.engine.base.Err() == nil { // else nobody wants the list any more
				r.engine.log.Error("blobs not listed", "error", err)
			}
			break
		}
		if time.Since(blob.ModTime) >= strayBlob && r.strayed(ctx, blob.Key) {
			stray = append(stray, blob.Key)
		}
		select {
		case <-r.engine.stopping:
			return
		default:
		}
	}
	for _, key := range stray {
		if err := r.engine.blobs.Delete(ctx, key); err != nil && r.engine.base.Err() == nil {
			r.engine.log.Error("stray blob not deleted", "blob", key, "error", err)
		}
	}
}

// strayed reports whether nobody needs the blob under key.
func (r *retention) strayed(ctx context.Context, key string) bool {
	id, kind, _ := strings.Cut(key, "/")
	if !idForm.MatchString(id) {
		return false // not ours
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
