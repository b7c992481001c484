package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
)

// unified is the key of a v2 folder in Cgroups.
const unified = "unified"

// Cgroups are control group folders by controller: memory, pids, cpu and cpuacct on v1, and unified on v2, with the controllers
// that it has. A unified folder without any can still be killed reliably. Config.Cgroups holds a Cgroups.
type Cgroups map[string]string

// Enforces reports whether limits of controller (memory, pids or cpu) hold in children of c.
func (c Cgroups) Enforces(controller string) bool {
	if c[controller] != "" {
		return true
	}
	if c[unified] == "" {
		return false
	}
	have, err := os.ReadFile(filepath.Join(c[unified], "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(have)), controller)
}

// Make makes the group name below each folder of c and returns those. The group may exist already.
func (c Cgroups) Make(name string) (Cgroups, error) {
	child := c.Child(name)
	delegate(c[unified])
	for _, dir := range child.folders() {
		//nolint:gosec // what a group tells is no secret, and only its owner can change it
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(fmt.Errorf("make control group: %w", err), child.Remove())
		}
	}
	return child, nil
}

// delegate gives the controllers of a v2 group to its children. A group with processes of its own cannot give any. Enforces of
// the child tells which were given.
func delegate(dir string) {
	if dir == "" {
		return
	}
	have, err := readGroup(dir, "cgroup.controllers")
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(have)) {
		if controller == "memory" || controller == "pids" || controller == "cpu" {
			_ = writeGroup(dir, "cgroup.subtree_control", "+"+controller) // see above
		}
	}
}

// Child returns the group name below c. It does not make it.
func (c Cgroups) Child(name string) Cgroups {
	child := make(Cgroups, len(c))
	for controller, dir := range c {
		child[controller] = filepath.Join(dir, name)
	}
	return child
}

// Children returns the names of the groups below c, sorted, each once.
func (c Cgroups) Children() []string {
	var names []string
	for _, dir := range c.folders() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// folders returns the folders, sorted, each once: v1 controllers may share one.
func (c Cgroups) folders() []string {
	return slices.Compact(slices.Sorted(maps.Values(c)))
}

// Kill kills every process in c and below, except this process and its threads. It returns when all that is left are zombies,
// or with an error when Patience is over.
func (c Cgroups) Kill() error {
	if left := RepeatKill(c.KillOnce); len(left) > 0 {
		return fmt.Errorf("%d processes of %s do not die", len(left), filepath.Base(c.folders()[0]))
	}
	return nil
}

// KillOnce kills each process in c and below once, and returns them.
func (c Cgroups) KillOnce() []int {
	self := os.Getpid()
	found := map[int]bool{}
	for controller, dir := range c {
		pids := groupPIDs(dir)
		if len(pids) == 0 {
			continue
		}
		switch {
		case controller == unified && !slices.Contains(pids, self):
			_ = writeGroup(dir, "cgroup.kill", "1") // before Linux 5.14 there is none; the signals below do it
		case controller == "pids":
			_ = writeGroup(dir, "pids.max", "0") // a fork bomb cannot outrun us
		}
		for _, pid := range pids {
			if pid != self {
				found[pid] = true
			}
		}
	}
	for pid := range found {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
	return slices.Collect(maps.Keys(found))
}

// groupPIDs lists the processes in dir and below.
func groupPIDs(dir string) []int {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for line := range bytes.FieldsSeq(raw) {
		if pid, err := strconv.Atoi(string(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return pids
	}
	for _, e := range entries {
		if e.IsDir() {
			pids = append(pids, groupPIDs(filepath.Join(dir, e.Name()))...)
		}
	}
	return pids
}

// Remove kills all processes in c and removes c with all groups below it. Idempotent.
func (c Cgroups) Remove() error {
	if len(c) == 0 || c.removeEmpty() {
		return nil
	}
	err := c.Kill()
	for _, dir := range c.folders() {
		err = errors.Join(err, removeGroup(dir))
	}
	return err
}

// removeEmpty removes c if it has no processes.
func (c Cgroups) removeEmpty() bool {
	for _, dir := range c.folders() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return false
		}
	}
	return true
}

func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove control group: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	deadline := time.Now().Add(KillPatience)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := syscall.Rmdir(dir)
		// The last process of a group has ended a moment before the kernel counts the group as empty.
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			if err != nil && !errors.Is(err, syscall.ENOENT) {
				return fmt.Errorf("remove control group %s: %w", dir, err)
			}
			return nil
		}
		time.Sleep(pause)
	}
}

