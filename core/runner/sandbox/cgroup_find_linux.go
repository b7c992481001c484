package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FindCgroups returns the folders in which this process may make groups. The error tells why a controller of the kernel cannot
// be used; the folders that were found are returned, too.
func FindCgroups() (Cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Cgroups{}, fmt.Errorf("find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Cgroups{}, fmt.Errorf("find control groups: %w", err)
	}
	found := Cgroups{}
	var problems []error
	for _, p := range groupPlaces(string(mounts), string(own)) {
		dir, err := p.writable()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		found[p.controller] = dir
	}
	return found, errors.Join(problems...)
}

// OwnGroup returns the v2 group of this process. It returns "" if the controllers of this machine are those of v1, or if there is no
// file system of control groups.
func OwnGroup() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return ownGroup(string(mounts), string(own))
}

func ownGroup(mountinfo, cgroup string) string {
	dir := ""
	for _, p := range groupPlaces(mountinfo, cgroup) {
		if p.controller != unified {
			return ""
		}
		dir = p.own
	}
	return dir
}

// hostGroup is the name of the group that MakeRoom moves processes into.
const hostGroup = "host"

// MakeRoom moves all processes of the v2 group dir into a child of it, because a group with processes gives its children no
// controllers. Processes that are forked meanwhile are moved, too.
func MakeRoom(dir string) error {
	host := filepath.Join(dir, hostGroup)
	//nolint:gosec // what a group tells is no secret, and only its owner can change it
	if err := os.Mkdir(host, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make control group: %w", err)
	}
	for range 100 { // a process that forks faster than this is none of ours
		left, err := readGroup(dir, "cgroup.procs")
		if err != nil || len(left) == 0 {
			return err
		}
		for pid := range strings.FieldsSeq(string(left)) {
			if err := writeGroup(host, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return fmt.Errorf("control group %s does not become empty", dir)
}

// groupPlace is the place of this process in one hierarchy.
type groupPlace struct {
	controller string
	mount      string
	own        string
}

// groupPlaces finds the hierarchies of our controllers in the texts of /proc/self/mountinfo and /proc/self/cgroup.
func groupPlaces(mountinfo, cgroup string) []groupPlace {
	own := map[string]string{}
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[0] == "0" && parts[1] == "" {
			own[unified] = parts[2]
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	var places []groupPlace
	seen := map[string]bool{}
	add := func(controller, root, mount string) {
		at, ok := own[controller]
		if !ok || seen[controller] {
			return
		}
		seen[controller] = true
		inside := "/" // of a cgroup namespace we see no more than the mount itself
		if root == "/" {
			inside = at
		} else if rest, ok := strings.CutPrefix(at, root); ok {
			inside = rest
		}
		places = append(places, groupPlace{controller, mount, filepath.Join(mount, path.Clean("/"+inside))})
	}
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			add(unified, mount[3], mount[4])
		case "cgroup":
			for option := range strings.SplitSeq(kind[2], ",") {
				switch option {
				case "memory", "pids", "cpu", "cpuacct":
					add(option, mount[3], mount[4])
				}
			}
		}
	}
	return places
}

// writable finds the folder nearest to this process's place in which a group can be made. On v2 a folder is better if its
// children get the memory controller. The process's own folder cannot give any, because it has processes.
func (p groupPlace) writable() (string, error) {
	var kept string
	var first error
	for dir := p.own; ; dir = filepath.Dir(dir) {
		limits, err := p.try(dir)
		if err == nil && limits {
			return dir, nil
		}
		if err == nil && kept == "" {
			kept = dir
		}
		if first == nil {
			first = err
		}
		if dir == p.mount || !strings.HasPrefix(dir, p.mount) {
			break
		}
	}
	if kept != "" {
		return kept, nil
	}
	return "", fmt.Errorf("control group %s: %w", p.controller, first)
}

// try makes a group in dir and removes it. limits reports whether memory can be limited in it, or whether it is of v1.
func (p groupPlace) try(dir string) (limits bool, err error) {
	if p.controller == unified {
		delegate(dir)
	}
	name, err := os.MkdirTemp(dir, "pyexec-probe-*")
	if err != nil {
		return false, err
	}
	limits = p.controller != unified
	if !limits {
		_, err := os.Stat(filepath.Join(name, "memory.max"))
		limits = err == nil
	}
	return limits, removeGroup(name)
}
