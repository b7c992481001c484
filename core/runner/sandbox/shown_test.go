//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProcessorsThatMayBeUsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bound cpuBound
		want  string
	}{
		{cpuBound{cpus: []int{0}}, "0"},
		{cpuBound{cpus: []int{0, 1, 2, 3, 7, 9, 10}}, "0-3,7,9-10"},
		{cpuBound{cpus: []int{4, 5, 6, 7}, quota: 150_000, period: 100_000}, "4-5"},
		{cpuBound{cpus: []int{4, 5}, quota: 800_000, period: 100_000}, "4-5"},
	} {
		if got := strings.TrimSpace(c.bound.online()); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.bound, got, c.want)
		}
	}
	b := cpuBound{}
	for _, q := range [][2]int64{{-1, 100_000}, {0, 0}, {300_000, 100_000}, {50_000, 20_000}, {400_000, 100_000}} {
		b.lower(q[0], q[1])
	}
	if b.quota != 50_000 || b.period != 20_000 {
		t.Errorf("the least of the bounds is %d per %d", b.quota, b.period)
	}
}

func TestMemoryIsShownAsALimitedMachine(t *testing.T) {
	t.Parallel()
	const host = "MemTotal:       24684092 kB\nMemFree:         1234567 kB\nMemAvailable:   20000000 kB\nCached:          9999999 kB\nSwapTotal:       4194304 kB\nHugePages_Total:       3\nHugepagesize:       2048 kB\n"
	const want = "MemTotal:         524288 kB\nMemFree:          524288 kB\nMemAvailable:     524288 kB\nCached:                0 kB\nSwapTotal:             0 kB\nHugePages_Total:        0\nHugepagesize:       2048 kB\n"
	if got := meminfo(host, 512<<20); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := meminfo(host, 0); got != host {
		t.Errorf("without a limit\n%s", got)
	}
	if got := meminfo(host, 1<<50); !strings.HasPrefix(got, "MemTotal:       24684092 kB\nMemFree:         1234567 kB\n") {
		t.Errorf("a limit beyond the machine's memory\n%s", got)
	}
}

func TestALimitIsShownInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, makeShown(dir, cpuBound{cpus: []int{0, 1, 2}, quota: 150_000, period: 100_000}))
	file, err := os.Open(filepath.Join(dir, "cgroup/memory.max")) // as a mount holds it
	must(t, err)
	defer file.Close() //nolint:errcheck // nothing was written
	must(t, showMemory(dir, 1<<20))
	for name, want := range map[string]string{
		"cgroup/memory.max": "1048576", "cgroup/memory/memory.max": "1048576", "cgroup/memory/memory.limit_in_bytes": "1048576", "cgroup/cpu.max": "150000 100000", "online": "0-1",
		"cgroup/cpu/cpu.cfs_quota_us": "150000", "cgroup/cpu/cpu.cfs_period_us": "100000",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: got %q, %v; want %s", name, got, err, want)
		}
	}
	var text [16]byte
	if n, _ := file.ReadAt(text[:], 0); string(text[:n]) != "1048576\n" {
		t.Errorf("through a mount: %q", text[:n])
	}
}
