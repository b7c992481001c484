package dockerbackend

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// processInstance is what plugintest.Process calls the installation.
const processInstance = "test"

// TestConformance holds this backend to the law, in all three lanes, with a real daemon. Where all tests run, the wire lane is
// beside the others.
func TestConformance(t *testing.T) {
	lanes := besideLanes(t)
	index := newWheelhouse(t)
	index.probe()
	options := section(t, map[string]any{
		"silence_seconds": 10, "images": []string{"pyexec-test"}, "prepare": map[string]any{"index_url": index.url(t)},
	})
	law := instance(t)
	ours := []string{law}
	if len(lanes) == 0 || slices.Contains(lanes, backendtest.LaneProcess) {
		ours = append(ours, processInstance)
		t.Cleanup(func() { nothingLeft(t, processInstance, options) })
	}
	forgetPrepared(t, backend(t, nil))
	h := harness(t, law, options)
	h.Process = func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "docker", options) }
	h.Lanes, h.Options.Residue = lanes, func() []string { return residue(t, ours...) }
	backendtest.Run(t, h)
	if besides != nil {
		t.Run("beside", besides.passes)
	}
}

// harness is what the law needs of an installation of this backend with these options.
func harness(t *testing.T, law string, options json.RawMessage) backendtest.Harness {
	dir := t.TempDir()
	var last *Backend
	start := func(t *testing.T) *Backend {
		b, err := testFactory(t.Context(), plugin.Configure{Name: "docker", Instance: law, DataDir: dir, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return backendtest.Harness{
		New: func(t *testing.T) executor.Backend {
			last = start(t)
			return last
		},
		Abandon: func(t *testing.T) executor.Backend {
			last.abandon()
			last = start(t)
			next := last
			t.Cleanup(func() {
				if err := next.Close(); err != nil {
					t.Error(err)
				}
			})
			return last
		},
		Options: backendtest.Options{
			Image:       dockertest.Python(t),
			Requirement: backendtest.Requirement{Text: "pyexec-probe<2", Import: "pyexec_probe", Version: "1.2.3", Resolved: "pyexec-probe==1.2.3"},
		},
	}
}

// nothingLeft waits until an installation has nothing in the daemon: a plugin that was killed leaves its containers to
// their silence, and to the reaper of the next.
func nothingLeft(t *testing.T, instance string, options json.RawMessage) {
	b, err := testFactory(context.Background(), plugin.Configure{Name: "docker", Instance: instance, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	noneOfTheDead(t, instance)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for _, left := range objects(t, instance) {
		t.Errorf("left in the daemon: %s", left)
	}
}

// eventually waits until cond holds. Processes end some time after what ended them.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	patience, again := time.After(2*time.Minute), time.NewTicker(20*time.Millisecond) // a runner waits a minute for its first host
	defer again.Stop()
	for !cond() {
		select {
		case <-again.C:
		case <-patience:
			t.Fatalf("%s did not happen", what)
		}
	}
}

// residueTime is longer than a backend needs to clear up behind the answer.
const residueTime = 30 * time.Second

// residue lists what programs left for longer than residueTime.
func residue(t testing.TB, instances ...string) []string {
	d, err := dial(context.Background(), dockertest.Host(t))
	if err != nil {
		return []string{err.Error()}
	}
	defer d.close() //nolint:errcheck // read only
	patience, again := time.After(residueTime), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		var found []string
		for _, id := range instances {
			found = append(found, leftovers(d, id)...)
		}
		if len(found) == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-patience:
			return found
		}
	}
}

// leftovers are containers that do not run, and those in which there is more than an idle runner. They are looked into from
// outside, which only root may.
func leftovers(d *daemon, instance string) []string {
	list, err := d.containers(context.Background(), map[string]string{labelInstance: instance})
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, c := range list {
		what := fmt.Sprintf("container %s (%s, %s)", short(c.ID), c.Labels[labelKind], c.State)
		if c.State == "created" && !passed(c, labelCreated, time.Now().Add(-residueTime)) {
			continue // one on its way to the pool is no left-over, but it may not stay so
		}
		if c.State != "running" {
			found = append(found, what)
			continue
		}
		r, err := d.api.ContainerInspect(context.Background(), c.ID)
		if err != nil || r.State == nil || r.State.Pid == 0 {
			continue // it went away meanwhile
		}
		proc := filepath.Join("/proc", strconv.Itoa(r.State.Pid))
		children, _ := os.ReadFile(filepath.Join(proc, "task", filepath.Base(proc), "children"))
		if strings.TrimSpace(string(children)) != "" {
			found = append(found, what+" has processes")
		}
		for _, folder := range []string{"/work", "/tmp"} {
			if files, _ := os.ReadDir(filepath.Join(proc, "root", folder)); len(files) > 0 {
				found = append(found, what+" has files in "+folder)
			}
		}
	}
	return found
}
