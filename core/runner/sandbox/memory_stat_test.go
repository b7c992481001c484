//go:build linux

package sandbox

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestWhatMemoryStatSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		v2   bool
		want memoryStat
	}{
		"v1":             {"cache 10\nrss 1\nshmem 2\nswap 1\ntotal_cache 1000\ntotal_rss 30\ntotal_shmem 7\ntotal_swap 5\n", false, memoryStat{anonymous: 35, shared: 7}},
		"v2":             {"anon 30\nfile 1000\nkernel 100\nkernel_stack 16\nsock 3\nshmem 7\nslab_reclaimable 60\nslab_unreclaimable 9\n", true, memoryStat{anonymous: 30, shared: 7, kernel: 43}},
		"v2 before 5.18": {"anon 30\nkernel_stack 16\npagetables 4\nsock 3\nshmem 7\nslab_reclaimable 60\nslab_unreclaimable 9\n", true, memoryStat{anonymous: 30, shared: 7, kernel: 32}},
		"nothing":        {"", true, memoryStat{}},
	} {
		if got := parseStat([]byte(test.text), test.v2); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestAGroupHasRoomForTheFilesOfATmpfs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tmpfs              bool
		memory, disk, want int64
	}{{true, 5, 3, 8}, {false, 5, 3, 5}, {true, 0, 3, 0}, {true, 5, 0, 5}} {
		got := GroupLimits(protocol.Config{Tmpfs: c.tmpfs}, executor.Limits{MemoryBytes: c.memory, DiskBytes: c.disk})
		if got.MemoryBytes != c.want || got.DiskBytes != c.disk {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

// Near the limit the looks are close together, and while nothing changes they are not.
func TestThePausesBetweenLooks(t *testing.T) {
	t.Parallel()
	b := &MemoryBound{limit: 1 << 30}
	if got := b.next(10 << 20); got != longPause {
		t.Errorf("far from the limit: %s", got)
	}
	if got := b.next(1<<30 - 1<<20); got != shortPause {
		t.Errorf("near the limit: %s", got)
	}
	for want := 2 * shortPause; want < longPause; want *= 2 {
		if got := b.next(1<<30 - 1<<20); got != want {
			t.Errorf("idle near the limit: %s, want %s", got, want)
		}
	}
	if got := b.next(1<<30 - 1<<20); got != longPause {
		t.Errorf("idle for long near the limit: %s", got)
	}
	if got := b.next(1<<30 - 2<<20); got != shortPause {
		t.Errorf("after a change: %s", got)
	}
}
