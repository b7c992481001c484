//go:build linux

package runner

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// enterInside makes this process what a container runtime would start: PID 1 of its namespace with a /proc of its own, an
// unprivileged user, in the control groups that are named; then it executes the runner.
func enterInside(groups []string) error {
	runtime.LockOSThread()
	for _, dir := range groups {
		if err := setControl(dir, "cgroup.procs", "0"); err != nil {
			return err
		}
	}
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		syscall.Setgroups(nil),
		syscall.Setresgid(insideUID, insideUID, insideUID),
		syscall.Setresuid(insideUID, insideUID, insideUID),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
	); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", []string{"test", "runner", "--stdio", agent.OwnMounts}, nil)
}

// insideUID is nobody else's: other tests kill all that runs as testUID, and in a container the runner would be among them.
const insideUID = 61299

// Limits of the container's control groups.
const (
	insideMemory = 256 << 20 // also the race detector's, of a runner among thirty interpreters
	insidePIDs   = protocol.OwnThreads + 30
)

// startInside starts a runner as PID 1 of something like a container, and speaks to it.
func startInside(t *testing.T) *testRunner {
	t.Helper()
	return startInsideWith(t, nil, func(c *client) io.ReadWriteCloser { return c })
}

// startInsideWith speaks to it over what wrap makes of the connection. ahead is Config.Ahead.
func startInsideWith(t *testing.T, ahead *protocol.Ahead, wrap func(*client) io.ReadWriteCloser) *testRunner {
	t.Helper()
	needtest.NeedRoot(t) // for a pid namespace
	slot := testCgroups(t)
	for _, dir := range slices.Compact(slices.Sorted(maps.Values(slot))) {
		for _, set := range []struct {
			file  string
			value int64
		}{
			{"memory.limit_in_bytes", insideMemory}, {"memory.memsw.limit_in_bytes", insideMemory}, // in this order
			{"memory.max", insideMemory}, {"memory.swap.max", 0}, {"pids.max", insidePIDs},
		} {
			if err := setControl(dir, set.file, strconv.FormatInt(set.value, 10)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	cfg := Config{WorkRoot: workRoot(t), UseWorkRoot: true, Temp: workRoot(t), Silence: time.Minute, Ahead: ahead}
	for _, dir := range []string{cfg.WorkRoot, cfg.Temp} {
		if err := os.Chown(dir, insideUID, insideUID); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"inside"}, slices.Compact(slices.Sorted(maps.Values(slot)))...)...) //nolint:gosec // ourselves
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET}
	board := startSwitchboard(t, cmd)
	conn, err := NewConn(wrap(board.attach(-1, -1)), cfg)
	if err != nil {
		t.Fatalf("hello: %v\n%s", err, &board.err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the runner did not end well: %v\n%s", err, &board.err)
		}
	})
	if conn.reply.PID != 1 {
		t.Fatalf("the runner is process %d", conn.reply.PID)
	}
	return &testRunner{Conn: conn, cmd: cmd, stderr: &board.err}
}

// isAlive runs something small after an attack.
func (r *testRunner) isAlive(t *testing.T) {
	t.Helper()
	if res, rec := r.run(t, shell("echo alive"), RunInput{}); describe(res) != "succeeded exit 0" || rec.stdout() != "alive\n" {
		t.Errorf("afterwards: %s %q\n%s", describe(res), rec.stdout(), r.stderr)
	}
}

