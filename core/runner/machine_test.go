//go:build linux

package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestLeftoversAreKilledByFolder(t *testing.T) {
	root := workRoot(t)
	home := filepath.Join(root, "abc")
	if err := os.Mkdir(home, 0o755); err != nil { //nolint:gosec // a test's folder
		t.Fatal(err)
	}
	byHome, byCwd, other := exec.Command("sleep", "100"), exec.Command("sleep", "100"), exec.Command("sleep", "100")
	byHome.Env = []string{"HOME=" + home}
	byCwd.Dir = home
	other.Env = []string{"HOME=" + root + "-other"}
	for _, cmd := range []*exec.Cmd{byHome, byCwd, other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	n, err := KillLeftovers(root, testUID+1000, 10)
	if n != 2 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	for _, cmd := range []*exec.Cmd{byHome, byCwd} {
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(other.Process.Signal(syscall.Signal(0)), other.Process.Kill()); err != nil {
		t.Errorf("a stranger was killed: %v", err)
	}
	_ = other.Wait() // by our Kill
}

func TestLeftoversAreKilledByUID(t *testing.T) {
	needs(t, isRoot(), "root")
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(testUID + 2000), Gid: uint32(testUID + 2000)}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := KillLeftovers("", testUID+1990, 20); n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	_ = cmd.Wait() // by that
}

func TestGroupPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, mountinfo, cgroup, want string }{
		{"v2 alone", "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n", "0::/user.slice/x.scope\n",
			"[{unified /sys/fs/cgroup /sys/fs/cgroup/user.slice/x.scope}]"},
		{"v2 in a namespace", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/\n",
			"[{unified /sys/fs/cgroup /sys/fs/cgroup}]"},
		{"a v1 container", "40 23 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", "4:memory:/docker/abc/sub\n",
			"[{memory /sys/fs/cgroup/memory /sys/fs/cgroup/memory/sub}]"},
		{"v1 controllers together", "40 23 0:30 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n", "4:cpu,cpuacct:/a\n",
			"[{cpu /cg/cpu,cpuacct /cg/cpu,cpuacct/a} {cpuacct /cg/cpu,cpuacct /cg/cpu,cpuacct/a}]"},
		{"nothing", "22 1 8:1 / / rw - ext4 /dev/sda rw\n", "", "[]"},
		{"garbage", "x\n- -\n\n", "a:b\n::\n", "[]"},
	} {
		if got := fmt.Sprint(groupPlaces(c.mountinfo, c.cgroup)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestControlGroupsCanBeKilledAndRemoved(t *testing.T) {
	slot := testCgroups(t)
	needs(t, len(slot) > 0, "control groups")
	child, err := slot.Make("a")
	if err != nil {
		t.Fatal(err)
	}
	if got := slot.Children(); fmt.Sprint(got) != "[a]" {
		t.Errorf("children %v", got)
	}
	if _, err := child.Make("b"); err != nil {
		t.Fatal(err)
	}
	var sleepers []*exec.Cmd
	for _, group := range []Cgroups{child, child.Child("b")} {
		cmd := exec.Command("sleep", "100")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range group.folders() {
			if err := writeGroup(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
		sleepers = append(sleepers, cmd)
	}
	if err := errors.Join(child.Remove(), child.Remove()); err != nil {
		t.Error(err)
	}
	for _, cmd := range sleepers {
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Error(err)
		}
	}
	if got := slot.Children(); len(got) > 0 {
		t.Errorf("children %v", got)
	}
}

func TestProbes(t *testing.T) {
	needs(t, isRoot(), "root")
	if err := ProbeSetuid(testUID, testUID); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"network": ProbeNetworkNamespace(), "tmpfs": ProbeTmpfs(), "user": ProbeUserNamespace()} {
		t.Logf("%s: %v", name, err)
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Errorf("a probe has changed this process: %v", err)
	}
}
