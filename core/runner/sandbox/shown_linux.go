package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// boxShown is the folder of a box's tmpfs with what its programs read about their limits. init mounts it at the usual places, read-only.
// The files are short texts in the forms of the kernel. Libraries choose the size of their heaps, caches and pools by them.
const boxShown = "shown"

// emptyFile and emptyFolder are in it to hide others.
const (
	emptyFile   = "empty"
	emptyFolder = "none"
)

// unlimitedV1 is the limit of a group of memory that has none, in control groups v1.
const unlimitedV1 = 1<<63 - 4096

// shownHierarchies are the hierarchies of control groups v1 in which the JDK from version 25 on looks, unless /sys/fs/cgroup is v2's own
// file system.
func shownHierarchies() []string { return []string{"memory", "cpu", "cpuacct", "cpuset"} }

// cpuBound is what processors programs may use.
type cpuBound struct {
	cpus   []int // the numbers of processors, ascending
	quota  int64 // microseconds of processor time per period; 0: no bound
	period int64
}

// ownCPUBound returns that of this process, which programs inherit.
func ownCPUBound() cpuBound {
	var b cpuBound
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for n := range 8 * len(set) * 8 {
			if set.IsSet(n) {
				b.cpus = append(b.cpus, n)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return b
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return b
	}
	for _, p := range groupPlaces(string(mounts), string(own)) {
		for dir := p.own; strings.HasPrefix(dir, p.mount); dir = filepath.Dir(dir) {
			switch p.controller {
			case unified:
				raw, _ := os.ReadFile(filepath.Join(dir, "cpu.max")) // the root has none
				if f := strings.Fields(string(raw)); len(f) == 2 {
					b.lower(parseNumber([]byte(f[0])), parseNumber([]byte(f[1]))) // "max" is no number
				}
			case "cpu":
				b.lower(number(dir, "cpu.cfs_quota_us"), number(dir, "cpu.cfs_period_us"))
			}
			if dir == p.mount {
				break
			}
		}
	}
	return b
}

// lower applies a further bound.
func (b *cpuBound) lower(quota, period int64) {
	if quota > 0 && period > 0 && (b.quota == 0 || quota*b.period < b.quota*period) {
		b.quota, b.period = quota, period
	}
}

// online returns the list of processors that a program may keep busy, as in /sys/devices/system/cpu/online.
func (b cpuBound) online() string {
	cpus := b.cpus
	if b.quota > 0 {
		if whole := int((b.quota + b.period - 1) / b.period); whole < len(cpus) {
			cpus = cpus[:whole]
		}
	}
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		part := strconv.Itoa(cpus[i])
		if j > i {
			part += "-" + strconv.Itoa(cpus[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",") + "\n"
}

// makeShown makes the files of boxShown in dir, with the bound on processors and without a limit of memory.
func makeShown(dir string, cpu cpuBound) error {
	for _, name := range shownHierarchies() {
		if err := os.MkdirAll(filepath.Join(dir, "cgroup", name), 0o755); err != nil { //nolint:gosec // programs read it
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(dir, emptyFolder), 0o755); err != nil { //nolint:gosec // it is empty
		return err
	}
	maxV2, quota, period := "max 100000\n", int64(-1), int64(100_000)
	if cpu.quota > 0 {
		quota, period = cpu.quota, cpu.period
		maxV2 = fmt.Sprintf("%d %d\n", quota, period)
	}
	text := map[string]string{
		emptyFile:                      "",
		"cgroup/cgroup.controllers":    "cpuset cpu memory pids\n",
		"cgroup/cpu.max":               maxV2,
		"cgroup/cpu/cpu.cfs_quota_us":  fmt.Sprintln(quota),
		"cgroup/cpu/cpu.cfs_period_us": fmt.Sprintln(period),
		"cgroup/memory.swap.max":       "0\n",
		"cgroup/memory/cpu.max":        maxV2, // see showMemory
		// All of v2: the JDK up to version 24 decides by it.
		"cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\ncpuacct\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n",
	}
	if len(cpu.cpus) > 0 {
		text["online"] = cpu.online()
	}
	for name, content := range text {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil { //nolint:gosec // programs read it
			return err
		}
	}
	return showMemory(dir, 0)
}

// showMemory changes the files to a limit of memory in bytes; 0 is none. No program runs.
func showMemory(dir string, limit int64) error {
	v2, v1 := "max\n", int64(unlimitedV1)
	if limit > 0 {
		v2, v1 = fmt.Sprintln(limit), limit
	}
	host, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		// JDK 17 looks for files of v2 where it has first found a mount, which may be that of a hierarchy of v1.
		"cgroup/memory.max": v2, "cgroup/memory/memory.max": v2, "cgroup/memory.high": "max\n", "cgroup/memory/memory.limit_in_bytes": fmt.Sprintln(v1),
		"cgroup/memory/memory.memsw.limit_in_bytes": fmt.Sprintln(v1), "meminfo": meminfo(string(host), limit),
	} {
		// Written in place: a mount shows the file and not its name.
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil { //nolint:gosec // programs read it
			return err
		}
	}
	return nil
}

// meminfo returns /proc/meminfo for a machine that has no more memory than limit, and no swap. The other values that host has are 0,
// because they tell about other programs.
func meminfo(host string, limit int64) string {
	if limit <= 0 {
		return host
	}
	var b strings.Builder
	for line := range strings.Lines(host) {
		name, value, ok := strings.Cut(line, ":")
		f := strings.Fields(value)
		if !ok || len(f) == 0 {
			continue
		}
		n := int64(0)
		switch name {
		case "MemTotal", "MemFree", "MemAvailable", "CommitLimit":
			n = min(parseNumber([]byte(f[0])), limit>>10)
		case "Hugepagesize", "VmallocTotal":
			n = parseNumber([]byte(f[0]))
		}
		unit := ""
		if len(f) > 1 {
			unit = " " + f[1]
		}
		fmt.Fprintf(&b, "%-15s %8d%s\n", name+":", n, unit)
	}
	return b.String()
}

// show tells the programs of b that come their limit of memory in bytes. No program runs. b may be nil.
func (b *Box) show(limit int64) error {
	if b == nil || b.shownMemory == limit {
		return nil
	}
	if err := showMemory(filepath.Join(b.dir, boxShown), limit); err != nil {
		return fmt.Errorf("show the limit of memory: %w", err)
	}
	b.shownMemory = limit
	return nil
}

// hierarchyTrees opens the machine's mounts of control groups v1 that programs find in /proc/self/mountinfo. What cannot be opened is left out.
func hierarchyTrees() map[string]int {
	trees := map[string]int{}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return trees
	}
	defer f.Close() //nolint:errcheck // nothing was written
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(kind) < 3 || kind[0] != "cgroup" {
			continue
		}
		for option := range strings.SplitSeq(kind[2], ",") {
			for _, name := range shownHierarchies() {
				if _, had := trees[name]; had || option != name {
					continue
				}
				if tree, err := unix.OpenTree(unix.AT_FDCWD, mount[4], unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err == nil {
					trees[name] = tree
				}
			}
		}
	}
	return trees
}

// mountShown mounts what programs read about their limits. The root folder of the process is the box's tmpfs. The JDK believes in control
// groups only if /proc/self/mountinfo has them, so there are some, which the files hide. Where the kernel refuses those the files remain.
func mountShown(proc string, trees map[string]int) error {
	groups := "/" + boxRoot + "/sys/fs/cgroup"
	for name, tree := range trees {
		_ = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: readOnly | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE})
		_ = unix.MoveMount(tree, "", unix.AT_FDCWD, groups+"/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		_ = unix.Close(tree)
	}
	runtime.LockOSThread() // the namespace is the thread's
	defer runtime.UnlockOSThread()
	_ = unix.Unshare(unix.CLONE_NEWCGROUP) // a user namespace mounts those of its own namespace only
	// Not read-only at once: that would make the file system so, which all mounts share.
	if unix.Mount("cgroup2", groups, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") == nil {
		if err := unix.MountSetattr(unix.AT_FDCWD, groups, 0, &unix.MountAttr{Attr_set: readOnly}); err != nil {
			return fmt.Errorf("mount control groups: read-only: %w", err)
		}
	}
	for from, to := range map[string]string{
		"cgroup": groups, "meminfo": proc + "/meminfo", "cgroups": proc + "/cgroups", "online": "/" + boxRoot + "/sys/devices/system/cpu/online",
	} {
		from = "/" + boxShown + "/" + from
		err := unix.Mount(from, to, "", unix.MS_BIND, "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.MountSetattr(unix.AT_FDCWD, to, 0, &unix.MountAttr{Attr_set: readOnly | unix.MOUNT_ATTR_NOEXEC})
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
	}
	return nil
}
