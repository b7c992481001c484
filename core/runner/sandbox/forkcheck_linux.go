package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
)

// A fork server runs code of packages, so it may not tell the truth. What follows asks the kernel instead.

// The bounds of a fork server and of the copy that waits. Imports may start threads, which the server does not keep.
const (
	forkMemory = 512 << 20
	forkPIDs   = 64
)

// MakeForkGroup makes the control groups of a fork server and of its copies that wait.
func (b *Sandbox) MakeForkGroup() (*Group, error) {
	name := "fork-" + strconv.FormatInt(b.named.Add(1), 10)
	g, err := MakeGroup(b.Config.Cgroups, name, executor.Limits{MemoryBytes: forkMemory, PIDs: forkPIDs})
	if err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// forkInto calls fork on a thread in g, and then takes the thread back into the slot's groups.
func (b *Sandbox) forkInto(g *Group, attr *syscall.SysProcAttr, fork func() (int, error)) (int, error) {
	home, err := openTasks(b.Config.Cgroups)
	defer func() {
		for _, fd := range home {
			_ = writeControl(fd, "0") // the removal of g shows an error
			_ = unix.Close(fd)
		}
	}()
	if err == nil {
		err = g.enter()
	}
	if err != nil {
		return 0, err
	}
	if g.fd == nil || !g.needsV2() {
		return fork()
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(g.fd.Fd())
	return fork()
}

// populated reports whether a process is in g, also one that has ended and was not waited for. g may be nil. Without a control group of
// processes it reports false.
func (g *Group) populated() bool {
	n, ok := g.Threads()
	return ok && n > 0
}

// Threads returns the number of threads in g. Nothing can hide from it by forking. ok is false without a control group of processes.
func (g *Group) Threads() (n int64, ok bool) {
	if g == nil || g.count == nil {
		return 0, false
	}
	return parseNumber(readControl(g.count)), true
}

// Has reports whether the process pid is in all v1 groups of g. This process itself moves others into v2 groups. The first look reads the
// list of each group. It opens the files anew, because the kernel lists the tasks of an open file at most once per second
// (cgroup_pidlist_start). Later looks compare what the kernel says of pid with what it said of a process that was in those lists.
func (g *Group) Has(pid int) bool {
	groups := v1(g.Cgroups)
	if len(groups) == 0 {
		return true
	}
	said := placesOf(pid)
	if len(said) > 0 && bytes.Equal(said, g.places) {
		return true
	}
	for _, dir := range groups {
		if !hasLine(dir, "tasks", strconv.Itoa(pid)) {
			return false
		}
	}
	// Else it has moved meanwhile, or it exits: then the kernel says that it is in the root groups.
	if bytes.Equal(said, placesOf(pid)) && !IsExiting(pid) {
		g.places = said
	}
	return true
}

// maxPlaces bounds what placesOf returns. A file of that size may be cut off.
const maxPlaces = 4096

// placesOf returns the names of all control groups of the process pid, as this process sees them. It returns nothing if it cannot
// return all of them.
func placesOf(pid int) []byte {
	raw, err := readGroup(procfs(pid), "cgroup")
	if err != nil || len(raw) >= maxPlaces {
		return nil
	}
	return raw
}

// Holds returns an error unless the process pid is in the pid namespace of the box.
func (b *Box) Holds(pid int) error {
	ours, err := os.Readlink(procfs(b.pid) + "/ns/pid")
	if err != nil {
		return fmt.Errorf("namespace of the fork server: %w", err)
	}
	theirs, err := os.Readlink(procfs(pid) + "/ns/pid")
	if err != nil {
		return fmt.Errorf("namespace of a copy: %w", err)
	}
	if ours != theirs {
		return fmt.Errorf("process %d is not of the fork server", pid)
	}
	return nil
}

// Emptied returns an error if a process is left in g or below the first process of the namespaces, which has said that none is.
func (b *Box) Emptied(g *Group) error {
	if !b.isEmpty() || g.populated() {
		return errors.New("fork server: it hides processes")
	}
	return nil
}

// IsAlive reports whether the process of a descriptor has not ended. Its number is then its own.
func IsAlive(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	// Also a poll that does not wait ends with EINTR if a signal is pending, such as those by which Go's scheduler preempts threads.
	n, err := archive.IgnoringEINTR(func() (int, error) { return unix.Poll(fds, 0) })
	return err == nil && n == 0
}
