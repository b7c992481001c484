package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// Group is the control groups of one Execution.
type Group struct {
	Cgroups
	// fd is the v2 folder, for CLONE_INTO_CGROUP; nil without one.
	fd *os.File
	// tasks are the open files through which a thread enters the v1 folders.
	tasks []int
	// waiting is the Spawner whose thread is in these groups although no program is yet; nil if none is.
	waiting *Spawner
	// usedCPU, peak and events are open files for CPUTime, MemoryPeak and OOMKills, which are on the path of an answer; nil if
	// there are none.
	usedCPU, peak, events *os.File
	// count is the open file of the number of threads in it; nil if there is none.
	count *os.File
	// bound is the open file of the limit of processes, for lower. A thread in a box has no name for it.
	bound *os.File
	// places is what the kernel says of the control groups of a process in g; nil if unknown. See Has.
	places []byte
	// pidsMax is what the limit of processes was made with.
	pidsMax int64
	// Memory and pids are where those limits are set: a v1 folder, the v2 folder, or nothing.
	Memory, pids, cpu string
	v2                bool // memory is a v2 folder
	// In a container, watched are its own groups, to read, and Everything says that all processes but the runner are the
	// Execution's.
	watched    *Watched
	Everything bool
	// Kills counts the container's processes that its memory limit has killed, for a group of a session in a container; else
	// nil.
	Kills *Watched
	// Bound kills processes for their memory; nil if nothing does. It had killed BoundBefore when the group was made.
	Bound       *MemoryBound
	BoundBefore int64
}

// MakeGroup makes the groups of one Execution below the slot's and sets its limits. Without groups of the slot it returns a
// group that does nothing.
func MakeGroup(slot Cgroups, name string, limits executor.Limits) (*Group, error) {
	g := &Group{}
	if len(slot) == 0 {
		return g, nil
	}
	child, err := slot.Make(name)
	if err != nil {
		return g, err
	}
	g.Cgroups = child
	if dir := child[unified]; dir != "" {
		if g.fd, err = os.OpenFile(dir, unix.O_DIRECTORY|unix.O_PATH, 0); err != nil { //nolint:gosec // the folder comes from the host
			return g, fmt.Errorf("open control group: %w", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "memory.max")); err == nil {
			g.Memory, g.v2 = dir, true
		}
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			g.pids = dir
		}
		if _, err := os.Stat(filepath.Join(dir, "cpu.weight")); err == nil {
			g.cpu = dir
		}
	}
	if dir := child["memory"]; dir != "" {
		g.Memory, g.v2 = dir, false
	}
	if dir := child["pids"]; dir != "" {
		g.pids = dir
	}
	g.tasks, err = openTasks(child)
	g.openUsage()
	return g, errors.Join(err, g.limit(limits))
}

func (g *Group) limit(l executor.Limits) error {
	var errs []error
	set := func(dir, file string, value int64) {
		if err := writeGroup(dir, file, strconv.FormatInt(value, 10)); err != nil {
			errs = append(errs, fmt.Errorf("limit by control group: %w", err))
		}
	}
	if g.Memory != "" && l.MemoryBytes > 0 {
		if g.v2 {
			set(g.Memory, "memory.max", l.MemoryBytes)
			_ = writeGroup(g.Memory, "memory.swap.max", "0") // not there without swap accounting
		} else {
			set(g.Memory, "memory.limit_in_bytes", l.MemoryBytes)
			_ = writeGroup(g.Memory, "memory.memsw.limit_in_bytes", strconv.FormatInt(l.MemoryBytes, 10)) // likewise
		}
	}
	if g.pids != "" && l.PIDs > 0 {
		// On v1 the forking thread counts while it forks. lower takes it off again.
		g.pidsMax = l.PIDs + 1
		set(g.pids, "pids.max", g.pidsMax)
	}
	if l.CPUShares > 0 {
		if dir := g.Cgroups["cpu"]; dir != "" {
			set(dir, "cpu.shares", l.CPUShares)
		} else if g.cpu != "" {
			set(g.cpu, "cpu.weight", min(max(1+(l.CPUShares-2)*9999/262142, 1), 10000))
		}
	}
	return errors.Join(errs...)
}

