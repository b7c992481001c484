//go:build linux

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

const (
	byMemory = "config.memory_mb"
	byDisk   = "config.disk_mb"
)

// limitNamed is the limit that a Result names; empty: none.
func limitNamed(res executor.Result) string {
	if f := res.Failure; f != nil && f.Code == executor.Exhausted && f.Phase == executor.PhaseRun && strings.HasPrefix(f.Message, f.Field+": ") {
		return f.Field
	}
	return ""
}

// separateLimits is a Config where memory and disk have limits of their own.
func separateLimits(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t)
	needtest.Need(t, cfg.Tmpfs, needtest.Root, "the right to mount")
	needtest.Need(t, sandbox.Cgroups(cfg.Cgroups).Enforces("memory"), needtest.Cgroup, "a memory control group")
	return cfg
}

// largeFile is a file of the machine, larger than the limits of these tests.
func largeFile(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "large")
	//nolint:gosec // a program reads it
	if err := os.WriteFile(name, make([]byte, 160<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, up := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(up, 0o755); err != nil { //nolint:gosec // likewise
			t.Fatal(err)
		}
	}
	return name
}

const hold = `
import os, mmap, sys, time
def files(path, mb):
    with open(path, "wb") as f:
        for _ in range(mb): f.write(b"x" * (1 << 20))
def fill(m, mb):
    for i in range(mb): m[i << 20:(i + 1) << 20] = b"x" * (1 << 20)
def wait(s=1e6):
    print("held", flush=True); time.sleep(s)
`

// Memory and disk are two limits: 48 MB of memory and 256 MB of disk.
func TestMemoryAndDiskAreTwoLimits(t *testing.T) {
	cfg := separateLimits(t)
	r := startRunner(t, cfg)
	large := largeFile(t)
	for _, c := range []struct{ name, code, want, limit string }{
		{"files take no memory", `files("a", 200); wait(0.3)`, "succeeded exit 0", ""},
		{"files for temporary use take no memory", `files("/tmp/a", 100); files("/dev/shm/b", 100); wait(0.3)`, "succeeded exit 0", ""},
		{"many small files take no memory", `
for i in range(12000): open(f"f{i}", "w").write("x")
wait(0.3)`, "succeeded exit 0", ""},
		{"what is read from the machine takes no memory", `
with open("` + large + `", "rb") as f:
    while f.read(1 << 20): pass
wait(0.3)`, "succeeded exit 0", ""},
		{"memory is bounded", `x = b"x" * (100 << 20); wait()`, "out_of_memory SIGKILL run/exhausted", byMemory},
		{"memory beside files is bounded", `files("a", 150); x = b"x" * (60 << 20); wait()`, "out_of_memory SIGKILL run/exhausted", byMemory},
		{"shared memory is bounded", `m = mmap.mmap(-1, 100 << 20); fill(m, 100); wait()`, "out_of_memory SIGKILL run/exhausted", byMemory},
		{"files without a folder are bounded", `
m = os.memfd_create("x")
for _ in range(100): os.write(m, b"x" * (1 << 20))
wait()`, "out_of_memory SIGKILL run/exhausted", byMemory},
		{"shared memory beside files is bounded", `files("a", 100); m = mmap.mmap(-1, 80 << 20); fill(m, 80); wait()`, "out_of_memory SIGKILL run/exhausted", byMemory},
		{"the memory of the kernel is bounded", `
m = mmap.mmap(-1, 60 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
m.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(0, 60 << 30, 2 << 20): m[i]
wait()`, "out_of_memory SIGKILL run/exhausted", byMemory},
		{"memory of several processes is bounded together", `
for i in range(8):
    if os.fork() == 0:
        x = b"x" * (20 << 20); time.sleep(1e6)
sys.exit(0 if [os.wait()[1] for _ in range(4)] == [9] * 4 else 1)`, "succeeded exit 0", ""},
		{"a child that is ended is not the program", `
if (pid := os.fork()) == 0:
    x = b"x" * (100 << 20); time.sleep(1e6)
sys.exit(0 if os.waitpid(pid, 0)[1] == 9 else 1)`, "succeeded exit 0", ""},
		{"a program that fails for its child names the limit", `
if (pid := os.fork()) == 0:
    x = b"x" * (100 << 20); time.sleep(1e6)
sys.exit(os.waitpid(pid, 0)[1])`, "failed exit 9 run/exhausted", byMemory},
		{"a program that fails by itself names no limit", `sys.exit(3)`, "failed exit 3", ""},
		{"memory of a thread that outlives the main thread is bounded", `
import ctypes, threading
def take():
    while open(f"/proc/self/task/{os.getpid()}/statm").read()[0] != "0": time.sleep(0.01)
    x = b"x" * (100 << 20); wait()
threading.Thread(target=take).start()
ctypes.CDLL(None).syscall(60, 0)  # exit`, "out_of_memory SIGKILL run/exhausted", byMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := python(hold + c.code)
			start.Limits.MemoryBytes, start.Limits.DiskBytes = 48<<20, 256<<20
			start.Reach = []string{large}
			res, rec := r.run(t, start, RunInput{})
			if got := describe(res); got != c.want || limitNamed(res) != c.limit {
				t.Errorf("got %q and the limit %q, want %q and %q\n%s", got, limitNamed(res), c.want, c.limit, rec.stderr())
			}
		})
	}
}

