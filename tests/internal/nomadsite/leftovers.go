package nomadsite

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// cluster returns the name that begins those of the agents. It is also the name of a folder in the paths of all allocations.
func (s *Site) cluster() string { return strings.TrimSuffix(s.Cluster.Server.Name, "-server") }

// live returns by job how many allocations have not ended.
func (s *Site) live() (map[string]int, error) {
	list, _, err := s.Cluster.API().Allocations().List(nil)
	live := map[string]int{}
	for _, a := range list {
		if a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusUnknown {
			live[a.JobID]++
		}
	}
	return live, err
}

// Leftovers returns what is there of executions although all have ended: allocations, containers, programs on workers.
func (s *Site) Leftovers() (left []string, err error) {
	live, err := s.live()
	if err != nil {
		return nil, err
	}
	if n := live[workersJob]; n != s.workers {
		left = append(left, fmt.Sprintf("%d allocations of %d workers", n, s.workers))
	}
	delete(live, workersJob)
	for job, n := range live {
		left = append(left, fmt.Sprintf("%d allocations of %s", n, job))
	}
	for _, client := range s.Cluster.Clients {
		out, err := exec.Command("docker", "--host", s.Cluster.Docker(), "ps", "--all", "--quiet",
			"--filter", "label=com.hashicorp.nomad.node_name="+client.Name).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("docker ps: %w: %s", err, out)
		}
		for id := range strings.FieldsSeq(string(out)) {
			left = append(left, "container "+id)
		}
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		raw, _ := os.ReadFile(name) // it may have ended
		if bytes.Contains(raw, []byte("HOME="+s.dir+"/work-")) {
			left = append(left, "process "+filepath.Base(filepath.Dir(name)))
		}
	}
	return left, err
}

// Repeated returns the jobs of executions whose program was started more than once. An allocation that failed before does not count.
func (s *Site) Repeated() (jobs []string, err error) {
	list, _, err := s.Cluster.API().Allocations().List(nil)
	started := map[string]int{}
	for _, a := range list {
		if task := a.TaskStates["program"]; task != nil && !task.StartedAt.IsZero() {
			if started[a.JobID]++; started[a.JobID] == 2 {
				jobs = append(jobs, a.JobID)
			}
		}
	}
	return jobs, err
}