// v1 lists the v1 folders of c.
func v1(c Cgroups) []string {
	only := Cgroups{}
	for controller, dir := range c {
		if controller != unified {
			only[controller] = dir
		}
	}
	return only.folders()
}

// enter moves the calling thread, and so what it forks, into the v1 groups. A thread that moves itself takes no lock that
// others hold for long (cgroup_procs_write_start in the kernel), so this takes microseconds.
func (g *Group) enter() error {
	for i, fd := range g.tasks {
		if err := writeControl(fd, "0"); err != nil {
			return fmt.Errorf("enter control group %s: %w", v1(g.Cgroups)[i], err)
		}
	}
	return nil
}

// lower sets the bound on processes that holds when the forking thread has left.
func (g *Group) lower(l executor.Limits) {
	if g.bound != nil && l.PIDs > 0 {
		_, _ = g.bound.WriteAt([]byte(strconv.FormatInt(l.PIDs, 10)), 0) // one more is what it had anyway
	}
}

// openTasks opens the files that a thread writes to when it enters c, and that list the threads in c.
func openTasks(c Cgroups) ([]int, error) {
	var files []int
	for _, dir := range v1(c) {
		fd, err := openControl(dir, "tasks", unix.O_WRONLY)
		if err != nil {
			return files, fmt.Errorf("control group: %w", err)
		}
		files = append(files, fd)
	}
	return files, nil
}

// enterWaiting makes the thread of s enter the v1 groups before the program is known.
func (g *Group) enterWaiting(s *Spawner) error {
	if len(g.tasks) == 0 || s == nil {
		return nil
	}
	g.waiting = s
	return s.Start(Job{Group: g, only: enterOnly}).Err
}

// LeavePrepared undoes enterWaiting, unless s is the Spawner that waits: that one leaves when it has started the program.
func (g *Group) LeavePrepared(s *Spawner) {
	if g.waiting != nil && g.waiting != s {
		g.waiting.Start(Job{Group: g, only: leaveOnly})
		g.waiting = nil
	}
}

