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
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// The labels of prepared images.
const (
	// labelPrepared is the key: a hash of everything that the image was made from.
	labelPrepared = labelPrefix + "prepared"
	// labelRequirements is the resolved list as JSON. Only images with requirements have it.
	labelRequirements = labelPrefix + "requirements"
	// labelBytes is the number of bytes that the preparation added to its base.
	labelBytes = labelPrefix + "bytes"
)

const (
	// touchPause is the resolution of an image's last use, as the daemon records it.
	touchPause = time.Minute
	// evictGrace is how long a requested image is kept at least: a container may be about to be made from it.
	evictGrace = 2 * time.Minute
)

// preparedName returns the name of the image of key. Tagging the image again records a use, because the daemon stores the time
// of the last tag.
func preparedName(key string) string { return imagename.PreparedRepository + ":" + key[:40] }

// preparedCache holds the prepared images of the daemon. All installations that use the daemon share them.
type preparedCache struct {
	daemon *daemon
	bytes  int64
	log    *slog.Logger
	now    func() time.Time

	hits, misses, evicted, size atomic.Int64

	mu sync.Mutex
	// used is when an image was last requested, and touched when the daemon last recorded that, both by key.
	used, touched map[string]time.Time

	evicts sync.Mutex
}

func newPreparedCache(d *daemon, bytes int64, log *slog.Logger) *preparedCache {
	return &preparedCache{daemon: d, bytes: bytes, log: log, now: time.Now, used: map[string]time.Time{}, touched: map[string]time.Time{}}
}

// find looks for the image of key, and records the use.
func (c *preparedCache) find(ctx context.Context, key string) (imageFacts, bool, error) {
	c.mu.Lock()
	c.used[key] = c.now() // set first, so that evict keeps the image
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
			c.log.Debug("record the use of a prepared image", "error", err)
		}
	}
	return facts, true, nil
}

// preparedEntry is a prepared image, for eviction.
type preparedEntry struct {
	id, key string
	used    time.Time
	bytes   int64
}

// evict removes the least recently used images until the cache is within its bound. It keeps images that a container or another
// prepared image needs, and those requested within evictGrace.
func (c *preparedCache) evict(ctx context.Context) {
	c.evicts.Lock()
	defer c.evicts.Unlock()
	list, total, err := c.entries(ctx)
	if err != nil {
		c.log.Warn("list prepared images", "error", err)
		return
	}
	// The second round removes images that were the base of images removed in the first.
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
			continue // a user's image that inherited our label
		}
		e := preparedEntry{id: facts.ID, key: key, used: facts.Tagged}
		e.bytes, _ = strconv.ParseInt(facts.Labels[labelBytes], 10, 64) // a label that is not a number counts as 0
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

// order sorts the least recently used first.
func (*preparedCache) order(list []preparedEntry) {
	slices.SortFunc(list, func(a, b preparedEntry) int { return a.used.Compare(b.used) })
}

// remove removes an image unless it was requested within evictGrace, or a container or image needs it. It reports whether the
// image is gone.
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
			c.log.Warn("remove a prepared image", "image", e.id, "error", err)
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

// metrics returns the gauges and counters of the cache.
func (c *preparedCache) metrics() map[string]float64 {
	return map[string]float64{
		"prepared_hits": float64(c.hits.Load()), "prepared_misses": float64(c.misses.Load()),
		"prepared_evicted": float64(c.evicted.Load()), "prepared_bytes": float64(c.size.Load()),
	}
}
