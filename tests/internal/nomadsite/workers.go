package nomadsite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

const (
	workersJob = "workers"
	service    = "site-worker"
	// firstUID is the first of the users of the workers' programs. Each worker has usersOfOne of them, because all are on one machine.
	firstUID, usersOfOne = 213000, 40
)

// StartWorkers runs a job with that many workers, with uv inside and that many slots each.
func (s *Site) StartWorkers(count, slots int) error {
	config := fmt.Sprintf(`data_dir: {{ env "NOMAD_TASK_DIR" }}/data
backend: uv
backends:
  uv:
    cache_dir: %s/cache
    work_dir: %s/work-{{ env "NOMAD_ALLOC_INDEX" }}
    run_as: {{ env "NOMAD_ALLOC_INDEX" | parseInt | multiply %d | add %d }}-{{ env "NOMAD_ALLOC_INDEX" | parseInt | multiply %d | add %d }}
    warm_sessions: -1
worker:
  bind: {{ env "NOMAD_ADDR_worker" }}
  max_concurrent: %d
  tls: %s
`, s.dir, s.dir, usersOfOne, firstUID, usersOfOne, firstUID+usersOfOne-1, slots, s.tls("client"))
	task := api.NewTask("worker", "raw_exec")
	task.Config = map[string]any{"command": s.binary, "args": []string{"worker", "--config", "${NOMAD_TASK_DIR}/worker.yaml"}}
	path, kill := "local/worker.yaml", time.Minute
	task.Templates = []*api.Template{{EmbeddedTmpl: &config, DestPath: &path}}
	task.KillTimeout = &kill
	cpu, memory := 2000, 8192 // the weight of its control group, and a bound on its memory, programs included
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
	group := api.NewTaskGroup("worker", count).AddTask(task)
	attempts, interval, delay, mode := 1000, time.Hour, time.Second, "delay"
	group.RestartPolicy = &api.RestartPolicy{Attempts: &attempts, Interval: &interval, Delay: &delay, Mode: &mode}
	noDeployments := 0 // one that is under way would refuse another count
	group.Update = &api.UpdateStrategy{MaxParallel: &noDeployments}
	group.Networks = []*api.NetworkResource{{Mode: "host", DynamicPorts: []api.Port{{Label: "worker"}}}}
	group.Services = []*api.Service{{Name: service, Provider: "nomad", PortLabel: "worker"}}
	job := api.NewServiceJob(workersJob, workersJob, "global", 50).AddDatacenter("*").AddTaskGroup(group)
	_, _, err := s.Cluster.API().Jobs().Register(job, nil)
	s.workers = count
	return err
}

// Scale changes the number of workers. It does not wait for it.
func (s *Site) Scale(count int) error {
	_, _, err := s.Cluster.API().Jobs().Scale(workersJob, "worker", &count, "the site", false, nil, nil)
	s.workers = count
	return err
}

// stopWorkers stops the workers, if there are any, and waits for their end.
func (s *Site) stopWorkers() error {
	if s.workers == 0 {
		return nil
	}
	s.workers = 0
	if _, _, err := s.Cluster.API().Jobs().Deregister(workersJob, false, nil); err != nil {
		return err
	}
	return serve.Await("the end of the workers", func() (bool, error) {
		live, err := s.live()
		return err == nil && live[workersJob] == 0 && len(s.processes()) == 0, err
	})
}

// KillWorker kills one of the workers (-9), and waits until Nomad has started another process in its place.
func (s *Site) KillWorker(n int) error {
	var victims []int
	if err := serve.Await("the workers run", func() (bool, error) {
		victims = s.processes()
		return len(victims) == s.workers, nil
	}); err != nil {
		return err
	}
	victim := victims[n%len(victims)]
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill worker %d: %w", victim, err)
	}
	return serve.Await("another worker in the place of the killed one", func() (bool, error) {
		now := s.processes()
		return len(now) == s.workers && !slices.Contains(now, victim), nil
	})
}

// processes returns the workers' processes, without those of their plugins.
func (s *Site) processes() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // only a malformed pattern fails
	for _, file := range files {
		raw, _ := os.ReadFile(file) // it may have ended
		config, found := bytes.CutPrefix(raw, []byte(s.binary+"\x00worker\x00--config\x00"))
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/cmdline", &pid); err == nil && found && bytes.Contains(config, []byte("/"+s.cluster()+"/")) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
