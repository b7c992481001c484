//go:build linux

package sandbox

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

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// sleeper starts a process that sleeps, as uid where that is not 0, and ends it with t.
func sleeper(t *testing.T, uid int, change func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "100")
	cmd.Dir, cmd.Env = "/", []string{"HOME=/"}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), NoSetGroups: true}} //nolint:gosec // a uid
	}
	if change != nil {
		change(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()         // by a kill
	})
	return cmd
}

// died waits for the end of a process that was killed.
func died(t *testing.T, what string, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%s: %v", what, err)
	}
}

func lives(t *testing.T, what string, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("%s was killed: %v", what, err)
	}
}

func TestLeftoversAreKilledByFolder(t *testing.T) {
	root := workRoot(t)
	home := filepath.Join(root, "abc")
	if err := os.Mkdir(home, 0o755); err != nil { //nolint:gosec // a test's folder
		t.Fatal(err)
	}
	program := filepath.Join(root, "program")
	raw, err := os.ReadFile("/bin/sleep")
	if err == nil {
		err = os.WriteFile(program, raw, 0o700) //nolint:gosec // a program
	}
	if err != nil {
		t.Fatal(err)
	}
	marked := map[string]*exec.Cmd{
		"HOME":           sleeper(t, 0, func(c *exec.Cmd) { c.Env = []string{"HOME=" + home} }),
		"TMPDIR":         sleeper(t, 0, func(c *exec.Cmd) { c.Env = []string{"A=b", "TMPDIR=" + home + "/"} }),
		"current folder": sleeper(t, 0, func(c *exec.Cmd) { c.Dir = home }),
		"the folder":     sleeper(t, 0, func(c *exec.Cmd) { c.Dir = root }),
		"program":        sleeper(t, 0, func(c *exec.Cmd) { c.Path = program }),
	}
	spared := map[string]*exec.Cmd{
		"one of a folder with a longer name": sleeper(t, 0, func(c *exec.Cmd) { c.Env = []string{"HOME=" + root + "-other"} }),
		"one that only names the folder":     sleeper(t, 0, func(c *exec.Cmd) { c.Env = []string{"PATH=" + root, "HOME=."} }),
		"a stranger":                         sleeper(t, 0, nil),
	}
	if n, err := KillLeftovers(Marks{Folders: []string{"", "/", root}}, 0); n != len(marked) || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	for what, cmd := range marked {
		died(t, what, cmd)
	}
	for what, cmd := range spared {
		lives(t, what, cmd)
	}
}

// TestLeftoversOfAUIDAreKilledByTheirMarksAlone: each of them has lost all marks but one.
func TestLeftoversOfAUIDAreKilledByTheirMarksAlone(t *testing.T) {
	needtest.NeedRoot(t)
	root := workRoot(t)
	uid := testUID + 2000
	marks := Marks{Folders: []string{root}, Group: func(name string) bool { return name == "a" }}
	if n, err := KillLeftovers(marks, uid); n != 0 || err != nil || HasProcess(uid) {
		t.Errorf("without any: killed %d, %v", n, err)
	}
	marked := map[string]*exec.Cmd{"folder": sleeper(t, uid, func(c *exec.Cmd) { c.Dir = root })}
	other := sleeper(t, uid+1, func(c *exec.Cmd) { c.Dir = root })
	if slot := testCgroups(t); len(slot) > 0 {
		child, err := slot.Make("a")
		if err != nil {
			t.Fatal(err)
		}
		grouped := sleeper(t, uid, nil)
		for _, dir := range child.folders() {
			if err := writeGroup(dir, "cgroup.procs", strconv.Itoa(grouped.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
		marked["control group"] = grouped
	}
	if ProbeTmpfs() == nil {
		inOwnMounts(t, func() {
			if err := unix.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
				t.Errorf("mount: %v", err)
			}
			marked["mount"] = sleeper(t, uid, nil)
		})
	}
	if n, err := KillLeftovers(marks, uid); n != len(marked) || err != nil {
		t.Errorf("killed %d of %d, %v", n, len(marked), err)
	}
	for what, cmd := range marked {
		died(t, what, cmd)
	}
	lives(t, "a process of another uid", other)
	if !HasProcess(uid + 1) {
		t.Error("the kernel does not tell of the process of another uid")
	}

	parent := sleeper(t, uid, func(c *exec.Cmd) {
		c.Dir = root
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "cd /; sleep 1000000 & cd " + root + "; exec sleep 1000000"}
	})
	// The shell has started its child, and is back.
	awaittest.Until(t, "the start of the child of a shell", func() bool {
		proc := fmt.Sprintf("/proc/%d/", parent.Process.Pid)
		children, _ := os.ReadFile(proc + "task/" + strconv.Itoa(parent.Process.Pid) + "/children")
		at, _ := os.Readlink(proc + "cwd")
		return len(children) > 0 && at == root
	})
	stranger := sleeper(t, uid, nil)
	n, err := KillLeftovers(marks, uid)
	if n < 1 || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("uid %d has processes that are not ours: [%d]", uid, stranger.Process.Pid)) {
		t.Errorf("killed %d, %v, want process %d named", n, err, stranger.Process.Pid)
	}
	died(t, "a parent", parent)
	lives(t, "a process without a mark", stranger)
}

func TestAProcessIsReadFromItsStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, status, want string
	}{
		{"a process", "Name:\tx\nState:\tS (sleeping)\nPPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t9\t9\t9\t9\n", "{7 [1 2 3 4]} true"},
		{"one that has ended", "Name:\tx\nState:\tZ (zombie)\nPPid:\t7\nUid:\t1\t2\t3\t4\n", "{0 []} false"},
		{"one that is gone", "Name:\tx\nState:\tX (dead)\nPPid:\t7\nUid:\t1\t2\t3\t4\n", "{0 []} false"},
		{"nothing", "", "{0 []} false"},
		{"something else", "Uid:\tx\n", "{0 []} false"},
	} {
		p, ok := parseProcess(c.status)
		if got := fmt.Sprint(p, ok); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
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
	needtest.Need(t, len(slot) > 0, needtest.Cgroup, "control groups")
	child, err := slot.Make("a")
	if err != nil {
		t.Fatal(err)
	}
	if got := slot.Children(); fmt.Sprint(got) != "[a]" {
		t.Errorf("children %v", got)
	}
	var sleepers []*exec.Cmd
	for _, name := range []string{"b", "c"} { // a group of version 2 that has groups with limits below it holds no process itself
		group, err := child.Make(name)
		if err != nil {
			t.Fatal(err)
		}
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
	needtest.NeedRoot(t)
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
