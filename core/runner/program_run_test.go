//go:build linux

package runner

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestACommandHasItsArguments(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := shell(`printf '%s,' "$0" "$@"`)
	start.Args = []string{"zero", "one", ""}
	if res, rec := r.run(t, start, RunInput{}); describe(res) != "succeeded exit 0" || rec.stdout() != "zero,one,," {
		t.Errorf("%s %q", describe(res), rec.stdout())
	}
	start.Args = []string{"a\x00b"}
	if res, _ := r.run(t, start, RunInput{}); describe(res) != "failed prepare/invalid" {
		t.Error(describe(res))
	}
}

// With a memory control group the address space is not bounded: it is not memory.
func TestAddressSpaceIsBoundedOnlyInPlaceOfMemory(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, sandbox.Cgroups(cfg.Cgroups).Enforces("memory"), needtest.Cgroup, "a memory control group")
	r := startRunner(t, cfg)
	start := python("import resource, time\ntime.sleep(0.1)\nprint(resource.getrlimit(resource.RLIMIT_AS)[0])")
	if res, rec := r.run(t, start, RunInput{}); rec.stdout() != "-1\n" {
		t.Errorf("%s %q", describe(res), rec.stdout())
	}
}

func TestTheNextExecutionSeesNoTemporaryFileOfTheOneBefore(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, cfg.Tmpfs, needtest.Root, "a tmpfs")
	r := startRunner(t, cfg)
	r.run(t, shell(`mkdir -p "$TMPDIR/a/b" && echo left > "$TMPDIR/left" && echo left > left`), RunInput{})
	if _, rec := r.run(t, shell(`ls -A . "$TMPDIR"`), RunInput{}); strings.Contains(rec.stdout(), "left") {
		t.Errorf("the next program sees %q", rec.stdout())
	}
}

// What the user of the runner keeps in its session, and what an earlier program of the same uid left, nobody finds.
func TestNoProgramHasKeys(t *testing.T) {
	for name, cfg := range map[string]Config{"as another user": testConfig(t), "as the runner's user": {WorkRoot: workRoot(t)}} {
		r := startRunner(t, cfg)
		for range 2 {
			_, rec := r.run(t, python(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
add, keyctl = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
for ring in (-3, -4, -5):
    print(libc.syscall(add, b"user", b"left", b"secret", 6, ring), ctypes.get_errno(), end=" ")
print(libc.syscall(keyctl, 0, -3, 1), ctypes.get_errno())
`), RunInput{})
			if want := "-1 1 -1 1 -1 1 -1 1\n"; rec.stdout() != want {
				t.Errorf("%s: %q, want %q; %s", name, rec.stdout(), want, rec.stderr())
			}
		}
	}
}

// Its parent becomes the tracer of such a program, and would have to continue it at each signal.
func TestAProgramThatMakesItsParentItsTracerIsKilledAtItsFirstStop(t *testing.T) {
	code := `
import ctypes, os
print(ctypes.CDLL(None).ptrace(0, 0, 0, 0), flush=True)
os.kill(os.getpid(), 10)
print("after")
`
	r := boxed(t, nil)
	r.wants(t, forked(code), "exec failed SIGKILL 0")
	r.warm(t, forked(code))
	r.wants(t, forked(code), "fork failed SIGKILL 0")
	r.wants(t, forked("print(1)"), "fork succeeded exit 0 1")
}
