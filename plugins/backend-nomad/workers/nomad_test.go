package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// ofTheWay are the rules that depend on what lies between the server and the runner on a worker: streams, ends of ctx, errors, messages.
var ofTheWay = []string{
	"BE-01", "BE-05", "BE-08", "BE-10", "BE-12", "BE-13", "BE-14", "BE-16", "BE-21", "BE-22", "BE-23", "BE-24", "BE-25", "BE-26", "BE-30",
	"BE-40", "BE-41", "BE-42", "BE-43", "BE-53", "BE-56", "BE-58", "BE-60", "BE-70", "BE-74", "BE-75", "BE-80", "BE-81", "BE-82",
	"BE-90", "BE-91", "BE-92", "EV-01", "EV-02", "EV-03", "EV-05", "EV-06",
	"SE-01", "SE-02", "SE-04", "SE-07", "SE-09", "SE-11", "SE-14", "SE-19", "SE-20", "SE-30", "SE-32", "SE-43", "SE-44",
}

// onACluster is the lane of the law with workers of a real cluster.
var onACluster = backendtest.LaneRules{
	Lane: backendtest.LaneDirect,
	Gate: []string{"BE-01", "BE-10", "BE-16", "BE-23", "BE-24", "BE-42", "BE-60", "BE-70", "BE-81", "SE-01", "SE-30"},
	Why:  "workers around the fake have the same way; a cluster adds the network, the agent and the uv backend behind it",
}

const serviceName = "test-worker"

// workersJob is a name of this process, by which the workers are recognised.
var workersJob = fmt.Sprintf("test-workers-%d", os.Getpid())

// realSite is a cluster with workers that the built binary is.
type realSite struct {
	cluster *nomadtest.Cluster
	client  *api.Client
	ca      *workertest.Authority
	dir     string
}

// uvInside is the configuration of workers that run programs with uv. Each has uids of its own, because all are on one machine.
func uvInside(s *realSite) string {
	return fmt.Sprintf(`backend: uv
backends:
  uv:
    cache_dir: %s/cache
    work_dir: %s/work-{{ env "NOMAD_ALLOC_INDEX" }}
    run_as: {{ if eq (env "NOMAD_ALLOC_INDEX") "0" }}213000-213032{{ else if eq (env "NOMAD_ALLOC_INDEX") "1" }}213033-213065{{ else }}213066-213099{{ end }}
    warm_sessions: -1
`, s.dir, s.dir)
}

