package dockerbackend

import (
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTheCacheKeepsWhatWasUsedLast(t *testing.T) {
	b := openBackend(t, map[string]any{"prepare": map[string]any{"cache_bytes": 3 << 20, "network": "none"}})
	forgetPrepared(t, b)
	now := time.Now()
	clock := func() time.Time { return now }
	b.images.cache.now = clock
	base, err := b.images.ensure(t.Context(), b.config.DefaultImage, func(executor.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	nobody := func(executor.Progress) {}
	var made []imageInfo
	for range 2 {
		info, failure, err := b.images.prepare(t.Context(), base, executor.Spec{PreCommands: []string{"head -c 2000000 /dev/urandom >/opt/x # " + random()}}, nobody)
		if failure != nil || err != nil {
			t.Fatal(failure, err)
		}
		made = append(made, info)
	}
	there := func(n int) bool {
		_, err := b.daemon.image(t.Context(), made[n].ID)
		return err == nil
	}
	b.images.prepares.Wait()
	if !there(0) || !there(1) {
		t.Error("evicted an image within evictGrace")
	}
	// The daemon may have images of others. Only those of this test are evicted here.
	list, total, err := b.images.cache.entries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := func(e preparedEntry) bool {
		return slices.ContainsFunc(made, func(i imageInfo) bool { return i.ID == e.id })
	}
	for _, e := range list {
		if !own(e) {
			total -= e.bytes
		}
	}
	if total < 4_000_000 || total > 5_000_000 {
		t.Errorf("the total of two images of 2 MB is %d", total)
	}
	now = now.Add(time.Hour)
	for _, e := range list {
		if e.id == made[0].ID && !b.images.cache.remove(t.Context(), e) {
			t.Error("an unused image was not evicted")
		}
	}
	if there(0) || !there(1) {
		t.Error("evicted an image other than the least recently used one")
	}
}

func TestTheLeastRecentlyUsedGoesFirst(t *testing.T) {
	t.Parallel()
	c := newPreparedCache(nil, 0, nil)
	at := time.Now()
	list := []preparedEntry{{key: "b", used: at.Add(time.Second)}, {key: "a", used: at}, {key: "c", used: at.Add(time.Minute)}}
	c.order(list)
	if list[0].key != "a" || list[1].key != "b" || list[2].key != "c" {
		t.Errorf("got %v", list)
	}
}
