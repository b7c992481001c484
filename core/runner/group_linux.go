package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// group is the control groups of one Execution.
type group struct {
	Cgroups
	home Cgroups
	// fd of the v2 folder, for CLONE_INTO_CGROUP; nil without one.
	fd *os.File
	// tasks are the open files through which a thread enters the v1 folders.
	tasks []int
	// entered: there are some to enter. It stays when they are closed, which the thread that leaves may not look at.
	entered bool
	// ahead is whose thread is in these groups while no program is; nil: none's.
	ahead *spawner
	// usedCPU, peak and events are open for cpuTime, memoryPeak and oomKills, for which somebody waits; nil: there is none.
	usedCPU, peak, events *os.File
	// memory and pids tell where those limits are: a v1 folder, the v2 folder, or nowhere.
	memory, pids, cpu string
	v2                bool // memory is a v2 folder
	// In a container: its own groups, to read, and that all processes but ours are the Execution's.
	watched    *watched
	everything bool
	// kills is what counts the container's processes that its memory limit has killed, for a group of a session in a container;
	// else nil.
	kills *watched
}

// makeGroup makes the groups of one Execution below the slot's and sets its limits. Without any it returns a group that
// does nothing.
func makeGroup(slot Cgroups, name string, limits executor.Limits) (*group, error) {
	g := &group{home: slot}
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
			g.memory, g.v2 = dir, true
		}
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			g.pids = dir
		}
		if _, err := os.Stat(filepath.Join(dir, "cpu.weight")); err == nil {
			g.cpu = dir
		}
	}
	if dir := child["memory"]; dir != "" {
		g.memory, g.v2 = dir, false
	}
	if dir := child["pids"]; dir != "" {
		g.pids = dir
	}
	g.tasks, err = openTasks(child)
	g.entered = len(g.tasks) > 0
	g.openUsage()
	return g, errors.Join(err, g.limit(limits))
}