func TestTheFirstProcessWithstandsEverySignal(t *testing.T) {
	r := startInside(t)
	res, rec := r.run(t, python(`
import os, ctypes, time, threading
libc = ctypes.CDLL(None, use_errno=True)
for s in range(1, 65): os.kill(1, s)
info = (ctypes.c_int * 32)()
for s in range(1, 65):
    for code in (-1, -2, -3, -4, -5, -6, -60):  # SI_QUEUE and its kind: not "from kill", which Go asks for
        info[0], info[2], info[4] = s, code, os.getpid()
        libc.syscall(129, 1, s, info)
        for t in os.listdir("/proc/1/task"): libc.syscall(297, 1, int(t), s, info)
for t in os.listdir("/proc/1/task"):
    for s in range(1, 65): libc.syscall(234, 1, int(t), s)
fd = libc.syscall(434, 1, 0)
for s in range(1, 65): libc.syscall(424, fd, s, 0, 0)
def flood(signals):
    end = time.time() + 1
    while time.time() < end:
        for s in signals: os.kill(1, s)
ts = [threading.Thread(target=flood, args=(x,)) for x in ([17], [23], [11, 15, 3, 34])]
[t.start() for t in ts]; [t.join() for t in ts]
print("sent")
`), RunInput{})
	if describe(res) != "succeeded exit 0" || rec.stdout() != "sent\n" {
		t.Errorf("%s %q %q\n%s", describe(res), rec.stdout(), rec.stderr(), r.stderr)
	}
	r.isAlive(t)
}

func TestAProgramReachesNothingOfTheFirstProcess(t *testing.T) {
	r := startInside(t)
	res, rec := r.run(t, python(`
import os, ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
def call(name, n, *args):
    if libc.syscall(n, *args) >= 0: print("worked:", name)
def access(path, mode):
    try: open(path, mode).close()
    except OSError: return
    print("opened:", path)
for base in ["/proc/1"] + ["/proc/1/task/" + t for t in os.listdir("/proc/1/task")]:
    for name in ("mem", "environ", "maps", "auxv", "io", "stack", "syscall", "oom_score_adj", "pagemap"): access(base + "/" + name, "rb" if name != "oom_score_adj" else "w")
    for fd in range(20): access(base + "/fd/%d" % fd, "wb"); access(base + "/fd/%d" % fd, "rb")
    for name in ("fd", "fdinfo", "map_files", "root", "cwd", "ns"):
        try: os.listdir(base + "/" + name); print("listed:", base, name)
        except OSError: pass
for pid in [1] + [int(t) for t in os.listdir("/proc/1/task")]:
    call("ptrace attach", 101, 16, pid, 0, 0)
    call("ptrace seize", 101, 0x4206, pid, 0, 0)
    buf = ctypes.create_string_buffer(64)
    class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
    mine, theirs = Vec(ctypes.addressof(buf), 64), Vec(0x400000, 64)
    call("process_vm_readv", 310, pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    call("process_vm_writev", 311, pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    call("kcmp", 312, os.getpid(), pid, 0, 1, 1)
    for name, change in {
        "prlimit": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100)),
        "affinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
        "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "nice for all": lambda: os.setpriority(os.PRIO_USER, 0, 19),
    }.items():
        try: change(); print("changed:", pid, name)
        except (PermissionError, ProcessLookupError): pass  # a thread may have ended
for change in (lambda: resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (100, 100)), lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
               lambda: os.setpriority(os.PRIO_PROCESS, os.getpid(), 19)): change()
fd = libc.syscall(434, 1, 0)
for n in range(20): call("pidfd_getfd", 438, fd, n, 0)
for n in os.listdir("/proc/self/fd"):
    link = os.readlink("/proc/self/fd/" + n) if os.path.lexists("/proc/self/fd/" + n) else ""
    if int(n) > 2 and link and not link.startswith(("/proc", "anon_inode:[pidfd]")): print("inherited:", n, link)
for n in range(3, 1024):
    try: os.write(n, b"\0\0\0\2\110{}")
    except OSError: pass
print(open("/proc/self/oom_score_adj").read().strip(), open("/proc/1/oom_score_adj").read().strip() < "1000")
`), RunInput{})
	if describe(res) != "succeeded exit 0" || rec.stdout() != "1000 True\n" {
		t.Errorf("%s\n%s%s\n%s", describe(res), rec.stdout(), rec.stderr(), r.stderr)
	}
	r.isAlive(t)
}

