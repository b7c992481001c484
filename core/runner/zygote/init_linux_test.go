package zygote

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// asInit returns a Zygote that is PID 1.
func asInit(t *testing.T) *Zygote {
	t.Helper()
	needNamespaces(t)
	cfg := usual(t.TempDir())
	cfg.Launch = inNamespace
	openToAll(t, cfg.Dir)
	return start(t, cfg)
}

func TestAsInitItReapsOrphans(t *testing.T) {
	t.Parallel()
	got := run(t, asInit(t), `
import os
r, w = os.pipe()
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.close(r)
    os._exit(0)
os.close(w)
os.wait()
os.read(r, 1)  # until the orphan has ended
while len([n for n in os.listdir("/proc") if n.isdigit()]) > 2:
    os.sched_yield()
print(os.getppid(), os.getpid() > 1)
`, nil)
	if got != "1 True\n" {
		t.Errorf("%q", got)
	}
}

func TestAsInitItEmptiesTheNamespace(t *testing.T) {
	t.Parallel()
	z := asInit(t)
	got := run(t, z, `
import ctypes, os, time
libc = ctypes.CDLL(None)
print(libc.shmget(0, 4096, 0o1600) >= 0, libc.semget(0, 1, 0o1600) >= 0, libc.msgget(0, 0o1600) >= 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in 0, 1, 2:
            os.close(fd)
        time.sleep(99)
    os._exit(0)
os.wait()
`, nil)
	if got != "True True True\n" {
		t.Fatalf("%q", got)
	}
	s, err := z.Next(awaittest.Context(t))
	must(t, err)
	s.Close()
	got = run(t, z, `
import os
left = [n for n in os.listdir("/proc") if n.isdigit() and n not in ("1", str(os.getpid()))]
print([open("/proc/%s/stat" % n).read() for n in left])
print([len(open("/proc/sysvipc/" + n).readlines()) for n in ("shm", "sem", "msg")])
`, nil)
	if got != "[]\n[1, 1, 1]\n" {
		t.Errorf("%q", got)
	}
}

func TestAsInitProgramsDoNotDisturbIt(t *testing.T) {
	t.Parallel()
	z := asInit(t)
	got := run(t, z, `
import os, signal
for n in signal.valid_signals():
    os.kill(1, n)
for name in "mem", "environ", "fd":
    try:
        os.listdir("/proc/1/fd") if name == "fd" else open("/proc/1/" + name)
        print(name)
    except PermissionError:
        pass
print(os.getuid(), sorted(os.listdir("/proc/self/fd")))
`, nil)
	if got != "65534 ['0', '1', '2', '3']\n" {
		t.Errorf("%q", got)
	}
	must(t, z.Empty(awaittest.Context(t)))
	if got := run(t, z, "print(1)", nil); got != "1\n" {
		t.Errorf("afterwards: %q", got)
	}
}
