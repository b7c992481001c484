package sandbox

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestAProcessThatExitsIsKnown(t *testing.T) {
	if IsExiting(os.Getpid()) {
		t.Error("this process exits")
	}
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if IsExiting(pid) {
		t.Error("a process that reads exits")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for end := t.Context(); !IsExiting(pid); { // until it is waited for, the process is there
		if end.Err() != nil {
			t.Fatal("a process that has ended does not exit")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Go's scheduler preempts threads by signals. Each one may come before a poll that does not wait.
func TestAProcessIsAliveWhateverSignalsComeMeanwhile(t *testing.T) {
	pid := os.Getpid()
	pidfd := descriptor(t, pid)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	asked, signalled := make(chan struct{}), make(chan struct{})
	go func(thread int) {
		defer close(signalled)
		for !IsClosed(asked) {
			_ = unix.Tgkill(pid, thread, unix.SIGURG) // this process is there
		}
	}(unix.Gettid())
	for range 50_000 {
		if !IsAlive(pidfd) {
			t.Error("this process seems to have ended")
			break
		}
	}
	close(asked)
	<-signalled
}

// A group remembers what the kernel has said of a process in it. A process that leaves one of its controllers is seen nevertheless.
func TestAProcessThatLeavesAGroupIsSeenAtTheNextLook(t *testing.T) {
	needtest.NeedRoot(t)
	slot := maps.Clone(testCgroups(t))
	delete(slot, unified) // the runner itself moves a process into it
	needtest.Need(t, len(slot) > 0, needtest.Cgroup, "control groups of v1")
	g, err := MakeGroup(slot, "run-1", executor.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := sleeper(t, 0, nil), sleeper(t, 0, nil)
	t.Cleanup(func() {
		if err := g.Remove(); err != nil { // it kills both
			t.Error(err)
		}
	})
	enter := func(c Cgroups, pid int) {
		t.Helper()
		for _, dir := range v1(c) {
			if err := writeGroup(dir, "tasks", strconv.Itoa(pid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	pid, other := first.Process.Pid, second.Process.Pid
	if g.Has(pid) {
		t.Fatal("a process is in a group that it has not entered")
	}
	enter(g.Cgroups, pid)
	for range 2 {
		if !g.Has(pid) {
			t.Fatal("a process is not in the group that it has entered")
		}
	}
	if g.Has(other) {
		t.Error("another process is in the group")
	}
	enter(g.Cgroups, other)
	if len(g.places) == 0 || !bytes.Equal(g.places, placesOf(other)) || !g.Has(other) {
		t.Error("another process that has entered is not known by what the kernel said of the first one")
	}
	for controller, dir := range slot {
		enter(Cgroups{controller: dir}, pid)
		if g.Has(pid) {
			t.Errorf("a process is in the group that has left its %s", controller)
		}
		enter(g.Cgroups, pid)
		if !g.Has(pid) {
			t.Errorf("a process is not in the group that it has entered again, by its %s", controller)
		}
	}
}