func (g *group) limit(l executor.Limits) error {
	var errs []error
	set := func(dir, file string, value int64) {
		if err := writeGroup(dir, file, strconv.FormatInt(value, 10)); err != nil {
			errs = append(errs, fmt.Errorf("limit by control group: %w", err))
		}
	}
	if g.memory != "" && l.MemoryBytes > 0 {
		if g.v2 {
			set(g.memory, "memory.max", l.MemoryBytes)
			_ = writeGroup(g.memory, "memory.swap.max", "0") // not there without swap accounting
		} else {
			set(g.memory, "memory.limit_in_bytes", l.MemoryBytes)
			_ = writeGroup(g.memory, "memory.memsw.limit_in_bytes", strconv.FormatInt(l.MemoryBytes, 10)) // likewise
		}
	}
	if g.pids != "" && l.PIDs > 0 {
		// On v1 the thread that forks is a member while it does. entered lowers it again.
		set(g.pids, "pids.max", l.PIDs+1)
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

// enter moves the calling thread, and so what it forks, into the v1 groups. Moving oneself takes no lock that others
// hold long (cgroup_procs_write_start in the kernel), so this costs microseconds.
func (g *group) enter() error {
	for i, fd := range g.tasks {
		if err := writeControl(fd, "0"); err != nil {
			return fmt.Errorf("enter control group %s: %w", v1(g.Cgroups)[i], err)
		}
	}
	return nil
}

// lower makes the bound on processes what it is to be once the thread that forks has left.
func (g *group) lower(l executor.Limits) {
	if g.pids != "" && l.PIDs > 0 {
		_ = writeGroup(g.pids, "pids.max", strconv.FormatInt(l.PIDs, 10)) // one more is what it had anyway
	}
}

// openTasks opens what a thread writes to that enters c.
func openTasks(c Cgroups) ([]int, error) {
	var files []int
	for _, dir := range v1(c) {
		fd, err := ignoringEINTR(func() (int, error) { return unix.Open(dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0) })
		if err != nil {
			return files, fmt.Errorf("open control group %s: %w", dir, err)
		}
		files = append(files, fd)
	}
	return files, nil
}

// enterAhead has s wait in the v1 groups for the program that is to run in them.
func (g *group) enterAhead(s *spawner) error {
	if len(g.tasks) == 0 {
		return nil
	}
	g.ahead = s
	return s.enterAhead(g)
}

// leaveAhead undoes enterAhead, unless s is the one that waits: it leaves when it has started the program.
func (g *group) leaveAhead(s *spawner) {
	if g.ahead != nil && g.ahead != s {
		g.ahead.leaveAhead(g)
		g.ahead = nil
	}
}

// adopt puts a process that runs already into the v2 group, for kernels without CLONE_INTO_CGROUP.
func (g *group) adopt(pid int) error {
	return writeGroup(g.Cgroups[unified], "cgroup.procs", strconv.Itoa(pid))
}

// oomKills counts the processes that the memory limit has killed.
func (g *group) oomKills() int64 {
	if g.watched != nil {
		return g.watched.oomKills()
	}
	if g.kills != nil {
		return g.kills.oomKills()
	}
	return parseKeyed(readControl(g.events), "oom_kill")
}

// memoryNow and memoryPeak are bytes; 0 = unknown.
func (g *group) memoryNow() int64 {
	if g.v2 {
		return number(g.memory, "memory.current")
	}
	return number(g.memory, "memory.usage_in_bytes")
}

func (g *group) memoryPeak() int64 {
	if g.watched != nil {
		return g.watched.peak()
	}
	return parseNumber(readControl(g.peak))
}

// cpuTime is what all processes used; negative = unknown.
func (g *group) cpuTime() time.Duration {
	if g.watched != nil {
		return g.watched.cpuTime()
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

// resetPeak lets memoryPeak begin anew, where the kernel can.
func (g *group) resetPeak() {
	if g.peak != nil {
		_, _ = g.peak.WriteAt([]byte("0"), 0) // v2 can from Linux 6.12 on
	}
}

// openUsage opens what is read when the program has ended. What cannot be opened is unknown then.
func (g *group) openUsage() {
	switch {
	case g.memory == "":
	case g.v2:
		if g.peak = openControl(g.memory, "memory.peak", unix.O_RDWR); g.peak == nil { // see resetPeak
			g.peak = openControl(g.memory, "memory.peak", unix.O_RDONLY)
		}
		g.events = openControl(g.memory, "memory.events", unix.O_RDONLY)
	default:
		g.peak = openControl(g.memory, "memory.max_usage_in_bytes", unix.O_RDWR)
		g.events = openControl(g.memory, "memory.oom_control", unix.O_RDONLY)
	}
	if dir := g.Cgroups["cpuacct"]; dir != "" {
		g.usedCPU = openControl(dir, "cpuacct.usage", unix.O_RDONLY)
	} else if dir := g.Cgroups[unified]; dir != "" {
		g.usedCPU = openControl(dir, "cpu.stat", unix.O_RDONLY)
	}
}

func openControl(dir, file string, mode int) *os.File {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(dir+"/"+file, mode|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), file) //nolint:gosec // a descriptor
}

// readControl is what f says now; nothing if it cannot be read.
func readControl(f *os.File) []byte {
	buf := make([]byte, 4096)
	n, _ := f.ReadAt(buf, 0) // ErrInvalid of a nil f, or io.EOF behind the little that there is
	return buf[:n]
}

// remove gives the groups back; nothing may be alive in them.
func (g *group) remove() error {
	g.leaveAhead(nil)
	var err error
	for _, fd := range g.tasks {
		err = errors.Join(err, unix.Close(fd))
	}
	g.tasks = nil
	for _, f := range []*os.File{g.usedCPU, g.peak, g.events} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	g.usedCPU, g.peak, g.events = nil, nil, nil
	if g.fd != nil {
		err = errors.Join(err, g.fd.Close())
		g.fd = nil
	}
	return errors.Join(err, g.Remove())
}

func number(dir, file string) int64 {
	if dir == "" {
		return 0
	}
	raw, err := readGroup(dir, file)
	if err != nil {
		return 0
	}
	return parseNumber(raw)
}

func parseNumber(raw []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// keyed reads one value of a file of "key value" lines.
func keyed(dir, file, key string) int64 {
	raw, err := readGroup(dir, file)
	if err != nil {
		return 0
	}
	return parseKeyed(raw, key)
}

func parseKeyed(raw []byte, key string) int64 {
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == key {
			if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
