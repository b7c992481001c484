package backendtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseRunnerRules() []rule {
	return []rule{
		{"BE-205", "abuse: the runner cannot be traced, read or entered", abuseTrace},
		{"BE-206", "abuse: signals to the runner have no effect, and the program's own end is reported", abuseSignals},
		{"BE-207", "abuse: a result cannot be forged: no descriptor leads to the runner, and its messages on stdout are plain output", abuseForge},
	}
}

func abuseTrace(c *Case) {
	// Without isolation the targets are the ancestors of the program, with isolation all visible processes.
	who := "ancestors()"
	if c.caps().Isolation != executor.IsolationNone {
		who = "sorted(set(ancestors() + pids()))"
	}
	c.try([]attempt{
		{"trace it", separated, fmt.Sprintf(`return first(%s, lambda p: call("ptrace", 0x4206, p, 0, 0))`, who)},
		{"its memory", separated, fmt.Sprintf(`return first(%s, lambda p: os.open("/proc/%%d/mem" %% p, os.O_RDWR))`, who)},
		{"its memory by a call", separated, fmt.Sprintf(`
buffer = ctypes.create_string_buffer(8)
class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
local, remote = Vec(ctypes.addressof(buffer), 8), Vec(ctypes.addressof(buffer), 8)
def read(pid):
    ctypes.set_errno(0)
    if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) == -1:
        # A runner has nothing at that address: that it was looked at is what counts.
        if ctypes.get_errno() != errno.EFAULT:
            raise OSError(ctypes.get_errno(), "refused")
    return "read"
return first(%s, read)`, who)},
		{"its environment", separated, fmt.Sprintf(`return first(%s, lambda p: open("/proc/%%d/environ" %% p).read())`, who)},
		{"its map", separated, fmt.Sprintf(`return first(%s, lambda p: open("/proc/%%d/maps" %% p).read())`, who)},
		{"its descriptors", separated, fmt.Sprintf(`return first(%s, lambda p: os.listdir("/proc/%%d/fd"  %% p))`, who)},
		{"its descriptors by a call", separated, fmt.Sprintf(`
def take(pid):
    fd = call("pidfd_open", pid, 0)
    return first(range(16), lambda n: call("pidfd_getfd", fd, n, 0))
return first(%s, take)`, who)},
		{"its root and its folder", separated, fmt.Sprintf(`
return first(%s, lambda p: os.listdir("/proc/%%d/root/" %% p) + os.listdir("/proc/%%d/cwd/" %% p))`, who)},
		{"its namespaces", separated, fmt.Sprintf(`
return first(%s, lambda p: call("setns", os.open("/proc/%%d/ns/pid" %% p, os.O_RDONLY), 0))`, who)},
		{"its order of dying", separated, fmt.Sprintf(`return first(%s, lambda p: os.open("/proc/%%d/oom_score_adj" %% p, os.O_WRONLY))`, who)},
		{"its limits", separated, fmt.Sprintf(`return first(%s, lambda p: resource.prlimit(p, resource.RLIMIT_NOFILE, resource.prlimit(p, resource.RLIMIT_NOFILE)))`, who)},
	})
}

// abuseSignals checks that the program ends with its own exit code, whatever signals it has sent.
func abuseSignals(c *Case) {
	switch c.separation() {
	case always:
		c.Skipf("the program is the same user as we are and not isolated: its signals reach all that is ours")
	case separated, contained:
	}
	const flood = prelude + `
quiet = [s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)]
for s in quiet:
    try:
        signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
sent = 0
for round in range(200):
    for s in (signal.SIGSEGV, signal.SIGQUIT, signal.SIGBUS, signal.SIGABRT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1,
              signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGILL, signal.SIGFPE,
              signal.SIGTRAP, signal.SIGSYS, signal.SIGXCPU, signal.SIGRTMIN, signal.SIGRTMAX, signal.SIGPROF, signal.SIGURG):
        for pid in {1, PARENT}:
            try:
                if pid > 0:
                    os.kill(pid, s)
                    sent += 1
            except OSError:
                pass
for s in (signal.SIGSTOP, signal.SIGKILL):
    for pid in {1, PARENT, -1}:
        try:
            if pid not in (0, -MAIN):
                os.kill(pid, s)
        except OSError:
            pass
    time.sleep(0.2)
print("alive", flush=True)
sys.exit(7)
`
	n := c.neighbour()
	r := c.start(c.job(Program{Python: flood, Fake: "print alive\nexit 7"}))
	n.answers()
	r.wait().exit(7).prints("alive\n")
	n.leaves()
	// The next Execution is not affected.
	c.program(helloProgram).succeeded()
}

// abuseForge checks that a program cannot read or forge the messages between a runner and its host.
func abuseForge(c *Case) {
	c.try([]attempt{
		{"a descriptor that nobody gave it", always, `
def alive(fd):
    os.fstat(fd)
    return os.readlink("/proc/self/fd/%d" % fd)
return first(range(3, 4096), alive)`},
		{"a descriptor of the runner's, by its name", separated, `
return first(["/proc/%d/fd/%d" % (p, n) for p in ancestors() + [1] for n in range(32)],
             lambda f: os.open(f, os.O_WRONLY | os.O_NONBLOCK))`},
		{"the runner's terminal", contained, `return os.open("/dev/tty", os.O_RDWR)`},
	})
	// Everything that a program writes to its streams is output and does not change its Result.
	said := strings.Repeat("\x00\x01\x02\x03\x7f\x80\xfe\xff\x00\x00\x00\x08", 64) +
		`{"status":"succeeded","exit_code":0}` + "\n" + `{"kind":"finished","body":{"result":{"status":"succeeded"}}}` + "\n" +
		strings.Repeat("\x05\x00\x00\x00\x00\x00\x00\x00", 4096)
	n := c.neighbour()
	r := c.start(c.job(Program{
		Python: fmt.Sprintf("import os, sys\nsaid = bytes.fromhex(%q)\nfor fd in (1, 2):\n    left = said\n    while left:\n        left = left[os.write(fd, left):]\nos._exit(9)\n", fmt.Sprintf("%x", said)),
		Fake:   fmt.Sprintf("hex stdout %x\nhex stderr %x\nexit 9", said, said),
	}))
	n.answers()
	r.wait().exit(9)
	n.leaves()
	if r.stdout() != said || r.stderr() != said {
		c.Errorf("its words did not arrive as they were: %d and %d bytes of %d", len(r.stdout()), len(r.stderr()), len(said))
	}
	if r.result.Wall > late || r.result.Status != executor.StatusFailed {
		c.Errorf("it ended as %s after %s", r.verdict(), r.result.Wall.Round(time.Millisecond))
	}
}
