package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// shell starts a shell that runs script, and returns its process when it has ended. Nobody waits for it before the end of the test.
func shell(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script) //nolint:gosec // a test's own
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it fails as it should
	var info unix.Siginfo
	must(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil))
	return cmd.Process.Pid
}

// descriptor returns a descriptor of a process.
func descriptor(t *testing.T, pid int) int {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0) // from Linux 5.3 on
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(pidfd)) })
	return pidfd
}

// telling returns a process that has ended with the exit code 7, and has told a peak of its memory of 9,000 KiB.
func telling(t *testing.T) int {
	t.Helper()
	pid := shell(t, "exit 7")
	must(t, unix.Prlimit(pid, unix.RLIMIT_RSS, &unix.Rlimit{Cur: 9000<<10 | 1, Max: unix.RLIM_INFINITY}, nil))
	return pid
}

// counting returns a group whose control group counts threads.
func counting(t *testing.T, threads string) *Group {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pids.current")
	must(t, os.WriteFile(name, []byte(threads+"\n"), 0o600))
	f, err := os.Open(name) //nolint:gosec // a test's own
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	name = filepath.Join(t.TempDir(), "cpuacct.usage")
	must(t, os.WriteFile(name, []byte("1000\n"), 0o600))
	used, err := os.Open(name) //nolint:gosec // a test's own
	must(t, err)
	t.Cleanup(func() { must(t, used.Close()) })
	return &Group{count: f, usedCPU: used, Cgroups: Cgroups{"cpuacct": t.TempDir()}}
}

func TestTheStatusOfAProcessThatExitsIsKnown(t *testing.T) {
	t.Parallel()
	if status, _, ok := exitOf(os.Getpid()); ok {
		t.Errorf("this process exits with the status %#x", status)
	}
	for script, want := range map[string]syscall.WaitStatus{"exit 0": 0, "exit 1": 1 << 8, "exit 120": 120 << 8} {
		if status, _, ok := exitOf(shell(t, script)); !ok || status != want {
			t.Errorf("%s: status %#x, %v; want %#x", script, status, ok, want)
		}
	}
	if status, _, ok := exitOf(shell(t, "kill -9 $$")); ok {
		t.Errorf("a killed process exits with the status %#x", status)
	}
	if _, peak, _ := exitOf(shell(t, "ulimit -m 9000; exit 7")); peak != 0 {
		t.Errorf("a limit of a program's own is a peak of %d bytes", peak)
	}
	if size, traceable := ResidentSize(os.Getpid()); size < 1<<20 || size > 4<<30 || !traceable {
		t.Errorf("this test has %d bytes, traceable %v", size, traceable)
	}
}

// The exit of a copy is told while the copy is alive for those that wait for it.
func TestAnExitIsSeenEarly(t *testing.T) {
	t.Parallel()
	ended, alive := telling(t), descriptor(t, os.Getpid())
	r := &Reaper{copy: ended, group: counting(t, "1"), Main: make(chan Exit, 1)}
	r.Soon(alive)
	select {
	case end := <-r.Main:
		if end.Status != 7<<8 || end.MaxRSS != 9000<<10 || !end.Early || !end.Alone || end.At.IsZero() {
			t.Errorf("its end is %+v", end)
		}
	default:
		t.Fatal("it is not seen")
	}
	if !r.seesExit(alive) || len(r.Main) > 0 {
		t.Error("it is told again, or forgotten")
	}
}

func TestOtherExitsAreNotSeenEarly(t *testing.T) {
	t.Parallel()
	self := os.Getpid()
	ended, alive := telling(t), descriptor(t, self)
	unmeasured := counting(t, "1")
	unmeasured.usedCPU = nil
	for name, c := range map[string]struct {
		r     *Reaper
		pidfd int
	}{
		"another thread is there":        {&Reaper{copy: ended, group: counting(t, "2")}, alive},
		"nobody counts threads":          {&Reaper{copy: ended, group: &Group{}}, alive},
		"it has not told its peak":       {&Reaper{copy: shell(t, "exit 7"), group: counting(t, "1")}, alive},
		"its CPU time is not known":      {&Reaper{copy: ended, group: unmeasured}, alive},
		"it does not exit":               {&Reaper{copy: self, group: counting(t, "1")}, alive},
		"its number may be another's":    {&Reaper{copy: ended, group: counting(t, "1")}, descriptor(t, ended)},
		"it has been waited for":         {&Reaper{copy: ended, group: counting(t, "1"), ended: true}, alive},
		"it is not a copy, or is hidden": {&Reaper{group: counting(t, "1")}, alive},
	} {
		c.r.Main = make(chan Exit, 1)
		if c.r.seesExit(c.pidfd) || len(c.r.Main) > 0 {
			t.Errorf("%s: it is seen", name)
		}
	}
}

// The main thread of a process may end before the others, which may go on as another program.
func TestAMainThreadThatEndsAloneIsNotAnExit(t *testing.T) {
	t.Parallel()
	const code = `
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
`
	cmd := exec.Command("/usr/bin/python3", "-c", code)
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	})
	pid := cmd.Process.Pid
	for memory := []byte("1"); string(memory) != "0"; {
		if t.Context().Err() != nil {
			t.Fatal("the main thread does not end")
		}
		f, err := readStat(procfs(pid))
		must(t, err)
		memory = f[statMemory]
	}
	if status, _, ok := exitOf(pid); ok || !IsExiting(pid) {
		t.Errorf("it exits with the status %#x", status)
	}
}
