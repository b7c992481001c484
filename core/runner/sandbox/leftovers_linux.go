package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Marks tell the processes of an installation from all others. A process is marked if
//   - its current folder, its root, its program, HOME or TMPDIR lies in one of Folders,
//   - its mount namespace has a mount in one of Folders that this process does not have,
//   - one of its control groups has a name that Group accepts, or
//   - it descends from a marked process.
//
// A program can change its current folder and its environment. It cannot change its control group.
type Marks struct {
	// Folders are the installation's own.
	Folders []string
	// Group may be nil.
	Group func(name string) bool
}

// anyUID makes KillLeftovers look at the processes of all uids.
const anyUID = 0

// strangerPatience is how long a process without a mark is watched. A process that is ending has no mark for a moment.
const strangerPatience = time.Second

// KillLeftovers kills the marked processes that an earlier host has left, and returns how many. A uid that is not 0 limits it
// to the processes of that uid. It is then an error if a process without a mark is left, which is not touched. This process,
// its ancestors, and processes that this user may not signal are spared.
func KillLeftovers(m Marks, uid int) (int, error) {
	if uid != anyUID && !HasProcess(uid) {
		return 0, nil
	}
	own := mountPoints(os.Getpid())
	killed := map[int]bool{}
	begun, patience := time.Now(), NewPatience()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left, strangers, err := m.end(uid, own, killed)
		waited := time.Since(begun)
		switch {
		case err != nil:
			return len(killed), err
		case len(left) == 0 && len(strangers) == 0:
			return len(killed), nil
		case len(left) > 0 && patience.Over(func() []int { return left }):
			return len(killed), fmt.Errorf("processes of an earlier run do not die: %v", left)
		case len(left) == 0 && waited > strangerPatience:
			return len(killed), fmt.Errorf("uid %d has processes that are not ours: %v", uid, strangers)
		}
		time.Sleep(pause)
	}
}

// HasProcess reports whether a process, or a zombie, may have uid as its real uid. It asks the kernel in one call. A program without
// capabilities cannot change its real uid.
func HasProcess(uid int) bool {
	_, err := unix.Getpriority(unix.PRIO_USER, uid)
	return !errors.Is(err, unix.ESRCH)
}

// end kills the marked processes once and notes them in killed. It returns them and, with a uid, that uid's processes without a
// mark.
func (m Marks) end(uid int, own []string, killed map[int]bool) (left, strangers []int, err error) {
	all, err := otherProcesses()
	if err != nil {
		return nil, nil, fmt.Errorf("find leftovers: %w", err)
	}
	seen := map[int]bool{} // by process: it is marked
	for pid, p := range all {
		if uid != anyUID && !slices.Contains(p.uids, uid) || uid == anyUID && !mayEnd(p) {
			continue
		}
		// The descriptor names the process that was looked at, also if another process gets its number.
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue // it is gone
		}
		if m.family(pid, all, own, seen) {
			left = append(left, pid)
			killed[pid] = true
			signalKill(fd, pid)
		} else if uid != anyUID {
			strangers = append(strangers, pid)
		}
		if fd >= 0 {
			_ = unix.Close(fd) // it has no error of its own
		}
	}
	return left, strangers, nil
}

// signalKill kills a process. fd is negative if the kernel has no descriptors of processes.
func signalKill(fd, pid int) {
	if fd >= 0 {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // the next look tells whether it worked
		return
	}
	_ = unix.Kill(pid, unix.SIGKILL) // likewise
}

// mayEnd reports whether this user may signal p.
func mayEnd(p processInfo) bool {
	uid := os.Geteuid()
	return uid == 0 || len(p.uids) > 0 && p.uids[0] == uid
}

// family reports whether a process, or one of its ancestors in all, is marked.
func (m Marks) family(pid int, all map[int]processInfo, own []string, seen map[int]bool) bool {
	for range len(all) { // numbers that are used again could make a ring
		p, ok := all[pid]
		if !ok {
			return false
		}
		marked, known := seen[pid]
		if !known {
			marked = m.on(pid, own)
			seen[pid] = marked
		}
		if marked {
			return true
		}
		pid = p.parent
	}
	return false
}

