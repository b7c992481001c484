package dockertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// startsDaemons is what the gate has in place of the tests that start daemons of their own.
const startsDaemons = "a run of the gate starts a daemon, and ends it"

func TestMain(m *testing.M) {
	leftovertest.Help(func() (string, error) {
		p, err := start()
		if err != nil {
			return "", err
		}
		return p.dir, nil
	})
	Main(m)
}

func TestImagesAreImportedAndKnowPython(t *testing.T) {
	host := Host(t)
	for _, name := range []string{Python(t), Bare(t), Python(t)} {
		out, err := exec.Command("docker", "--host", host, "run", "--rm", "--network", "none", name, "/usr/bin/python3", "-c", "import ssl, sqlite3, ctypes; print(6*7)").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "42" {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if out, err := exec.Command("docker", "--host", host, "run", "--rm", "--network", "none", Bare(t), "/bin/sh", "-c", "true").CombinedOutput(); err == nil {
		t.Errorf("the bare image has a shell: %s", out)
	}
}

func TestAPrivateDockerLeavesNothing(t *testing.T) {
	needtest.Long(t, startsDaemons)
	p := startPrivate(t)
	if err := answers(p.host()); err != nil {
		t.Fatal(err)
	}
	bridge, err := os.ReadFile(p.path("bridge"))
	if err != nil {
		t.Fatal(err)
	}
	other := startPrivate(t) // at the same time
	if err := answers(other.host()); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	gone(t, p.dir, string(bridge))
	if err := answers(other.host()); err != nil {
		t.Errorf("the other daemon does not answer: %v", err)
	}
}

func TestTheDockerOfAKilledProcessIsSwept(t *testing.T) {
	needtest.Long(t, startsDaemons)
	helper, dir, bridge := startHelper(t)
	sweep()
	if len(members(dir)) == 0 {
		t.Fatal("sweep removed the daemon of a running process")
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // it was killed
	sweep()
	gone(t, dir, bridge)
}

func TestAProcessThatIsToldToEndRemovesItsDocker(t *testing.T) {
	needtest.Long(t, startsDaemons)
	helper, dir, bridge := startHelper(t)
	if err := helper.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := helper.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the helper ended with %v, want signal: terminated", err)
	}
	gone(t, dir, bridge)
}

// A test must not go on with another daemon, or be skipped: the gate would be green without its tests.
func TestASharedDaemonThatIsGoneFailsItsTests(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestImagesAreImportedAndKnowPython$", "-test.v") //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), Variable+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the daemon of "+Variable+": ") {
		t.Errorf("%v: %s", err, out)
	}
}

// startHelper starts a process with a private daemon, and returns the daemon's folder and bridge.
func startHelper(t *testing.T) (helper *exec.Cmd, dir, bridge string) {
	t.Helper()
	needRoot(t)
	helper, dir = leftovertest.StartHelper(t)
	raw, err := os.ReadFile(filepath.Join(dir, "bridge"))
	if err != nil {
		t.Fatal(err)
	}
	return helper, dir, string(raw)
}

// gone fails t if something of a private daemon is left.
func gone(t *testing.T, dir, bridge string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	if left := members(dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		t.Errorf("bridge %s is left", bridge)
	}
	for _, table := range []string{"nat", "filter"} {
		rules, err := exec.Command("iptables", "-w", "-t", table, "-S").Output()
		if err != nil || strings.Contains(string(rules), bridge+" ") {
			t.Errorf("rules are left (%v):\n%s", err, rules)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil || unix.Geteuid() != 0 {
		t.Skip("SKIPPED, a private daemon needs root and dockerd")
	}
}

func startPrivate(t *testing.T) *private {
	t.Helper()
	needRoot(t)
	p, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}
