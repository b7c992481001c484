//go:build linux

package runner

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// startWaiting starts a runner as PID 1 in which an interpreter waits.
func startWaiting(t *testing.T) *testRunner {
	t.Helper()
	ahead := &protocol.Ahead{Interpreter: "/usr/bin/python3", Path: python("").Path}
	return startInsideWith(t, ahead, func(c *client) io.ReadWriteCloser { return c })
}

// hasStarted waits until the interpreter has left its first folder, which is the last step of its start.
func (r *testRunner) hasStarted(t *testing.T) {
	t.Helper()
	awaittest.Until(t, "the start of an interpreter that waits", func() bool {
		return slices.ContainsFunc(sandbox.ChildrenOf(r.cmd.Process.Pid), func(pid int) bool {
			dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
			return err == nil && dir == "/"
		})
	})
}

func TestTheFirstProgramOfAContainerFindsItsInterpreterStarted(t *testing.T) {
	r := startWaiting(t)
	const code = `
import os, sys
print(os.getpid() > 1, os.getppid(), os.getpgid(0) == os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd")), sys.argv, __file__ == os.getcwd() + "/main.py")
print(len([n for n in os.listdir("/proc") if n.isdigit()]))
print(open("/proc/self/cmdline").read().split("\0"), "PYTHONPATH" in open("/proc/self/environ").read())
`
	start := python(code)
	start.Args = []string{"a b"}
	const want = `True 1 True ['0', '1', '2', '3'] ['main.py', 'a b'] True
2
['/usr/bin/python3', 'main.py', 'a b', ''] False`
	r.wants(t, start, "fork succeeded exit 0 "+want)
	if _, rec := r.run(t, start, RunInput{}); (<-rec.started).Start != executor.StartExec || strings.TrimSpace(rec.stdout()) != want {
		t.Errorf("the second program: %s%s", rec.stdout(), rec.stderr())
	}
}

func TestAnInterpreterThatWaitsIsNotThereForOthers(t *testing.T) {
	const others = "print(len([n for n in __import__('os').listdir('/proc') if n.isdigit()]))"
	options, path, inspects := python(others), python(others), python("import gc\n"+others)
	options.Env = map[string]string{"PYTHONOPTIMIZE": "1"}
	path.Path += ":/nonexistent"
	small := python(others)
	small.Limits.MemoryBytes = 31 << 20
	for name, start := range map[string]Start{"variables": options, "another path": path, "little memory": small, "it inspects": inspects, "a command": shell("set -- /proc/[0-9]*; echo $#")} {
		t.Run(name, func(t *testing.T) {
			r := startWaiting(t)
			r.hasStarted(t)
			r.wants(t, start, "exec succeeded exit 0 2") // the runner and the program
		})
	}
	t.Run("nobody", func(t *testing.T) { startWaiting(t) }) // its clean-up sees that the runner ends well
	t.Run("a session", func(t *testing.T) {
		s := &sessionRunner{startWaiting(t)}
		must(t, s.OpenSession(t.Context(), pythonSession()))
		s.wants(t, "import os; len([n for n in os.listdir('/proc') if n.isdigit()])", "", "2")
		must(t, s.CloseSession(t.Context()))
	})
	t.Run("an interpreter that is not there", func(t *testing.T) {
		r := startInsideWith(t, &protocol.Ahead{Interpreter: "/nonexistent", Path: "/bin"}, func(c *client) io.ReadWriteCloser { return c })
		r.wants(t, python(others), "exec succeeded exit 0 2")
	})
	t.Run("code at the start", func(t *testing.T) {
		// A virtual environment whose package leaves a process at each start.
		venv := workRoot(t) + "/venv"
		if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", "--symlinks", venv).CombinedOutput(); err != nil { //nolint:gosec // a test's own
			t.Fatalf("%v\n%s", err, out)
		}
		site, err := filepath.Glob(venv + "/lib/python3*/site-packages")
		must(t, err)
		must(t, os.WriteFile(site[0]+"/a.pth", []byte("import os; os.fork() == 0 and os.execv('/bin/sleep', ['sleep', '99'])\n"), 0o644)) //nolint:gosec // programs read it
		start := python(others)
		start.Interpreter, start.Env = []string{venv + "/bin/python"}, map[string]string{"A": "b"}
		r := startInsideWith(t, &protocol.Ahead{Interpreter: start.Interpreter[0], Path: start.Path}, func(c *client) io.ReadWriteCloser { return c })
		_, first := r.run(t, start, RunInput{})
		_, second := r.run(t, start, RunInput{})
		if (<-first.started).Start != executor.StartExec || first.stdout() != second.stdout() {
			t.Errorf("the first program sees %s and the second %s processes", first.stdout(), second.stdout())
		}
	})
}

