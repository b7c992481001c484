package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// startsAgents is what the gate has in place of the tests that start agents of their own.
const startsAgents = "a run of the gate starts a cluster, and ends it"

func TestMain(m *testing.M) {
	leftovertest.Help(func() (string, error) {
		c, err := Launch(Options{RawExec: true})
		if err != nil {
			return "", err
		}
		return c.dir, c.runs(context.Background(), "sleeper", "raw_exec", map[string]any{"command": "/bin/sleep", "args": []string{"1000"}})
	})
	Main(m)
}

// prints42 prints, and waits for the end of its job.
const prints42 = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: exit())\nprint(6*7, flush=True)\nwhile True: signal.pause()"

func TestASharedClusterRunsATaskInDocker(t *testing.T) {
	c := Shared(t)
	job := task("hello", "docker", map[string]any{"image": dockertest.Python(t), "command": "python3", "args": []string{"-c", prints42}})
	if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	var alloc *api.AllocationListStub
	if err := within("the job", func(context.Context) error {
		list, _, err := c.API().Jobs().Allocations("hello", true, nil)
		if err != nil || len(list) != 1 || list[0].ClientStatus != api.AllocClientStatusRunning {
			return fmt.Errorf("%+v, %w", list, err)
		}
		alloc = list[0]
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// Another process of Nomad's carries the output, as long as the task runs.
	if err := within("the output", func(context.Context) error {
		if out := c.Nomad(t, "alloc", "logs", alloc.ID); out != "42\n" {
			return fmt.Errorf("alloc %s wrote %q", alloc.ID, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.Nomad(t, "job", "stop", "-purge", "hello")
}

func TestKilledAgentsComeBackWithTheirTasks(t *testing.T) {
	needtest.Long(t, startsAgents)
	c := Start(t, Options{Clients: 1, FastDown: true})
	if err := c.runs(t.Context(), "sleeper", "docker", map[string]any{"image": dockertest.Python(t), "command": "sleep", "args": []string{"1000"}}); err != nil {
		t.Fatal(err)
	}
	before := dockertest.Containers(t, labelNode+"="+c.Clients[0].Name)
	if len(before) != 1 {
		t.Fatalf("containers: %v", before)
	}
	for _, a := range []*Agent{c.Server, c.Clients[0]} {
		pid := a.PID()
		a.Kill()
		if a.PID() != 0 {
			t.Errorf("%s runs", a.Name)
		}
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		if a.PID() == pid {
			t.Errorf("%s is the same process", a.Name)
		}
	}
	// The client finds the container again, or it would start another.
	if err := c.runs(t.Context(), "", "", nil); err != nil {
		t.Error(err)
	}
	if after := dockertest.Containers(t, labelNode+"="+c.Clients[0].Name); len(after) != 1 || after[0] != before[0] {
		t.Errorf("containers: %v, then %v", before, after)
	}
	had := allocations(t, c.dir)
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, c.dir, had)
}

func TestAClusterWithACLsNeedsItsToken(t *testing.T) {
	needtest.Long(t, startsAgents)
	c := Start(t, Options{ACL: true})
	if _, _, err := c.API().Jobs().List(nil); err != nil {
		t.Error(err)
	}
	nobody, err := api.NewClient(&api.Config{Address: c.Address()})
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	var refused api.UnexpectedResponseError
	if _, _, err := nobody.Jobs().List(nil); !errors.As(err, &refused) || refused.StatusCode() != 403 {
		t.Errorf("without a token: %v", err)
	}
}

func TestTheNomadOfAKilledProcessIsSwept(t *testing.T) {
	needtest.Long(t, startsAgents)
	Shared(t)
	helper, dir := leftovertest.StartHelper(t, "DOCKER_HOST="+dockertest.Host(t))
	sweep()
	if len(members(dir)) < 2 {
		t.Fatal("sweep removed the cluster of a running process")
	}
	had := allocations(t, dir)
	if !strings.Contains(strings.Join(groups(t), " "), had[0]) {
		t.Errorf("the task has no control group: %v", groups(t))
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // it was killed
	sweep()
	gone(t, dir, had)
}

func TestTheRestOfAClusterIsSwept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, mounts need root")
	}
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	secrets := filepath.Join(dir, "client1/data/alloc/1-2/task/secrets")
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", secrets, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	sweep()
	if _, err := os.Stat(secrets); err != nil {
		t.Errorf("a folder that is just being made was removed: %v", err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
	sweep()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// task returns a job with one task.
func task(id, driver string, config map[string]any) *api.Job {
	job := api.NewBatchJob(id, id, "global", 50)
	group := api.NewTaskGroup("group", 1)
	one := api.NewTask("task", driver)
	one.Config = config
	return job.AddTaskGroup(group.AddTask(one)).AddDatacenter("*")
}

// runs registers a job, unless id is empty, and waits until every allocation of the cluster runs.
func (c *Cluster) runs(ctx context.Context, id, driver string, config map[string]any) error {
	if id != "" {
		if _, _, err := c.api.Jobs().Register(task(id, driver, config), (&api.WriteOptions{}).WithContext(ctx)); err != nil {
			return err
		}
	}
	return within("the job", func(context.Context) error {
		list, _, err := c.api.Allocations().List(nil)
		if err != nil || len(list) != 1 || list[0].ClientStatus != api.AllocClientStatusRunning {
			return fmt.Errorf("%+v, %w", list, err)
		}
		return nil
	})
}

// allocations returns the ids of the allocations on the clients of the cluster in dir.
func allocations(t *testing.T, dir string) (ids []string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(dir, "*/data/alloc/*-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no allocation in %s: %v", dir, err)
	}
	for _, d := range dirs {
		ids = append(ids, filepath.Base(d))
	}
	return ids
}

// groups returns the control groups of the tasks of all clusters.
func groups(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("find", "/sys/fs/cgroup", "-type", "d", "-path", "*/nomad*/*-*.*").Output()
	if err != nil {
		t.Log(err) // a group may end while find looks
	}
	return strings.Fields(string(out))
}

// gone fails t if something of a cluster with these allocations is left.
func gone(t *testing.T, dir string, allocations []string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	if left := members(dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left (%v):\n%s", err, mounts)
	}
	for _, agent := range []string{"server", "client1"} {
		if left := dockertest.Containers(t, labelNode+"="+nodeName(dir, agent)); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
	}
	for _, group := range groups(t) {
		for _, id := range allocations {
			if strings.Contains(group, id) {
				t.Errorf("control group %s is left", group)
			}
		}
	}
}
