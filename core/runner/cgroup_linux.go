package runner

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
)

// unified is the key of a v2 folder in Cgroups.
const unified = "unified"

// killPatience bounds how long a kill is repeated: what is alive then hangs in the kernel.
const killPatience = 10 * time.Second

// Cgroups are control group folders by controller: "memory", "pids", "cpu", "cpuacct" (v1) and "unified" (v2, with
// whichever controllers it has; without any it still kills reliably). It is what Config.Cgroups holds.
type Cgroups map[string]string

// Enforces reports whether a limit of controller ("memory", "pids", "cpu") holds in children of c.
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

// Make makes the group name below each folder of c and returns those. It is no error if one exists.
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

// delegate gives the controllers of a v2 group to its children. A controller that cannot be given shows in Enforces of
// the child; a group with processes of its own cannot give any.
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

// Child returns the group name below c without making it.
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

// Kill kills every process in c and below, this process and its threads excepted, and returns when none is left that
// is not a zombie, or after a bounded number of attempts with an error.
func (c Cgroups) Kill() error {
	deadline := time.Now().Add(killPatience)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left := c.killOnce()
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of %s do not die", left, filepath.Base(c.folders()[0]))
		}
		time.Sleep(pause)
	}
}

// killOnce kills all and returns how many there were.
func (c Cgroups) killOnce() int {
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
	return len(found)
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

// Remove kills what is in c and removes c and all groups below it. Idempotent.
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

// removeEmpty removes c if nothing is in it, which the kernel knows best.
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
	deadline := time.Now().Add(killPatience)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := syscall.Rmdir(dir)
		// The last process of a group is gone a moment before the group counts as empty.
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			if err != nil && !errors.Is(err, syscall.ENOENT) {
				return fmt.Errorf("remove control group %s: %w", dir, err)
			}
			return nil
		}
		time.Sleep(pause)
	}
}

// writeGroup writes one control file. It does not create: a file that is not there means a controller that is not.
func writeGroup(dir, file, value string) error {
	// Not by os.File: it would try each of them with the poller, and wake the thread that sits in it.
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(dir+"/"+file, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(dir, file), Err: err}
	}
	err = writeControl(fd, value)
	_ = unix.Close(fd) // it has no error of its own
	if err != nil {
		return &fs.PathError{Op: "write", Path: filepath.Join(dir, file), Err: err}
	}
	return nil
}

// writeControl writes to an open control file, which takes a value whole or not at all.
func writeControl(fd int, value string) error {
	_, err := ignoringEINTR(func() (int, error) { return unix.Write(fd, []byte(value)) })
	return err
}

// readGroup reads the beginning of one control file, enough for those with a value or a few lines.
func readGroup(dir, file string) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(dir+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	buf := make([]byte, 4096)
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, buf) })
	return buf[:max(n, 0)], err
}