// newRealSite registers a job with that many workers. inside returns the configuration of their backend.
func newRealSite(t *testing.T, count int, inside func(*realSite) string) *realSite {
	t.Helper()
	cluster := nomadtest.Shared(t)
	binary := nomadtest.Executor(t)
	s := &realSite{cluster: cluster, client: cluster.API(), ca: workertest.NewAuthority(t), dir: openDir(t)}
	t.Cleanup(func() { s.remove(t) })
	if _, _, err := s.client.Jobs().Register(s.job(binary, count, inside(s)), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// openDir returns a new folder that the uids of programs can enter. The caller removes it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pyexec-workers-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // see above
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// job returns the job of the workers.
func (s *realSite) job(binary string, count int, inside string) *api.Job {
	id := s.ca.Issue(worker.WorkerName)
	config := inside + fmt.Sprintf(`data_dir: {{ env "NOMAD_TASK_DIR" }}/data
worker:
  bind: {{ env "NOMAD_ADDR_worker" }}
  max_concurrent: 12
  drain_timeout_seconds: 20
  tls: {ca_cert: %s, cert: %s, key: %s}
`, id.CACert, id.Cert, id.Key)
	task := api.NewTask("worker", "raw_exec")
	task.Config = map[string]any{"command": binary, "args": []string{"worker", "--config", "${NOMAD_TASK_DIR}/worker.yaml"}}
	path, kill := "local/worker.yaml", 30*time.Second
	task.Templates = []*api.Template{{EmbeddedTmpl: &config, DestPath: &path}}
	task.KillTimeout = &kill
	cpu, memory := 10, 4096 // which Nomad enforces, programs included
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
	attempts, interval, delay, mode := 100, time.Hour, time.Second, "delay"
	group := api.NewTaskGroup("worker", count).AddTask(task)
	group.RestartPolicy = &api.RestartPolicy{Attempts: &attempts, Interval: &interval, Delay: &delay, Mode: &mode}
	noDeployments := 0 // a deployment under way would refuse another count
	group.Update = &api.UpdateStrategy{MaxParallel: &noDeployments}
	group.Networks = []*api.NetworkResource{{Mode: "host", DynamicPorts: []api.Port{{Label: "worker"}}}}
	group.Services = []*api.Service{{Name: serviceName, Provider: "nomad", PortLabel: "worker"}}
	return api.NewServiceJob(workersJob, workersJob, "global", 50).AddDatacenter("*").AddTaskGroup(group)
}

// remove stops the workers, and waits for their end.
func (s *realSite) remove(t *testing.T) {
	t.Helper()
	if t.Failed() {
		for _, id := range s.allocations(t) {
			text, _ := s.cluster.Command(context.Background(), "alloc", "logs", "-stderr", "-tail", "-n", "30", id).CombinedOutput()
			t.Logf("allocation %s:\n%s", id, text)
		}
	}
	if _, _, err := s.client.Jobs().Deregister(workersJob, false, nil); err != nil {
		t.Error(err)
	}
	awaittest.Until(t, "the end of the workers", func() bool { // a worker that Nomad is about to start again has no process
		list, _, err := s.client.Jobs().Allocations(workersJob, true, nil)
		return err == nil && len(s.processes()) == 0 && !slices.ContainsFunc(list, func(a *api.AllocationListStub) bool {
			return a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending
		})
	})
	if err := os.RemoveAll(s.dir); err != nil {
		t.Error(err)
	}
}

// processes returns the workers and their plugins.
func (s *realSite) processes() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "environ"))
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/cmdline", &pid); err == nil && strings.Contains(string(raw), "\x00worker\x00") &&
			strings.Contains(string(environ), "NOMAD_JOB_NAME="+workersJob+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *realSite) pool(t *testing.T) *Pool {
	c := Default()
	c.Service = serviceName
	return s.poolOf(t, c)
}

