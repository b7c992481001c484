//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
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
		"v1":             {"cache 10\nrss 1\nshmem 2\nswap 1\ntotal_cache 1000\ntotal_rss 30\ntotal_shmem 7\ntotal_swap 5\n", false, memoryStat{anonymous: 35, shared: 7, swapped: 5, cached: 993}},
		"v2":             {"anon 30\nfile 1000\nkernel 100\nkernel_stack 16\nsock 3\nshmem 7\nslab_reclaimable 60\nslab_unreclaimable 9\n", true, memoryStat{anonymous: 30, shared: 7, cached: 993, kernel: 43}},
		"v2 before 5.18": {"anon 30\nkernel_stack 16\npagetables 4\nsock 3\nshmem 7\nslab_reclaimable 60\nslab_unreclaimable 9\n", true, memoryStat{anonymous: 30, shared: 7, kernel: 32}},
		"nothing":        {"", true, memoryStat{}},
	} {
		if got := parseStat([]byte(test.text), test.v2); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// What memory.stat still says of a process that is gone is not held. Neither are files and caches, but what is swapped is.
func TestWhatProgramsHoldIsPartOfTheUsage(t *testing.T) {
	t.Parallel()
	file := func(text string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "control"))
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		_, err = f.WriteString(text)
		must(t, err)
		return f
	}
	for name, test := range map[string]struct {
		usage, stat string
		v2          bool
		want        int64
		over        bool
	}{
		"v1":                {"165", "total_rss 60\ntotal_shmem 100\ntotal_cache 105\n", false, 60, true},
		"v1, one is gone":   {"115", "total_rss 60\ntotal_shmem 100\ntotal_cache 105\n", false, 10, false},
		"v1, swapped":       {"115", "total_rss 10\ntotal_shmem 100\ntotal_cache 105\ntotal_swap 50\n", false, 60, true},
		"v1, swapped files": {"65", "total_rss 60\ntotal_shmem 0\ntotal_cache 5\ntotal_swap 100\n", false, 60, true},
		"v2":                {"170", "anon 55\nshmem 100\nfile 105\nkernel 5\n", true, 60, true},
		"v2, one is gone":   {"120", "anon 55\nshmem 100\nfile 105\nkernel 5\n", true, 15, false},
	} {
		b := &MemoryBound{limit: 50, disk: 200, group: &Group{v2: test.v2}, usage: file(test.usage), stat: file(test.stat)}
		if got, over := b.held(DiskUse{bytes: 100}); got != test.want || over != test.over {
			t.Errorf("%s: programs hold %d, too much: %t; want %d, %t", name, got, over, test.want, test.over)
		}
	}
}

// On a busy machine a process that exits may wait for a processor. Only one that does not get on is given up, and one that begins to
// exit later costs patience at once: programs that always have one would never be held to their limit.
func TestAnExitThatWaitsForAProcessorCostsNoPatience(t *testing.T) {
	t.Parallel()
	b := &MemoryBound{patience: 2}
	runs, hangs := processMemory{leaving: true, runs: true}, processMemory{leaving: true}
	for range 10 {
		if !b.waits(map[int]processMemory{1: runs}) {
			t.Fatal("a process that exits and waits for a processor was given up")
		}
	}
	for n := range 2 {
		if !b.waits(map[int]processMemory{1: hangs, 2: runs}) {
			t.Fatalf("patience ended after %d looks", n)
		}
	}
	if b.waits(map[int]processMemory{1: hangs, 2: runs}) {
		t.Error("processes that exit one after another are waited for without end")
	}
	if b.waitAnew(); !b.waits(map[int]processMemory{2: runs}) || b.waits(nil) {
		t.Error("patience does not begin anew, or there is some without a process that exits")
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
