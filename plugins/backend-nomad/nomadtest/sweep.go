package nomadtest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// mark is a variable in the environment of agents, with the folder of their cluster. The processes that they start inherit it.
const mark = "PYEXEC_NOMADTEST"

// labelNode is the label of a container with the name of its node.
const labelNode = "com.hashicorp.nomad.node_name"

// sweep removes the clusters of test processes that were killed.
func sweep() { leftovertest.Sweep(prefix, remove) }

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
	leftovertest.Unmount(dir) // Nomad mounts a tmpfs for the secrets of each task
	removeGroups(agents)
	return errors.Join(err, os.RemoveAll(dir))
}

// end kills the agents of the cluster in dir and the processes that they started: of tasks without isolation, and those that keep
// their output.
func end(dir string) error {
	return leftovertest.End(func() []int { return members(dir) }, unix.SIGKILL)
}

// members returns the processes with the mark of dir in their environment.
func members(dir string) []int {
	return leftovertest.Processes("environ", func(content string) bool {
		return slices.Contains(strings.Split(content, "\x00"), mark+"="+dir)
	})
}

// removeGroups removes the control groups of the allocations of agents, which are given by the paths of their settings. All agents of a
// machine have theirs below one group.
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