func (s *realSite) poolOf(t *testing.T, c Config) *Pool {
	t.Helper()
	c.TLS = s.ca.Issue(worker.ServerName)
	c.TLS.PeerName = worker.WorkerName
	b, err := New(t.Context(), Options{Client: s.client, Config: c, Configure: plugin.Configure{Name: "nomad", Instance: "test"}})
	if err != nil {
		t.Fatal(err)
	}
	p := b.(*Pool) //nolint:forcetypeassert // New makes it
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// allocations returns the ids of the running allocations, by index.
func (s *realSite) allocations(t *testing.T) []string {
	t.Helper()
	list, _, err := s.client.Jobs().Allocations(workersJob, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, a := range list {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// running waits until Nomad knows that count allocations run, and returns their ids. A worker may be in use before that: its node reports
// later than it registers.
func (s *realSite) running(t *testing.T, count int) (ids []string) {
	t.Helper()
	awaittest.Until(t, fmt.Sprintf("%d running allocations", count), func() bool {
		ids = s.allocations(t)
		return len(ids) == count
	})
	return ids
}

// usable waits until p can use exactly that many workers.
func usable(t *testing.T, p *Pool, count int) {
	t.Helper()
	awaittest.Until(t, fmt.Sprintf("%d usable workers", count), func() bool {
		i := info(t, p)
		return i.Healthy == (count > 0) && i.Metrics["workers_usable"] == float64(count)
	})
}

func TestWorkersOfARealCluster(t *testing.T) {
	s := newRealSite(t, 2, uvInside)
	p := s.pool(t)
	usable(t, p, 2)
	t.Run("the law", func(t *testing.T) {
		backendtest.Run(t, backendtest.Harness{
			New:   func(t *testing.T) executor.Backend { return s.pool(t) },
			Lanes: []backendtest.LaneRules{onACluster}, Options: backendtest.Options{Only: ofTheWay},
		})
	})
	t.Run("Nomad's own tools show an execution", func(t *testing.T) {
		j := job("print(6 * 7)")
		c := start(t, p, j)
		c.succeeds(t)
		if c.Text() != "42\n" {
			t.Errorf("it printed %q", c.Text())
		}
		ids := s.running(t, 2)
		details := fmt.Sprint(info(t, p).Details)
		for _, id := range ids {
			if !strings.Contains(details, id) {
				t.Errorf("Info does not name allocation %s: %s", id, details)
			}
		}
		// Another process of Nomad's carries the logs, and may do so after the program's end.
		awaittest.Until(t, "the logs of an allocation name "+j.ID, func() bool {
			var logs string
			for _, id := range ids {
				logs += s.cluster.Nomad(t, "alloc", "logs", "-stderr", id)
			}
			return strings.Contains(logs, `"execution":"`+j.ID+`"`) && strings.Contains(logs, `"owner":"o"`)
		})
	})
	t.Run("the group's count is followed", func(t *testing.T) {
		for _, count := range []int{3, 1, 2} {
			s.scale(t, count)
			usable(t, p, count)
			if i := info(t, p); i.Capacity != 12*count {
				t.Errorf("%d slots on %d workers", i.Capacity, count)
			}
			c := start(t, p, job("print('on')"))
			c.succeeds(t)
		}
	})
	t.Run("a worker that is stopped finishes what it has", func(t *testing.T) {
		var all []*call
		var inputs []*io.PipeWriter
		for range 4 {
			in, end := io.Pipe()
			j := job("import sys\nprint('up', flush=True)\nsys.stdin.read()\nprint('done')")
			j.Stdin = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return in, nil }}
			inputs = append(inputs, end)
			all = append(all, running(t, p, j))
		}
		s.scale(t, 1)
		usable(t, p, 1)
		for i, c := range all {
			if err := inputs[i].Close(); err != nil {
				t.Error(err)
			}
			c.succeeds(t)
		}
	})
	t.Run("a worker that is killed loses what it has and is back soon", func(t *testing.T) {
		c := running(t, p, job("import time\nprint('up', flush=True)\ntime.sleep(3600)"))
		for _, pid := range s.processes() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
		<-c.done
		if executor.CodeOf(c.err) != executor.Unavailable {
			t.Errorf("%+v, %v", c.result, c.err)
		}
		usable(t, p, 1)
		start(t, p, job("print('on')")).succeeds(t)
	})
}

// scale changes the group's count.
func (s *realSite) scale(t *testing.T, count int) {
	t.Helper()
	if _, _, err := s.client.Jobs().Scale(workersJob, "worker", &count, "the test", false, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerWithDockerInside(t *testing.T) {
	image := dockertest.Python(t)
	s := newRealSite(t, 1, func(s *realSite) string {
		return fmt.Sprintf("backend: docker\nbackends:\n  docker: {host: %q, default_image: %q, pool: {min_idle: 0, sessions: 0}}\n", s.cluster.Docker(), image)
	})
	p := s.pool(t)
	usable(t, p, 1)
	ids := s.running(t, 1)
	if !strings.Contains(fmt.Sprint(info(t, p).Details), ids[0]) {
		t.Fatalf("allocations %v, Info %+v", ids, info(t, p).Details)
	}
	t.Logf("allocation %s", ids[0])
	boxes := func() []string { return dockertest.Containers(t, "python-executor.instance") }
	others := boxes()

	once := start(t, p, job("import os\nprint(os.getuid(), os.path.exists('/.dockerenv'))"))
	once.succeeds(t)
	if once.Text() != "1000 True\n" {
		t.Errorf("it printed %q", once.Text())
	}

	killed := running(t, p, job("import time\nprint('up', flush=True)\ntime.sleep(3600)"))
	<-killed.Wrote
	killed.cancel(errors.New("killed"))
	<-killed.done
	if killed.err != nil || killed.result.Status != executor.StatusKilled {
		t.Errorf("%+v, %v", killed.result, killed.err)
	}

	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx_docker", Owner: "o", Limits: job("").Limits}); err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"x = 6", "print(x * 7)"} {
		c := start(t, p, inSession("ctx_docker", code))
		c.succeeds(t)
		if strings.HasPrefix(code, "print") && c.Text() != "42\n" {
			t.Errorf("the session printed %q", c.Text())
		}
	}
	if err := p.CloseSession(t.Context(), "ctx_docker"); err != nil {
		t.Error(err)
	}
	for _, c := range []*call{once, killed} {
		if err := p.Remove(t.Context(), c.job.ID); err != nil {
			t.Error(err)
		}
	}
	awaittest.Until(t, "the end of the containers", func() bool {
		return !slices.ContainsFunc(boxes(), func(id string) bool { return !slices.Contains(others, id) })
	})
}