// adopt moves a running process into the v2 group, for kernels without CLONE_INTO_CGROUP.
func (g *Group) adopt(pid int) error {
	fd, err := unix.Openat(int(g.fd.Fd()), "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return errors.Join(writeControl(fd, strconv.Itoa(pid)), unix.Close(fd))
}

// OOMKills returns how many processes were killed for their memory.
func (g *Group) OOMKills() int64 {
	kills := g.Bound.Killed() - g.BoundBefore
	switch {
	case g.watched != nil:
		return kills + g.watched.oomKills()
	case g.Kills != nil:
		return kills + g.Kills.oomKills()
	}
	return kills + parseKeyed(readControl(g.events), "oom_kill")
}

// MemoryPeak returns bytes, and 0 if unknown.
func (g *Group) MemoryPeak() int64 {
	if g.watched != nil {
		return g.watched.peak()
	}
	return parseNumber(readControl(g.peak))
}

// CPUTime returns what all processes have used; negative if unknown.
func (g *Group) CPUTime() time.Duration {
	if g.watched != nil {
		return g.watched.CPUTime()
	}
	raw := readControl(g.usedCPU)
	if g.Cgroups["cpuacct"] != "" {
		if n := parseNumber(raw); n > 0 {
			return time.Duration(n)
		}
	} else if n := parseKeyed(raw, "usage_usec"); n > 0 {
		return time.Duration(n) * time.Microsecond
	}
	return -1
}

// Counts reports whether g knows the CPU time of all that is in it.
func (g *Group) Counts() bool {
	if g.watched != nil {
		return g.watched.Counts()
	}
	return g.usedCPU != nil
}

// Measures reports whether g knows the CPU time, the peak of the memory and the number of threads of all that is in it.
func (g *Group) Measures() bool {
	return g.watched == nil && g.usedCPU != nil && g.peak != nil && g.count != nil
}

// ResetPeak begins MemoryPeak anew, where the kernel can.
func (g *Group) ResetPeak() {
	if g.peak != nil {
		_, _ = g.peak.WriteAt([]byte("0"), 0) // v2 can from Linux 6.12 on
	}
}

// openUsage opens the files that are read when the program has ended. The values of files that cannot be opened are unknown.
func (g *Group) openUsage() {
	if g.Memory != "" {
		files := memoryFilesOf(g.v2)
		if g.peak = keepControl(g.Memory, files.peak, unix.O_RDWR); g.peak == nil { // see ResetPeak
			g.peak = keepControl(g.Memory, files.peak, unix.O_RDONLY)
		}
		g.events = keepControl(g.Memory, files.events, unix.O_RDONLY)
	}
	if g.pids != "" {
		g.bound = keepControl(g.pids, "pids.max", unix.O_WRONLY)
		g.count = keepControl(g.pids, "pids.current", unix.O_RDONLY)
	}
	if dir := g.Cgroups["cpuacct"]; dir != "" {
		g.usedCPU = keepControl(dir, "cpuacct.usage", unix.O_RDWR) // see Reset
	} else if dir := g.Cgroups[unified]; dir != "" {
		g.usedCPU = keepControl(dir, "cpu.stat", unix.O_RDONLY)
	}
}

// maxResidue bounds the memory that a group may have when it is used again. Its peak begins there. The kernel charges memory in
// advance, and files that a program has read first stay charged.
const maxResidue = 1 << 20

// Reset makes v1 groups as they were when they were made, for the next Execution. It saves the kernel making and removing them. It
// reports false if it cannot, or if anything of the Execution may be left. Remove must follow then.
func (g *Group) Reset() bool {
	if len(g.tasks) == 0 || g.needsV2() || g.watched != nil || g.Kills != nil || g.peak == nil || g.usedCPU == nil || g.bound == nil {
		return false
	}
	g.LeavePrepared(nil)
	left, err := readGroup(g.pids, "pids.current")
	if err != nil || string(left) != "0\n" || g.OOMKills() != 0 {
		return false
	}
	g.Bound, g.BoundBefore = nil, 0
	for f, value := range map[*os.File]int64{g.usedCPU: 0, g.peak: 0, g.bound: g.pidsMax} {
		if _, err := f.WriteAt(strconv.AppendInt(nil, value, 10), 0); err != nil {
			return false
		}
	}
	return g.MemoryPeak() <= maxResidue
}

// held returns the memory that is charged to g without what the kernel can empty, in bytes. Without a control group of memory it is 0.
func (g *Group) held() int64 {
	if g.Memory == "" || g.watched != nil {
		return 0
	}
	raw, _ := readGroup(g.Memory, "memory.stat") // nothing is nothing
	stat := parseStat(raw, g.v2)
	held := stat.anonymous + stat.shared + stat.kernel
	if !g.v2 {
		held += number(g.Memory, "memory.kmem.usage_in_bytes")
	}
	return held
}

// Remove removes the groups. No process may be in them.
func (g *Group) Remove() error {
	g.LeavePrepared(nil)
	var err error
	for _, fd := range g.tasks {
		err = errors.Join(err, unix.Close(fd))
	}
	g.tasks = nil
	for _, f := range []*os.File{g.usedCPU, g.peak, g.events, g.count} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	g.usedCPU, g.peak, g.events, g.count = nil, nil, nil, nil
	if g.bound != nil {
		err = errors.Join(err, g.bound.Close()) // the pointer stays: the forking thread may read it
	}
	if g.fd != nil {
		err = errors.Join(err, g.fd.Close())
		g.fd = nil
	}
	return errors.Join(err, g.Cgroups.Remove())
}