func TestAnInterpreterThatWaitsHasTheLimitsOfItsProgram(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		full := python(`
try:
    with open("large", "wb") as f:
        while True: f.write(bytes(1 << 20))
except OSError as e: print(e.errno)
`)
		full.Limits.DiskBytes = 8 << 20
		startWaiting(t).wants(t, full, "fork succeeded exit 0 27") // EFBIG
	})
	t.Run("time", func(t *testing.T) {
		loop := python("import signal\nsignal.signal(15, lambda *a: None)\nprint('up', flush=True)\nwhile True: pass")
		if got := startWaiting(t).how(t, loop, said{"up", agent.LimitTimeout}, said{"up", agent.LimitGrace}); got != "fork timed_out SIGKILL run/exhausted up" {
			t.Error(got)
		}
	})
	t.Run("memory", func(t *testing.T) {
		large := python("x = bytearray(1 << 30)\nx[::4096] = bytes(1 << 18)")
		large.Limits.MemoryBytes = insideMemory
		r := startWaiting(t)
		res, rec := r.run(t, large, RunInput{})
		if how := (<-rec.started).Start; how != executor.StartFork || res.Status != executor.StatusOutOfMemory && !strings.Contains(rec.stderr(), "MemoryError") {
			t.Errorf("%s %s %s", how, describe(res), rec.stderr())
		}
	})
}

// waitingSession starts a runner as PID 1 in which the interpreter of a session waits, and returns the interpreter's number.
func waitingSession(t *testing.T) (*sessionRunner, int) {
	t.Helper()
	ahead := &protocol.Ahead{Interpreter: pythonSession().Interpreter[0], Path: pythonSession().Path, Session: true}
	r := startInsideWith(t, ahead, func(c *client) io.ReadWriteCloser { return c })
	var all []int
	awaittest.Until(t, "the start of an interpreter that waits", func() bool {
		all = sandbox.ChildrenOf(r.cmd.Process.Pid)
		return len(all) == 1
	})
	return &sessionRunner{r}, all[0]
}

func TestASessionOfAContainerFindsItsInterpreterStarted(t *testing.T) {
	s, pid := waitingSession(t)
	start := pythonSession()
	start.Limits.DiskBytes = 8 << 20
	must(t, s.OpenSession(t.Context(), start))
	if got := sandbox.ChildrenOf(s.cmd.Process.Pid); len(got) != 1 || got[0] != pid {
		t.Errorf("the processes are %v, and %d waited", got, pid)
	}
	const state = `import os, sys, resource
print(sys.argv, sys.path[0] == "", os.getppid(), os.getcwd() == os.environ["HOME"], sorted(vars(sys.modules["__main__"])), resource.getrlimit(resource.RLIMIT_FSIZE))`
	_, rec := s.cell(t, state)
	s.wants(t, "x = 1", "", "")
	must(t, s.RestartSession(t.Context(), false))
	if got := sandbox.ChildrenOf(s.cmd.Process.Pid); len(got) != 1 || got[0] == pid {
		t.Errorf("after the restart the processes are %v, and %d was there before", got, pid)
	}
	s.wants(t, state, rec.stdout(), "")
	must(t, s.CloseSession(t.Context()))
}

func TestAnInterpreterThatWaitsForASessionIsNotThereForOthers(t *testing.T) {
	variables, path, shell := pythonSession(), pythonSession(), pythonSession()
	variables.Env = map[string]string{"A": "b"}
	path.Path += ":/nonexistent"
	shell.Language, shell.Interpreter = executor.LanguageShell, []string{"/bin/sh"}
	for name, start := range map[string]SessionStart{"variables": variables, "another path": path, "a shell": shell} {
		t.Run(name, func(t *testing.T) {
			s, pid := waitingSession(t)
			must(t, s.OpenSession(t.Context(), start))
			if got := sandbox.ChildrenOf(s.cmd.Process.Pid); len(got) != 1 || got[0] == pid {
				t.Errorf("the processes are %v, and %d waited", got, pid)
			}
			must(t, s.CloseSession(t.Context()))
		})
	}
	t.Run("nobody", func(t *testing.T) { waitingSession(t) }) // its clean-up sees that the runner ends well
	t.Run("a program", func(t *testing.T) {
		s, _ := waitingSession(t)
		s.testRunner.wants(t, python("print(len([n for n in __import__('os').listdir('/proc') if n.isdigit()]))"), "exec succeeded exit 0 2")
	})
	t.Run("a session after its end", func(t *testing.T) {
		s, pid := waitingSession(t)
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		must(t, s.OpenSession(t.Context(), pythonSession()))
		s.wants(t, "1 + 1", "", "2")
		must(t, s.CloseSession(t.Context()))
	})
}