func TestAFullMemoryEndsTheProgramAndNotTheFirstProcess(t *testing.T) {
	r := startInside(t)
	needsWatched(t)
	start := python("held = []\nwhile True: held.append(bytearray(4 << 20))")
	start.Limits.MemoryBytes = 1 << 30 // the container's is less
	for range 2 {
		res, _ := r.run(t, start, RunInput{})
		if res.Status != executor.StatusOutOfMemory || res.Signal != "SIGKILL" {
			t.Errorf("%s\n%s", describe(res), r.stderr)
		}
		if res.PeakMemoryBytes < insideMemory/2 || res.PeakMemoryBytes > 2*insideMemory {
			t.Errorf("peak %d", res.PeakMemoryBytes)
		}
	}
	r.isAlive(t)
	if res, _ := r.run(t, shell("kill -9 $$"), RunInput{}); res.Status != executor.StatusFailed {
		t.Errorf("a kill of its own: %s", describe(res))
	}
}

func needsWatched(t *testing.T) {
	t.Helper()
	for _, file := range []string{"memory/memory.oom_control", "memory.stat"} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", file)); err == nil {
			return
		}
	}
	needtest.Need(t, false, needtest.Cgroup, "a memory control group to read")
}

// setControl writes to a file of a control group, which it does not create.
func setControl(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func TestTheFirstProcessNeedsNoneThatAForkBombCouldTake(t *testing.T) {
	r := startInside(t)
	start := python(`
import os, time, threading
def bomb():
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
                while True:
                    try: os.fork()
                    except OSError: os.write(1, b"x" * 3000)
        except OSError: os.write(2, b"full\n")
print("go", flush=True)
bomb()
`)
	start.Limits.OutputBytes = 1 << 20
	start.Stdin = true
	res, rec := r.toldWith(t, start, RunInput{Stdin: io.LimitReader(&zeros{}, 4<<20)}, said{"full\n", agent.LimitTimeout})
	if res.Status != executor.StatusTimedOut || !strings.HasPrefix(rec.stdout(), "go\n") {
		t.Errorf("%s\n%s", describe(res), r.stderr)
	}
	r.isAlive(t)
}

func TestNothingOutlivesTheProgramOfAFirstProcess(t *testing.T) {
	r := startInside(t)
	res, _ := r.run(t, python(`
import os
for i in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import signal, time
            for s in range(1, 65):
                try: signal.signal(s, signal.SIG_IGN)
                except (OSError, ValueError): pass
            time.sleep(1e6)
        os._exit(0)
os.chmod(".", 0)
`), RunInput{})
	if describe(res) != "succeeded exit 0" {
		t.Errorf("%s\n%s", describe(res), r.stderr)
	}
	start := python(`
import os
pids = [p for p in os.listdir("/proc") if p.isdigit()]
print(sorted(pids) == sorted(["1", str(os.getpid())]), os.listdir("."))
open("a", "w").write("kept"); os.chmod("a", 0); os.chmod(".", 0)
`)
	start.Outputs = []string{"a"}
	res, rec := r.run(t, start, RunInput{})
	if rec.stdout() != "True ['main.py']\n" || rec.files["a"] != "kept" {
		t.Errorf("%s %q %v\n%s", describe(res), rec.stdout(), rec.files, r.stderr)
	}
}

func TestTheFirstProcessIsSmall(t *testing.T) {
	r := startInside(t)
	r.isAlive(t)
	_, rec := r.run(t, shell("cat /proc/1/status"), RunInput{})
	for line := range strings.Lines(rec.stdout()) {
		var n int
		if _, err := fmt.Sscanf(line, "Threads: %d", &n); err == nil && n > protocol.OwnThreads {
			t.Errorf("%d threads, and a container's pids limit counts on %d", n, protocol.OwnThreads)
		}
	}
}
