package dockerbackend

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The labels of prepared images.
const (
	// labelPrepared is the key: what went into it.
	labelPrepared = labelPrefix + "prepared"
	// labelRequirements is the resolved list, as JSON; only of images with requirements.
	labelRequirements = labelPrefix + "requirements"
	// labelBytes is what the preparation added to its base.
	labelBytes = labelPrefix + "bytes"
)

const (
	// touchPause is how exact the last use of an image is.
	touchPause = time.Minute
	// evictGrace is how long an image that was asked for stays: a container of it may be about to be made.
	evictGrace = 2 * time.Minute
)

// preparedName is the name of the image of key. Giving it again records a use: the daemon remembers when it was last given.
func preparedName(key string) string { return preparedRepository + ":" + key[:40] }

// preparedCache are the prepared images of the daemon. Every python-executor of the daemon shares them.
type preparedCache struct {
	daemon *daemon
	bytes  int64
	log    *slog.Logger
	now    func() time.Time

	hits, misses, evicted, size atomic.Int64

	mu sync.Mutex
	// used is when an image was last asked for, by key, and touched when the daemon was last told.
	used, touched map[string]time.Time

	evicts sync.Mutex
}

func newPreparedCache(d *daemon, bytes int64, log *slog.Logger) *preparedCache {
	return &preparedCache{daemon: d, bytes: bytes, log: log, now: time.Now, used: map[string]time.Time{}, touched: map[string]time.Time{}}
}

// find looks for the image of key, and records the use.
func (c *preparedCache) find(ctx context.Context, key string) (imageFacts, bool, error) {
	c.mu.Lock()
	c.used[key] = c.now() // before it is looked for, so that it is not evicted between
	c.mu.Unlock()
	facts, err := c.daemon.image(ctx, preparedName(key))
	if executor.CodeOf(err) == executor.NotFound || err == nil && facts.Labels[labelPrepared] != key {
		c.mu.Lock()
		delete(c.used, key)
		c.mu.Unlock()
		return imageFacts{}, false, nil
	}
	if err != nil {
		return imageFacts{}, false, err
	}
	c.mu.Lock()
	late := c.now().Sub(c.touched[key]) > touchPause
	if late {
		c.touched[key] = c.now()
	}
	c.mu.Unlock()
	if late {
		if err := c.daemon.tag(ctx, facts.ID, preparedName(key)); err != nil {
			c.log.Debug("the use of a prepared image was not recorded", "error", err)
		}
	}
	return facts, true, nil
}

// preparedEntry is one image, for eviction.
type preparedEntry struct {
	id, key string
	used    time.Time
	bytes   int64
}

// evict brings the cache below its bound, least recently used first. What a container or another prepared image needs, and
// what was asked for a moment ago, stays.
func (c *preparedCache) evict(ctx context.Context) {
	c.evicts.Lock()
	defer c.evicts.Unlock()
	list, total, err := c.entries(ctx)
	if err != nil {
		c.log.Warn("prepared images cannot be listed", "error", err)
		return
	}
	// A second round for what others were made of that went in the first.
	for range 2 {
		list = slices.DeleteFunc(list, func(e preparedEntry) bool {
			if total <= c.bytes || ctx.Err() != nil || !c.remove(ctx, e) {
				return false
			}
			total -= e.bytes
			return true
		})
	}
	c.size.Store(total)
}

func (c *preparedCache) entries(ctx context.Context) (list []preparedEntry, total int64, err error) {
	ids, err := c.daemon.images(ctx, map[string]string{labelPrepared: ""})
	if err != nil {
		return nil, 0, err
	}
	for _, id := range ids {
		facts, err := c.daemon.image(ctx, id)
		if executor.CodeOf(err) == executor.NotFound {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		key := facts.Labels[labelPrepared]
		if len(key) != 64 || !slices.Contains(facts.RepoTags, preparedName(key)) {
			continue // somebody made an image of his own out of one of ours
		}
		e := preparedEntry{id: facts.ID, key: key, used: facts.Tagged}
		e.bytes, _ = strconv.ParseInt(facts.Labels[labelBytes], 10, 64) // our own; else it counts nothing
		c.mu.Lock()
		if used := c.used[e.key]; used.After(e.used) {
			e.used = used
		}
		c.mu.Unlock()
		list = append(list, e)
		total += e.bytes
	}
	c.order(list)
	return list, total, nil
}

// order puts the least recently used first.
func (*preparedCache) order(list []preparedEntry) {
	slices.SortFunc(list, func(a, b preparedEntry) int { return a.used.Compare(b.used) })
}

// remove removes an image that nobody needs; false: somebody does.
func (c *preparedCache) remove(ctx context.Context, e preparedEntry) bool {
	c.mu.Lock()
	used := c.used[e.key]
	c.mu.Unlock()
	if c.now().Sub(used) < evictGrace || c.now().Sub(e.used) < evictGrace {
		return false
	}
	err := c.daemon.removeImage(ctx, e.id)
	if code := executor.CodeOf(err); err != nil && code != executor.NotFound {
		if code != executor.Conflict {
			c.log.Warn("a prepared image cannot be removed", "image", e.id, "error", err)
		}
		return false
	}
	c.mu.Lock()
	delete(c.used, e.key)
	delete(c.touched, e.key)
	c.mu.Unlock()
	c.evicted.Add(1)
	c.log.Info("prepared image evicted", "image", e.id, "bytes", e.bytes)
	return true
}

// metrics are the cache's gauges and counters.
func (c *preparedCache) metrics() map[string]float64 {
	return map[string]float64{
		"prepared_hits": float64(c.hits.Load()), "prepared_misses": float64(c.misses.Load()),
		"prepared_evicted": float64(c.evicted.Load()), "prepared_bytes": float64(c.size.Load()),
	}
}
