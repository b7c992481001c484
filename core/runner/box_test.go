//go:build linux

package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// ordinaryUser is who tests of boxes run as once more, if they run as root.
const ordinaryUser = 65534

// TestBoxesOfAnOrdinaryUser runs the tests of boxes as an ordinary user.
func TestBoxesOfAnOrdinaryUser(t *testing.T) {
	needtest.NeedRoot(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestBox$", "-test.v=true") //nolint:gosec // ourselves
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	cmd.Env, cmd.Dir = append(os.Environ(), "HOME=/nonexistent"), "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// boxed starts a runner with a box.
func boxed(t *testing.T, change func(*Config)) *testRunner {
	t.Helper()
	needBox(t)
	cfg := testConfig(t)
	cfg.Box, cfg.Tmpfs = true, true
	if change != nil {
		change(&cfg)
	}
	if isRoot() {
		return startRunner(t, cfg)
	}
	return startRunnerAs(t, cfg, sandbox.BoxAttributes())
}

func needBox(t *testing.T) {
	t.Helper()
	uid := 0
	if isRoot() {
		uid = testUID
	}
	err := sandbox.ProbeBox("/proc/self/exe", []string{os.Args[0], "runner"}, uid, uid)
	needtest.Need(t, err == nil, needtest.Root, fmt.Sprintf("a box: %v", err))
}

// saysInBox runs a Python program in a box and compares its output.
func (r *testRunner) saysInBox(t *testing.T, code, want string) {
	t.Helper()
	r.prints(t, python(code), want)
}

func (r *testRunner) prints(t *testing.T, start Start, want string) {
	t.Helper()
	res, rec := r.run(t, start, RunInput{})
	if got := strings.TrimSpace(rec.stdout()); got != want || describe(res) != "succeeded exit 0" {
		t.Errorf("%s\n%s\n%s\nwant\n%s", describe(res), got, rec.stderr(), want)
	}
}

func TestBox(t *testing.T) {
	t.Run("a program sees only its own processes", boxProcesses)
	t.Run("a program sees nothing of the machine but its system folders", boxFiles)
}

func boxProcesses(t *testing.T) {
	boxed(t, nil).saysInBox(t, `
import os
pids = [int(n) for n in os.listdir("/proc") if n.isdigit()]
print(1 in pids, os.getpid() in pids, len(pids), os.getppid())
for name in ("environ", "exe", "fd", "root", "maps", "mem"):
    try:
        os.listdir("/proc/1/fd") if name == "fd" and os.stat("/proc/1").st_uid != os.getuid() else open("/proc/1/" + name).read()
        print("can see", name)
    except (PermissionError, IsADirectoryError): pass
try: os.kill(1, 9); os.kill(1, 15); print("init lives")
except PermissionError: print("init lives")
`, "True True 2 0\ninit lives")
}

func boxFiles(t *testing.T) {
	for _, dir := range []string{"/srv", "/opt"} {
		if !isRoot() {
			break
		}
		canary := filepath.Join(dir, "pyexec-canary-"+strconv.Itoa(os.Getpid()))
		must(t, os.WriteFile(canary, []byte("x"), 0o644)) //nolint:gosec // all may read it
		t.Cleanup(func() { must(t, os.Remove(canary)) })
	}
	boxed(t, nil).saysInBox(t, `
import os
print(sorted(set(os.listdir("/")) - {"lib32", "libx32", "lib64", "lib", "bin", "sbin"}))
for path in ("/etc/shadow", "/root", "/home", "/srv", "/opt", "/var/lib", "/sys", "/run/docker.sock", "/boot"):
    if os.path.exists(path): print("there is", path)
print(os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"], os.uname().nodename)
`, "['dev', 'etc', 'proc', 'run', 'tmp', 'usr', 'var', 'work']\n/work /work /tmp sandbox")
}
