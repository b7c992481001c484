package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// mark is a variable in the environment of agents, with the folder of their cluster. The processes that they start inherit it.
const mark = "PYEXEC_NOMADTEST"

// labelNode is the label of a container with the name of its node.
const labelNode = "com.hashicorp.nomad.node_name"

// youth is how long a folder without a lock may be one that is just being made.
const youth = time.Minute

// sweep removes the clusters of test processes that were killed: folders whose lock is free, and those that were removed in part.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // only a malformed pattern fails
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < youth {
				continue // the folder was just created or removed
			}
		} else if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		if err := remove(dir); err != nil {
			fmt.Fprintln(os.Stderr, "sweep", dir+":", err)
		}
		lock.Close() // nil has no effect
	}
}

// remove removes all that belongs to the cluster in dir: processes, containers, mounts, control groups and files.
func remove(dir string) error {
	err := end(dir)
	agents, _ := filepath.Glob(filepath.Join(dir, "*/agent.hcl")) // only a malformed pattern fails
	if host, missing := os.ReadFile(filepath.Join(dir, "docker")); missing == nil {
		for _, agent := range agents {
			// A private daemon of a process that was killed is gone with its containers.
			_ = dockertest.RemoveContainers(string(host), labelNode+"="+nodeName(dir, filepath.Base(filepath.Dir(agent))))
		}
	}
	unmount(dir)
	removeGroups(agents)
	return errors.Join(err, os.RemoveAll(dir))
}

// end kills the agents of the cluster in dir and the processes that they started: of tasks without isolation, and those that keep
// their output.
func end(dir string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("processes of Nomad do not end"))
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		left := members(dir)
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %v", context.Cause(ctx), left)
		case <-again.C:
		}
	}
}

// members returns the processes with the mark of dir in their environment. A zombie has no environment any more.
func members(dir string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // only a malformed pattern fails
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(raw), "\x00"), mark+"="+dir) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unmount unmounts all mounts below dir, innermost first. Nomad mounts a tmpfs for the secrets of each task.
func unmount(dir string) {
	raw, _ := os.ReadFile("/proc/self/mounts")
	var below []string
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			below = append(below, fields[1])
		}
	}
	slices.Sort(below)
	slices.Reverse(below)
	for _, path := range below {
		_ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

// removeGroups removes the control groups of the allocations of agents, which are given by the paths of their settings. All agents of a machine have theirs below one group.
func removeGroups(agents []string) {
	for _, agent := range agents {
		allocations, _ := filepath.Glob(filepath.Join(filepath.Dir(agent), "data", "alloc", "*"))
		for _, dir := range allocations {
			for _, place := range []string{"/sys/fs/cgroup/nomad.slice/*", "/sys/fs/cgroup/*/nomad", "/sys/fs/cgroup/*/nomad/*"} {
				groups, _ := filepath.Glob(filepath.Join(place, filepath.Base(dir)+".*"))
				for _, group := range groups {
					_ = unix.Rmdir(group)
				}
			}
		}
	}
}
