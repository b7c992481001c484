//go:build linux

package runner

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// readLimits prints what programs read about their limits of memory and processors.
const readLimits = `
import os
have = dict(line.split(":", 1) for line in open("/proc/meminfo"))
print([int(have[n].split()[0]) >> 10 for n in ("MemTotal", "MemAvailable", "SwapTotal")], end=" ")
read = lambda name: open("/sys/fs/cgroup/" + name).read().strip()
print(int(read("memory.max")) >> 20, read("cpu.max"), int(read("memory/memory.limit_in_bytes")) >> 20, end=" ")
print(os.cpu_count() == len(os.sched_getaffinity(0)))
for name in ("/proc/meminfo", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/new", "/sys/devices/system/cpu/online"):
    try: open(name, "w"); print("wrote", name)
    except OSError: pass
`

func boxLimits(t *testing.T) {
	r := boxed(t, nil)
	for _, mb := range []int64{512, 300, 300, 512} {
		start := python(readLimits)
		start.Limits.MemoryBytes = mb << 20
		r.prints(t, start, fmt.Sprintf("[%d, %d, 0] %d max 100000 %d True", mb, mb, mb, mb))
	}
	start := python("print(open('/sys/fs/cgroup/memory.max').read().strip(), int(open('/proc/meminfo').read().split()[1]) > 0)")
	start.Limits.MemoryBytes = 0
	r.prints(t, start, "max True")
}

func TestAForkReadsTheLimitsOfItsExecution(t *testing.T) {
	r := boxed(t, nil)
	for _, mb := range []int64{512, 300, 512} {
		start := forked(readLimits)
		start.Limits.MemoryBytes = mb << 20
		if got, want := r.asFork(t, start), fmt.Sprintf("fork succeeded exit 0 [%d, %d, 0] %d max 100000 %d True", mb, mb, mb, mb); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestTheJDKReadsItsLimits shows that each installed JDK chooses its heap by the limit, which it does only if /proc/self/mountinfo
// has control groups.
func TestTheJDKReadsItsLimits(t *testing.T) {
	_, rec := boxed(t, nil).run(t, python("print({line.split(':', 2)[2].strip() for line in open('/proc/self/cgroup')} == {'/'})"), RunInput{})
	needtest.Need(t, rec.stdout() == "True\n", "cgroup namespaces", "a program sees the names of its control groups, and the JDK looks for them below /sys/fs/cgroup")
	for _, java := range jdks(t) {
		start := shell(java + " -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2 == \"MaxHeapSize\" {print $4 / 1048576}'")
		start.Limits.MemoryBytes = 512 << 20
		boxed(t, nil).prints(t, start, "128")
	}
}

// jdks lists the installed JDKs whose configuration lies below /usr.
func jdks(t *testing.T) (list []string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", "ls -d /usr/lib/jvm/*/bin/java").Output()
	for path := range strings.FieldsSeq(string(out)) {
		if info, err := os.Lstat(strings.TrimSuffix(path, "/bin/java")); err == nil && info.IsDir() {
			list = append(list, path)
		}
	}
	needtest.Need(t, err == nil && len(list) > 0, "java", "a JDK below /usr/lib/jvm")
	return list
}