// on reports whether a process itself is marked. What this user may not read is no mark.
func (m Marks) on(pid int, own []string) bool {
	proc := procfs(pid)
	for _, link := range []string{"/cwd", "/root", "/exe"} {
		if path, err := os.Readlink(proc + link); err == nil && m.inside(path) {
			return true
		}
	}
	environ, _ := os.ReadFile(proc + "/environ") //nolint:gosec // a path of procfs
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := strings.Cut(string(kv), "=")
		if (name == "HOME" || name == "TMPDIR") && m.inside(value) {
			return true
		}
	}
	if m.Group != nil {
		groups, _ := os.ReadFile(proc + "/cgroup") //nolint:gosec // a path of procfs
		for line := range strings.Lines(string(groups)) {
			if slices.ContainsFunc(strings.Split(strings.TrimSpace(line), "/"), m.Group) {
				return true
			}
		}
	}
	return slices.ContainsFunc(mountPoints(pid), func(path string) bool { return m.inside(path) && !slices.Contains(own, path) })
}

// inside reports whether path is one of the folders or lies below one.
func (m Marks) inside(path string) bool {
	path = strings.TrimSuffix(path, " (deleted)")
	return filepath.IsAbs(path) && slices.ContainsFunc(m.Folders, func(dir string) bool {
		return dir != "" && dir != "/" && below(filepath.Clean(path), filepath.Clean(dir))
	})
}

// mountEscapes are the escapes of mountinfo.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountPoints lists the mount points of a process.
func mountPoints(pid int) []string {
	raw, err := os.ReadFile(procfs(pid) + "/mountinfo") //nolint:gosec // a path of procfs
	if err != nil {
		return nil
	}
	var points []string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 4 {
			points = append(points, strings.TrimSuffix(mountEscapes.Replace(f[4]), "//deleted"))
		}
	}
	return points
}

// processInfo is what identifies the owner of a process.
type processInfo struct {
	parent int
	uids   []int // real, effective, saved, and that of the file system
}

// otherProcesses lists the processes of this machine, except this one, its ancestors and zombies.
func otherProcesses() (map[int]processInfo, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]processInfo{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := readGroup("/proc/"+e.Name(), "status") // the values are among the first lines
		if err != nil {
			continue
		}
		if p, ok := parseProcess(string(raw)); ok {
			all[pid] = p
		}
	}
	for pid := os.Getpid(); pid > 0; {
		parent := all[pid].parent
		delete(all, pid)
		pid = parent
	}
	return all, nil
}

// parseProcess reads a status file of procfs. It reports false if the process has ended.
func parseProcess(status string) (p processInfo, ok bool) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		switch {
		case len(f) == 0:
		case name == "State" && (f[0] == "Z" || f[0] == "X"):
			return p, false
		case name == "PPid":
			p.parent, _ = strconv.Atoi(f[0]) // the kernel's own number
		case name == "Uid":
			for _, text := range f {
				uid, err := strconv.Atoi(text)
				if err != nil {
					return p, false
				}
				p.uids = append(p.uids, uid)
			}
			return p, len(p.uids) > 0
		}
	}
	return p, false
}

// ProcessStat is a process as procfs tells of it.
type ProcessStat struct {
	Name    string
	State   byte // a letter; 0 if the process is gone
	Parent  int
	Started int64 // in ticks since the machine's start
}

// ReadProcess returns the ProcessStat of a process, and the zero value if the process is gone.
func ReadProcess(pid int) ProcessStat {
	raw, err := os.ReadFile(procfs(pid) + "/stat")                        //nolint:gosec // a path of procfs
	open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')') // the name between may contain anything
	if err != nil || open < 0 || end < open {
		return ProcessStat{}
	}
	f := bytes.Fields(raw[end+1:])
	if len(f) < 2 {
		return ProcessStat{}
	}
	p := ProcessStat{Name: string(raw[open+1 : end]), State: f[0][0], Parent: int(parseNumber(f[1]))}
	if len(f) > 19 {
		p.Started = parseNumber(f[19])
	}
	return p
}
