//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestProcessesMakeRoomForControllers(t *testing.T) {
	slot := testCgroups(t)
	dir := slot[unified]
	needtest.Need(t, dir != "", needtest.Cgroup, "a control group of version 2")
	var want []string
	for range 3 {
		cmd := sleeper(t, 0, nil)
		pid := strconv.Itoa(cmd.Process.Pid)
		must(t, writeGroup(dir, "cgroup.procs", pid))
		want = append(want, pid)
	}
	t.Cleanup(func() { must(t, slot.Kill()) })
	must(t, MakeRoom(dir))
	must(t, MakeRoom(dir)) // it may be done already
	left, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	must(t, err)
	moved, err := os.ReadFile(filepath.Join(dir, "host", "cgroup.procs"))
	must(t, err)
	if got := strings.Fields(string(moved)); len(left) != 0 || len(got) != len(want) {
		t.Errorf("%q are left, and %q moved of %q", left, got, want)
	}
}

func TestOwnGroupIsThatOfVersion2Alone(t *testing.T) {
	t.Parallel()
	const v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	const v1 = "31 24 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
	const hybrid = "32 24 0:28 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ mounts, own, want string }{
		{v2, "0::/user.slice/session-1.scope\n", "/sys/fs/cgroup/user.slice/session-1.scope"},
		{v1 + hybrid, "4:memory:/a\n0::/b\n", ""},
		{v1, "4:memory:/a\n", ""},
		{"", "0::/b\n", ""},
	} {
		if got := ownGroup(c.mounts, c.own); got != c.want {
			t.Errorf("%s: got %q, want %q", c.own, got, c.want)
		}
	}
}