// openControl opens a control file that exists. If it does not, the controller does not exist. os.Open would register each file
// with the poller, and wake the poller's thread.
func openControl(dir, file string, flags int) (int, error) {
	fd, err := archive.OpenAt(unix.AT_FDCWD, dir+"/"+file, flags, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: filepath.Join(dir, file), Err: err}
	}
	return fd, nil
}

// keepControl opens a control file that is read several times. It returns nil if it cannot be opened.
func keepControl(dir, file string, flags int) *os.File {
	fd, err := openControl(dir, file, flags)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), file) //nolint:gosec // a descriptor
}

// readControl returns what f contains now, or nothing. f may be nil. Nearly all files are short.
func readControl(f *os.File) []byte {
	if f == nil {
		return nil
	}
	var short [128]byte
	if n := readAtStart(f, short[:]); n < len(short) {
		return slices.Clone(short[:n])
	}
	buf := make([]byte, 4096)
	return buf[:readAtStart(f, buf)]
}

// readAtStart fills buf with the beginning of f. The kernel gives as much as there is in one call. f may be closed meanwhile.
func readAtStart(f *os.File, buf []byte) (n int) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = c.Control(func(fd uintptr) { // a file that is closed or cannot be read has nothing
		n, _ = archive.IgnoringEINTR(func() (int, error) { return unix.Pread(int(fd), buf, 0) })
	})
	return max(n, 0)
}

func writeGroup(dir, file, value string) error {
	fd, err := openControl(dir, file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	err = writeControl(fd, value)
	_ = unix.Close(fd) // it has no error of its own
	if err != nil {
		return &fs.PathError{Op: "write", Path: filepath.Join(dir, file), Err: err}
	}
	return nil
}

// writeControl writes to an open control file. The file takes a whole value or nothing.
func writeControl(fd int, value string) error {
	_, err := archive.IgnoringEINTR(func() (int, error) { return unix.Write(fd, []byte(value)) })
	return err
}

// readGroup reads the beginning of a control file, which is enough for a value or a few lines.
func readGroup(dir, file string) ([]byte, error) {
	fd, err := openControl(dir, file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	buf := make([]byte, 4096)
	n, err := archive.IgnoringEINTR(func() (int, error) { return unix.Read(fd, buf) })
	return buf[:max(n, 0)], err
}

// hasLine reports whether a control file of any size has line.
func hasLine(dir, file, line string) bool {
	fd, err := openControl(dir, file, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	all, buf := []byte("\n"), make([]byte, 4096)
	for {
		n, err := archive.IgnoringEINTR(func() (int, error) { return unix.Read(fd, buf) })
		if err != nil || n <= 0 {
			return false
		}
		if all = append(all, buf[:n]...); bytes.Contains(all, []byte("\n"+line+"\n")) {
			return true
		}
	}
}

// memoryFiles are the control files of a memory controller.
type memoryFiles struct{ now, limit, peak, events string }

func memoryFilesOf(v2 bool) memoryFiles {
	if v2 {
		return memoryFiles{"memory.current", "memory.max", "memory.peak", "memory.events"}
	}
	return memoryFiles{"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"}
}

// number returns the value of a file, and 0 if it is unknown or no number.
func number(dir, file string) int64 {
	if dir == "" {
		return 0
	}
	raw, _ := readGroup(dir, file) // nothing is no number
	return parseNumber(raw)
}

func parseNumber(raw []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// keyed returns one value of a file of "key value" lines.
func keyed(dir, file, key string) int64 {
	raw, _ := readGroup(dir, file) // nothing has no value
	return parseKeyed(raw, key)
}

func parseKeyed(raw []byte, key string) int64 {
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == key {
			return parseNumber(f[1])
		}
	}
	return 0
}
