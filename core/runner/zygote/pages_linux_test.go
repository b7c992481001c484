package zygote

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// faults returns how many page faults a process has had so far (minflt of proc(5), stat).
func faults(t *testing.T, stat string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Fields(stat[strings.LastIndexByte(stat, ')'):])[8])
	must(t, err)
	return n
}

func TestACopyHasItsPagesBeforeItsRequest(t *testing.T) {
	t.Parallel()
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	needtest.Need(t, unix.Madvise(page, unix.MADV_POPULATE_WRITE) == nil, "linux", "the kernel has no MADV_POPULATE_WRITE (Linux 5.14)")
	must(t, unix.Munmap(page))
	cfg := usual(t.TempDir())
	must(t, os.WriteFile(filepath.Join(cfg.Dir, "main.py"), []byte(`print(open("/proc/self/stat").read())`), 0o600))
	s, err := start(t, cfg).Next(awaittest.Context(t))
	must(t, err)
	waiting, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	must(t, err)
	p, err := beginIn(t, s, nil)
	must(t, err)
	out, _, _ := p.finish(t)
	before := faults(t, string(waiting))
	if after := faults(t, out) - before; before < 100 || after > before/3 {
		t.Errorf("%d page faults before the request, %d after it", before, after)
	}
}
