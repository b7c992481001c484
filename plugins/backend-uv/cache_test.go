package uvbackend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func testCache(t *testing.T, bytes int64) *cache {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "environments"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := newCache(dir, bytes, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = removeAll(dir) })
	return c
}

// fill adds an environment of about that many bytes to c. It was last used the duration ago before now.
func fill(t *testing.T, c *cache, key string, bytes int, ago time.Duration) {
	t.Helper()
	held, err := tryLock(c.lockPath(key), unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	temp := filepath.Join(t.TempDir(), "env")
	for _, dir := range []string{"bin", "lib/python3.11/site-packages"} {
		if err := os.MkdirAll(filepath.Join(temp, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(temp, "bin", "python"), []byte(strings.Repeat("x", bytes)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(key, temp, marker{Requirements: []string{}}); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-ago)
	if err := os.Chtimes(c.lockPath(key), when, when); err != nil {
		t.Fatal(err)
	}
}

func (c *cache) keys() string {
	var keys []string
	list, _ := c.entries()
	for _, e := range list {
		keys = append(keys, e.key)
	}
	return strings.Join(keys, " ")
}

func TestTheLeastRecentlyUsedIsEvictedFirst(t *testing.T) {
	t.Parallel()
	c := testCache(t, 2500)
	fill(t, c, "old", 1000, 3*time.Hour)
	fill(t, c, "older", 1000, 4*time.Hour)
	fill(t, c, "new", 1000, time.Hour)
	env, ok := c.open("older") // makes it the most recently used
	if !ok {
		t.Fatal("not there")
	}
	env.release()
	c.evict(t.Context(), "")
	if got := c.keys(); got != "new older" {
		t.Errorf("left are %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "old.*")); len(left) != 0 {
		t.Errorf("leftovers of an evicted environment: %q", left)
	}
}

func TestWhatIsInUseOrJustBuiltIsNotEvicted(t *testing.T) {
	t.Parallel()
	c := testCache(t, 10)
	fill(t, c, "used", 1000, 3*time.Hour)
	fill(t, c, "built", 1000, 2*time.Hour)
	fill(t, c, "idle", 1000, time.Hour)
	env, ok := c.open("used")
	if !ok {
		t.Fatal("not there")
	}
	c.evict(t.Context(), "built")
	if got := c.keys(); got != "built used" {
		t.Errorf("left are %q", got)
	}
	env.release()
	c.evict(t.Context(), "")
	if got := c.keys(); got != "" {
		t.Errorf("left are %q", got)
	}
}

func TestUvsOwnCacheGoesBeforeAnyEnvironment(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1500)
	fill(t, c, "env", 1000, time.Hour)
	if err := os.MkdirAll(c.wheel, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.wheel, "wheel"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	building, err := tryLock(c.wheel+".lock", unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	c.evict(t.Context(), "env")
	if !isFile(filepath.Join(c.wheel, "wheel")) {
		t.Error("uv's cache was emptied while a build used it")
	}
	building.Close()
	c.evict(t.Context(), "")
	if isFile(filepath.Join(c.wheel, "wheel")) || c.keys() != "env" {
		t.Errorf("environments %q are left, want only env and an empty cache of uv", c.keys())
	}
}

func TestNoMoreIsEvictedThanMustBe(t *testing.T) {
	t.Parallel()
	c := testCache(t, 2000)
	fill(t, c, "env", 1000, time.Hour)
	for n := range 2 {
		if err := errors.Join(os.MkdirAll(c.packages(n), 0o700), os.WriteFile(filepath.Join(c.packages(n), "wheel"), make([]byte, 1000), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c.evict(t.Context(), "")
	if _, first, _ := measure(c.packages(0)); first != 0 || !isFile(filepath.Join(c.packages(1), "wheel")) || c.keys() != "env" {
		t.Errorf("environments %q and %d bytes of the first package cache are left, want env, 0 bytes and the second package cache", c.keys(), first)
	}
	c.bytes = 10
	ended, end := context.WithCancelCause(t.Context())
	end(nil)
	if c.evict(ended, ""); c.keys() != "env" {
		t.Error("an eviction went on after the end of its context")
	}
}

func TestAKilledBuildIsRemovedAndARunningOneIsNot(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1<<20)
	fill(t, c, "there", 1000, time.Hour)
	for _, key := range []string{"dead", "alive", "there"} {
		if err := os.MkdirAll(filepath.Join(c.dir, ".tmp-"+key+"-123", "env"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.keys(); got != "there" {
		t.Errorf("the environments are %q, want no temporary folder", got)
	}
	held, err := tryLock(c.lockPath("alive"), unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	c.clean()
	left, _ := filepath.Glob(filepath.Join(c.dir, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	// The time of an environment's lock file is that of its last use.
	if got := strings.Join(left, " "); got != ".tmp-alive-123 alive.lock there there.lock" {
		t.Errorf("left are %q", got)
	}
	c.cleanKey("dead")
	if !isFolder(filepath.Join(c.dir, ".tmp-alive-123")) {
		t.Error("the folder of another build was removed")
	}
	c.cleanKey("alive")
	if isFolder(filepath.Join(c.dir, ".tmp-alive-123")) {
		t.Error("the leftover of a killed build of the same key was not removed")
	}
}
