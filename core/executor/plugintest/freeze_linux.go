package plugintest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// Freeze stops a process with SIGSTOP and returns when all of its threads have stopped. Until the thread that got the signal has had
// a processor, the other threads go on. It fails the test if the process does not stop.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	awaittest.Until(t, "the stop of process "+strconv.Itoa(pid), func() bool { return isStopped(pid) })
}

func isStopped(pid int) bool {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, file := range threads {
		raw, err := os.ReadFile(file) //nolint:gosec // a file of /proc
		if err != nil || !strings.Contains(string(raw), ") T ") {
			return false
		}
	}
	return len(threads) > 0
}
