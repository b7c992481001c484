//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// controlFiles makes a folder with empty files of these names, as the kernel makes control files.
func controlFiles(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Most machines that run tests have no swap, and either version of control groups. So this test reads what is written.
func TestTheLimitsOfAGroupAreWritten(t *testing.T) {
	t.Parallel()
	all := executor.Limits{MemoryBytes: 64 << 20, PIDs: 30, CPUShares: 2048}
	v1Memory := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	for name, c := range map[string]struct {
		files  []string
		group  func(dir string) *Group
		limits executor.Limits
		want   string
	}{
		"v2": {
			[]string{"memory.max", "memory.swap.max", "pids.max", "cpu.weight"},
			func(dir string) *Group { return &Group{Memory: dir, v2: true, pids: dir, cpu: dir} }, all,
			"cpu.weight=79 memory.max=67108864 memory.swap.max=0 pids.max=31",
		},
		"v2 without limits": {
			[]string{"memory.max", "memory.swap.max", "pids.max", "cpu.weight"},
			func(dir string) *Group { return &Group{Memory: dir, v2: true, pids: dir, cpu: dir} }, executor.Limits{},
			"cpu.weight= memory.max= memory.swap.max= pids.max=",
		},
		"v2 without swap": {
			[]string{"memory.max"}, func(dir string) *Group { return &Group{Memory: dir, v2: true} }, all, "memory.max=67108864",
		},
		"v1": {
			append(v1Memory, "pids.max", "cpu.shares"),
			func(dir string) *Group { return &Group{Cgroups: Cgroups{"cpu": dir}, Memory: dir, pids: dir} }, all,
			"cpu.shares=2048 memory.limit_in_bytes=67108864 memory.memsw.limit_in_bytes=67108864 pids.max=31",
		},
		"v1 without swap": {v1Memory[:1], func(dir string) *Group { return &Group{Memory: dir} }, all, "memory.limit_in_bytes=67108864"},
	} {
		dir := controlFiles(t, c.files...)
		if err := c.group(dir).limit(c.limits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := written(t, dir); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
	if err := (&Group{Memory: t.TempDir(), v2: true}).limit(all); err == nil {
		t.Error("a limit of memory that cannot be written is no error")
	}
	for shares, want := range map[int64]string{2: "1", 1024: "39", 262144: "10000", 1 << 40: "10000"} {
		dir := controlFiles(t, "cpu.weight")
		if err := (&Group{cpu: dir}).limit(executor.Limits{CPUShares: shares}); err != nil || written(t, dir) != "cpu.weight="+want {
			t.Errorf("%d shares: %s, want %s: %v", shares, written(t, dir), want, err)
		}
	}
}

// written returns what the files of dir contain.
func written(t *testing.T, dir string) string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, e.Name()+"="+string(raw))
	}
	return strings.Join(found, " ")
}
