//go:build linux

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// boundOf returns a MemoryBound of processes. They need no control group, because nothing of their memory is read from one.
func boundOf(t *testing.T, pids ...int) *MemoryBound {
	t.Helper()
	var list strings.Builder
	for _, pid := range pids {
		list.WriteString(strconv.Itoa(pid) + "\n")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(list.String()), 0o600))
	return &MemoryBound{group: &Group{Memory: dir}, patience: exitLooks}
}

func started(t *testing.T, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = attr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // likewise
	})
	return cmd
}

func over() bool { return true }

// Between the look and the choice the process that held the memory may end. Then no other one pays for it.
func TestNothingIsKilledForMemoryThatIsBack(t *testing.T) {
	t.Parallel()
	pid := started(t, nil).Process.Pid
	b := boundOf(t, pid)
	b.kill(func() bool { return false })
	if b.kills.Load() != 0 || !memoryOf(pid).held {
		t.Fatal("a process is killed, although programs do not hold too much any more")
	}
	b.kill(over)
	if b.kills.Load() != 1 || b.victim != pid {
		t.Errorf("%d processes are killed, and the last was %d", b.kills.Load(), b.victim)
	}
}

// The kernel takes back the memory of a process that exits, and does not tell how much that is. So another process looks larger.
func TestAProcessThatExitsIsSeenUntilItsMemoryIsBack(t *testing.T) {
	t.Parallel()
	thread := func(statm, state, files string) string {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"statm": statm, "stat": "7 (a) " + state + " 1 7 7", "status": "Name:\ta\nState:\t" + state + "\nFDSize:\t" + files + "\nGroups:\t\n",
		} {
			must(t, os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600))
		}
		return dir
	}
	const none, some = "0 0 0 0 0 0 0", "300 2 1 1 0 1 0"
	for name, c := range map[string]struct {
		want    processMemory
		threads []string
	}{
		"holds its memory":                  {processMemory{held: true, resident: 2 * int64(os.Getpagesize())}, []string{thread(some, "S", "64")}},
		"its first thread has ended":        {processMemory{held: true, resident: 2 * int64(os.Getpagesize())}, []string{thread(none, "Z", "0"), thread(some, "S", "64")}},
		"waits while it gives memory back":  {processMemory{leaving: true}, []string{thread(none, "D", "64")}},
		"runs while it gives memory back":   {processMemory{leaving: true, runs: true}, []string{thread(none, "R", "64")}},
		"one of two gives memory back":      {processMemory{leaving: true}, []string{thread(none, "Z", "0"), thread(none, "D", "64")}},
		"has given back its files, too":     {processMemory{}, []string{thread(none, "S", "0")}},
		"runs, has given back its files":    {processMemory{}, []string{thread(none, "R", "0")}},
		"is a zombie":                       {processMemory{}, []string{thread(none, "Z", "64")}},
		"is nearly no zombie any more":      {processMemory{}, []string{thread(none, "X", "64")}},
		"is gone":                           {processMemory{}, nil},
		"is gone when its thread is opened": {processMemory{}, []string{t.TempDir()}},
	} {
		root := t.TempDir()
		for i, dir := range c.threads {
			must(t, os.Rename(dir, filepath.Join(root, strconv.Itoa(7+i))))
		}
		if got := memoryIn(root); got != c.want {
			t.Errorf("a process that %s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The first process of a PID namespace cannot end before the others are waited for. It has no memory then, so nothing is waited for.
func TestAnInitThatWaitsForItsProcessesIsNotWaitedFor(t *testing.T) {
	needtest.NeedRoot(t)
	leaving := started(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}).Process
	pin := startedIn(t, leaving.Pid) // it has a parent outside
	other := started(t, nil).Process.Pid
	must(t, leaving.Kill())
	awaittest.Until(t, "the end of a killed process's memory", func() bool { return memoryOf(leaving.Pid) == processMemory{} })
	b := boundOf(t, other, leaving.Pid)
	b.kill(over)
	if b.kills.Load() != 1 || b.victim != other {
		t.Errorf("%d processes are killed beside one that has no memory any more, and the last was %d", b.kills.Load(), b.victim)
	}
	_ = pin.Wait() // it was killed
	_, err := leaving.Wait()
	must(t, err)
	if m := memoryOf(leaving.Pid); m != (processMemory{}) {
		t.Errorf("a process that is gone: %+v", m)
	}
}

// startedIn starts a process in the PID namespace of another one.
func startedIn(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	enter := func(pid int) {
		f, err := os.Open(procfs(pid) + "/ns/pid")
		must(t, err)
		must(t, unix.Setns(int(f.Fd()), unix.CLONE_NEWPID)) //nolint:gosec // a descriptor
		must(t, f.Close())
	}
	enter(pid)
	defer enter(os.Getpid())
	return started(t, nil)
}
