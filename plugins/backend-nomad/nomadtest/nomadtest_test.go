package nomadtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// helperVariable makes this binary start a cluster, print its folder, and wait to be killed.
const helperVariable = "PYEXEC_NOMADTEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		c, err := Launch(Options{RawExec: true})
		if err == nil {
			err = c.runs(context.Background(), "sleeper", "raw_exec", map[string]any{"command": "/bin/sleep", "args": []string{"1000"}})
		}
		if err != nil {
			os.Stdout.WriteString("error " + strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString(c.dir + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	Main(m)
}

func TestASharedClusterRunsATaskInDocker(t *testing.T) {
	c := Shared(t)
	job := task("hello", "docker", map[string]any{"image": dockertest.Python(t), "command": "python3", "args": []string{"-c", "print(6*7)"}})
	if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	var alloc *api.AllocationListStub
	if err := within(startTime, "the job", func(context.Context) error {
		list, _, err := c.API().Jobs().Allocations("hello", true, nil)
		if err != nil || len(list) != 1 || list[0].ClientStatus != api.AllocClientStatusComplete {
			return fmt.Errorf("%+v, %w", list, err)
		}
		alloc = list[0]
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if out := c.Nomad(t, "alloc", "logs", alloc.ID); out != "42\n" {
		t.Errorf("alloc %s wrote %q", alloc.ID, out)
	}
	c.Nomad(t, "job", "stop", "-purge", "hello")
}

func TestKilledAgentsComeBackWithTheirTasks(t *testing.T) {
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
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, c.dir)
}

func TestAClusterWithACLsNeedsItsToken(t *testing.T) {
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
	Shared(t)
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), helperVariable+"=1", "DOCKER_HOST="+dockertest.Host(t))
	helper.Stderr = os.Stderr
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := helper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || !filepath.IsAbs(dir) {
		_ = helper.Process.Kill()
		t.Fatalf("the helper wrote %q (%v), want the path of its folder", line, err)
	}
	sweep()
	if len(members(dir)) < 2 {
		t.Fatal("sweep removed the cluster of a running process")
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // it was killed
	sweep()
	gone(t, dir)
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
	return within(startTime, "the job", func(context.Context) error {
		list, _, err := c.api.Allocations().List(nil)
		if err != nil || len(list) != 1 || list[0].ClientStatus != api.AllocClientStatusRunning {
			return fmt.Errorf("%+v, %w", list, err)
		}
		return nil
	})
}

// gone fails t if something of a cluster is left.
func gone(t *testing.T, dir string) {
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
	if unix.Access("/sys/fs/cgroup", unix.R_OK) == nil {
		out, _ := exec.Command("find", "/sys/fs/cgroup", "-path", "*nomad*.scope").Output()
		t.Logf("control groups of all clusters: %s", out)
	}
}
