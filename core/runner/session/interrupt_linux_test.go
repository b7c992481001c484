package session

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// shellWith starts a bash that runs a script, in a group of its own, and returns it as an interpreter with this driver. The script's
// first line of output comes before.
func shellWith(t *testing.T, script string, driver drivers.Driver) *Interpreter {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait() // killed
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	i := newInterpreter()
	i.PID, i.session = cmd.Process.Pid, &Session{Driver: driver}
	return i
}

// below returns the children of a process by the names of their programs, when there are so many and all are as wanted.
func below(t *testing.T, pid int, want func(sandbox.ProcessStat) bool, names ...string) map[string]int {
	t.Helper()
	found := map[string]int{}
	awaittest.Until(t, fmt.Sprintf("the children %v", names), func() bool {
		clear(found)
		for _, child := range sandbox.ChildrenOf(pid) {
			if now := sandbox.ReadProcess(child); want(now) {
				found[now.Name] = child
			}
		}
		return !slices.ContainsFunc(names, func(name string) bool { return found[name] == 0 })
	})
	return found
}

func anyState(sandbox.ProcessStat) bool  { return true }
func stopped(p sandbox.ProcessStat) bool { return p.State == 'T' }

// interrupted reports whether a stopped process has SIGINT pending.
func interrupted(t *testing.T, pid int) bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	must(t, err)
	_, after, _ := strings.Cut(string(raw), "ShdPnd:")
	pending, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
	must(t, err)
	return pending&(1<<(unix.SIGINT-1)) != 0
}

func stop(t *testing.T, pid int) {
	t.Helper()
	must(t, unix.Kill(pid, unix.SIGSTOP))
	awaittest.Until(t, "the stop", func() bool { return sandbox.ReadProcess(pid).State == 'T' })
}

// TestAPipelineIsInterruptedWhenAllOfItRuns: a fork that has not executed its program yet drops the signal. If the others were
// interrupted then, it would end by itself, and the shell would go on with the next command.
func TestAPipelineIsInterruptedWhenAllOfItRuns(t *testing.T) {
	i := shellWith(t, "echo up; sleep 1000000 | { kill -STOP $BASHPID; exec cat; }", drivers.Driver{Signal: unix.SIGINT})
	fork := below(t, i.PID, stopped, "bash")["bash"]
	sleep := below(t, i.PID, anyState, "sleep")["sleep"]
	stop(t, sleep)
	stop(t, i.PID)
	n, waited := NewInterruption(i, 1, time.Now().Add(-time.Hour)), 0
	n.waits = func() {
		if waited++; waited > 1 {
			return
		}
		if !interrupted(t, i.PID) {
			t.Error("the shell was not interrupted before the look for its children")
		}
		if interrupted(t, fork) || interrupted(t, sleep) {
			t.Error("a program was interrupted while another one was between fork and exec")
		}
		must(t, unix.Kill(fork, unix.SIGCONT))
		below(t, i.PID, anyState, "cat")
		stop(t, fork)
	}
	n.Send()
	if waited == 0 || !interrupted(t, fork) || !interrupted(t, sleep) {
		t.Errorf("waited %d times; interrupted: %t, %t", waited, interrupted(t, fork), interrupted(t, sleep))
	}
}

// TestAShellThatRunsIsNoFork: a subshell that computes is interrupted, although it executes nothing.
func TestAShellThatRunsIsNoFork(t *testing.T) {
	i := shellWith(t, "echo up; (while :; do :; done); :", drivers.Driver{Signal: unix.SIGINT})
	loop := below(t, i.PID, anyState, "bash")["bash"]
	awaittest.Until(t, "the use of the processor", func() bool { return !mayExec(loop) })
	stop(t, loop)
	n := NewInterruption(i, 1, time.Now().Add(-time.Hour))
	n.waits = func() { t.Error("it is waited for") }
	n.Send()
	if !interrupted(t, loop) {
		t.Error("it was not interrupted")
	}
}

// TestADriverThatIsToldHearsOfAnInterruptBeforeItsChildren: V8 aborts if a cell fails, for the end of a child for one, in the moment in
// which it is terminated.
func TestADriverThatIsToldHearsOfAnInterruptBeforeItsChildren(t *testing.T) {
	i := shellWith(t, "echo up; sleep 1000000; :", drivers.Driver{Told: true})
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	i.control = os.NewFile(uintptr(fds[0]), "control") //nolint:gosec // a descriptor
	driver := os.NewFile(uintptr(fds[1]), "driver")    //nolint:gosec // a descriptor
	defer i.control.Close()
	defer driver.Close()
	sleep := below(t, i.PID, anyState, "sleep")["sleep"]
	stop(t, sleep)
	stop(t, i.PID)
	n := NewInterruption(i, 7, time.Now().Add(-time.Hour))
	n.Send()
	line, err := bufio.NewReader(driver).ReadString('\n')
	must(t, err)
	if !strings.Contains(line, `"interrupt"`) || !strings.Contains(line, "7") {
		t.Errorf("the driver is told %q", line)
	}
	if interrupted(t, sleep) || interrupted(t, i.PID) {
		t.Error("a process is interrupted before the driver has had its time")
	}
	n.Send()
	if !interrupted(t, sleep) || interrupted(t, i.PID) {
		t.Error("the second time the child is interrupted, and the interpreter is not")
	}
}