// What was made ahead for other limits does not hold the next program to those.
func TestLimitsThatChangeFromProgramToProgram(t *testing.T) {
	cfg := separateLimits(t)
	r := startRunner(t, cfg)
	for _, memory := range []int64{32, 200, 32} {
		want, sleep := "succeeded exit 0", "0.3"
		if memory < 100 {
			want, sleep = "out_of_memory SIGKILL run/exhausted", "1e6"
		}
		start := python(hold + `x = b"x" * (100 << 20)` + "\ntime.sleep(" + sleep + ")")
		start.Limits.MemoryBytes, start.Limits.DiskBytes = memory<<20, 256<<20
		if res, _ := r.run(t, start, RunInput{}); describe(res) != want {
			t.Errorf("%d MB: %s, want %s", memory, describe(res), want)
		}
	}
}

func TestAFullDiskIsNamed(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, cfg.Tmpfs, needtest.Root, "the right to mount")
	r := startRunner(t, cfg)
	for _, c := range []struct{ name, code, want, limit string }{
		{"by a program that fails for it", `files("a", 20)`, "failed exit 1 run/exhausted", byDisk},
		{"by its files for temporary use", `files("/tmp/a", 20)`, "failed exit 1 run/exhausted", byDisk},
		{"by the number of files", `
for i in range(100000): open(f"f{i}", "w").close()`, "failed exit 1 run/exhausted", byDisk},
		{"by a file that is made too large", `
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.truncate(os.open("a", os.O_CREAT | os.O_WRONLY), 1 << 30)`, "failed SIGXFSZ run/exhausted", byDisk},
		{"not by a program that succeeds", `
try: files("a", 20)
except OSError: pass`, "succeeded exit 0", ""},
		{"not by one that has room", `files("a", 2); sys.exit(1)`, "failed exit 1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := python(hold + c.code)
			start.Limits.DiskBytes = 8 << 20
			res, rec := r.run(t, start, RunInput{})
			if got := describe(res); got != c.want || limitNamed(res) != c.limit {
				t.Errorf("got %q and the limit %q, want %q and %q\n%s", got, limitNamed(res), c.want, c.limit, rec.stderr())
			}
		})
	}
}

// A disk that was full while the program ran is named, too, although there is room again.
func TestADiskThatWasFullIsNamed(t *testing.T) {
	r := startRunner(t, separateLimits(t))
	awaittest.Ladder(t, time.Second, func(full time.Duration) (executor.Result, bool) { // until the runner looks at the disk
		start := python(hold + `
try: files("a", 20)
except OSError: pass
time.sleep(` + fmt.Sprint(full.Seconds()) + `); os.unlink("a"); sys.exit(1)`)
		start.Limits.MemoryBytes, start.Limits.DiskBytes = 48<<20, 8<<20
		res, _ := r.run(t, start, RunInput{})
		return res, limitNamed(res) == byDisk
	})
}

func TestTheLimitsOfASession(t *testing.T) {
	cfg := separateLimits(t)
	start := pythonSession()
	start.Limits.MemoryBytes, start.Limits.DiskBytes = 48<<20, 128<<20
	r := openSessionWith(t, cfg, start)
	wants := func(start Start, want, limit string) {
		t.Helper()
		res, rec := r.run(t, start, RunInput{})
		if got := describe(res); got != want || limitNamed(res) != limit {
			t.Errorf("got %q and the limit %q, want %q and %q\n%s", got, limitNamed(res), want, limit, rec.stderr())
		}
	}
	wants(cellOf(hold+`files("a", 100)`), "succeeded exit 0", "")
	wants(cellOf(`1/0`), "failed exit 1", "")
	wants(beside("yes xxxxxxxxxxxxxxx | head -c 20000000 > b"), "succeeded exit 0", "")
	wants(cellOf(`files("c", 100)`), "failed exit 1 run/exhausted", byDisk)
	wants(cellOf("os.unlink('c'); os.unlink('b')\n"+`files("c", 1)`), "succeeded exit 0", "")
	wants(cellOf(`1/0`), "failed exit 1", "")
	wants(beside("exec /usr/bin/python3 -c 'import time; x = b\"x\" * (100 << 20); time.sleep(1e6)'"), "out_of_memory SIGKILL run/exhausted", byMemory)
	wants(cellOf(`"still here"`), "succeeded exit 0", "")
	wants(beside("exit 4"), "failed exit 4", "")
	wants(cellOf(`1/0`), "failed exit 1", "")
	wants(cellOf(`x = b"x" * (100 << 20); time.sleep(1e6)`), "out_of_memory SIGKILL run/exhausted", byMemory)
	if err := r.RestartSession(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	wants(cellOf(`
import os, threading, time
def take():
    global x
    while not os.path.exists("go"): time.sleep(0.01)
    x = b"x" * (100 << 20)
threading.Thread(target=take).start()`), "succeeded exit 0", "")
	if _, err := r.WriteFile(t.Context(), executor.File{Path: "go", SizeBytes: 0}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, "the end of an interpreter that takes too much between two cells", func() bool {
		res, _ := r.run(t, cellOf("1"), RunInput{})
		return res.SessionState == executor.SessionStateLost || res.Status == executor.StatusOutOfMemory
	})
}
