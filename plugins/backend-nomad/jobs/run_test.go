package jobs

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// section returns the settings of a backend on the tests' cluster.
func section(t testing.TB, c *nomadtest.Cluster, change func(*Config)) json.RawMessage {
	t.Helper()
	runner, err := testRunner()
	if err != nil {
		t.Fatal(err)
	}
	s := settings{Config: Default(), Address: c.Address(), Runner: runner}
	s.DefaultImage, s.Images = dockertest.Python(t), []string{"*"}
	if change != nil {
		change(&s.Config)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// openBackend makes a backend with an installation of its own, and closes it with t. After that nothing of it may run.
func openBackend(t testing.TB, c *nomadtest.Cluster, change func(*Config)) *Backend {
	t.Helper()
	b, err := open(plugin.Configure{Name: "nomad", Instance: t.Name(), DataDir: t.TempDir(), Options: section(t, c, change)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		for _, left := range running(t, c, t.Name()) {
			t.Errorf("left in Nomad: %s", left)
		}
	})
	return b
}

// running lists the jobs of an installation that run or may still be placed. A stopped job without allocations is pending until
// Nomad has evaluated the stop.
func running(t testing.TB, c *nomadtest.Cluster, instance string) (found []string) {
	t.Helper()
	list, _, err := c.API().Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, &api.QueryOptions{Prefix: jobPrefix})
	if err != nil {
		return []string{err.Error()}
	}
	for _, j := range list {
		stopped := j.Status == "dead" || j.Status == "pending" && j.Stop
		if j.Meta[metaInstance] == instance && !stopped {
			found = append(found, j.ID+" "+j.Status)
		}
	}
	return found
}

// aJob returns a job of spec, whose id is of this test.
func aJob(t testing.TB, spec executor.Spec) executor.Job {
	name := strings.NewReplacer("/", "-", " ", "-", "#", "-").Replace(t.Name())
	return executor.Job{ID: fmt.Sprintf("exe_%s_%d", name, time.Now().UnixNano()), Owner: "ann", Attempt: 1, Spec: spec, Limits: limits}
}

// journal is a Sink that keeps what it gets.
type journal struct {
	mu        sync.Mutex
	stdout    strings.Builder
	stderr    strings.Builder
	started   *executor.Started
	artifacts map[string]string
	on        func(executor.Event)
}

// Emit implements executor.Sink.
func (j *journal) Emit(e executor.Event) error {
	j.mu.Lock()
	switch v := e.Body.(type) {
	case executor.Output:
		if v.Stream == executor.Stdout {
			j.stdout.Write(v.Data)
		} else {
			j.stderr.Write(v.Data)
		}
	case executor.Started:
		j.started = &v
	}
	j.mu.Unlock()
	if j.on != nil {
		j.on(e)
	}
	return nil
}

// Artifact implements executor.Sink.
func (j *journal) Artifact(h *tar.Header, r io.Reader) error {
	content, err := io.ReadAll(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.artifacts == nil {
		j.artifacts = map[string]string{}
	}
	j.artifacts[h.Name] = string(content)
	return err
}

// allocation returns the id of the allocation in the handle of Started.
func (j *journal) allocation(t testing.TB) string {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var h handle
	if j.started == nil || json.Unmarshal(j.started.Handle, &h) != nil || h.Alloc == "" {
		t.Fatalf("no allocation in %+v", j.started)
	}
	return h.Alloc
}

// ends runs a job to its end, and removes it.
func ends(t testing.TB, b executor.Backend, j executor.Job, sink *journal) executor.Result {
	t.Helper()
	r, err := b.Run(t.Context(), j, sink)
	if err := b.Remove(context.WithoutCancel(t.Context()), j.ID); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatalf("%v; stderr %q", err, sink.stderr.String())
	}
	return r
}

func TestAnExecutionIsAJobThatNomadShows(t *testing.T) {
	t.Parallel()
	c := nomadtest.Shared(t)
	b := openBackend(t, c, nil)
	j := aJob(t, executor.Spec{
		Code:    "import os, sys\nprint('hello from', os.getuid(), flush=True)\nopen('a.txt', 'w').write('kept')\nsys.stdin.read()\n",
		Outputs: []string{"*.txt"},
	})
	in, writer := io.Pipe()
	j.Stdin = &executor.Source{Open: func() (io.ReadCloser, error) { return in, nil }}
	var said journal
	printed := make(chan struct{})
	hasPrinted := sync.OnceFunc(func() { close(printed) })
	said.on = func(e executor.Event) {
		if e.Body.Kind() == executor.KindOutput {
			hasPrinted()
		}
	}
	go func() {
		defer func() { _ = writer.Close() }()
		select {
		case <-printed:
		case <-t.Context().Done():
			return
		}
		// Nomad stops reading the output of a container when it ends, also if it has not read all. So the program waits here.
		awaittest.Until(t, "the program's output in nomad alloc logs", func() bool {
			return c.Nomad(t, "alloc", "logs", "-task", taskProgram, said.allocation(t)) == "hello from 1000\n"
		})
	}()
	r := ends(t, b, j, &said)
	alloc := said.allocation(t)
	t.Logf("allocation %s, %+v", alloc, r)
	if r.Status != executor.StatusSucceeded || said.stdout.String() != "hello from 1000\n" || said.artifacts["a.txt"] != "kept" || said.started.PythonVersion == "" {
		t.Errorf("%+v %+v, stdout %q, stderr %q, artifacts %q", r, r.Failure, said.stdout.String(), said.stderr.String(), said.artifacts)
	}
	status := c.Nomad(t, "job", "status", "-verbose", jobID(j.ID))
	if !strings.Contains(status, alloc) || !strings.Contains(status, j.ID) {
		t.Errorf("nomad job status says\n%s", status)
	}
	if meta := c.Nomad(t, "job", "inspect", jobID(j.ID)); !strings.Contains(meta, `"`+metaOwner+`": "ann"`) || !strings.Contains(meta, `"`+metaExecution+`": "`+j.ID+`"`) {
		t.Errorf("nomad job inspect says\n%s", meta)
	}
}
