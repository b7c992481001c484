package dockerbackend

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// processInstance is the installation's name in plugintest.Process.
const processInstance = "test"

// TestConformance checks the law with a real daemon. The gate checks what a backend does when its caller or its process has gone behind the
// wire and in plugin processes, and all else in the direct lane. It leaves out a rule that takes a container for each bad name, because the
// runner refuses these, and one about goroutines, which the end of this package's tests shows, too.
func TestConformance(t *testing.T) {
	index := newWheelhouse(t)
	index.probe()
	set := map[string]any{"pool": map[string]any{"min_idle": 0, "sessions": 0}, "images": []string{"pyexec-test"}, "prepare": map[string]any{"index_url": index.url(t)}}
	cold := section(t, set)
	set["silence_seconds"] = 20 // a killed plugin leaves its containers to end by their silence
	options := section(t, set)
	delete(set, "silence_seconds")
	set["pool"] = map[string]any{"min_idle": 1, "sessions": 1, "max": 2} // a container that waits costs as much as one that is used
	warm := section(t, set)
	t.Cleanup(func() { nothingLeft(t, processInstance, options) })
	forgetPrepared(t, openBackend(t, nil))
	h := harness(t, options, processInstance)
	h.Process = func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "docker", options) }
	process := backendtest.LaneRules{
		Lane: backendtest.LaneProcess, Gate: []string{"BE-83", "BE-84", "SE-46"},
		Why: "containers have nothing of the process that asked for them, and the uv backend and the fake are held to the rules about processes and the wire",
	}
	h.Lanes = []backendtest.LaneRules{backendtest.SecondWire, process}
	direct := backendtest.AroundTheRunner(append([]string{"BE-55", "BE-62"}, backendtest.SecondWire.Gate...)...)
	backendtest.RunShares(t, shares, direct, func(t *testing.T, share int) backendtest.Harness {
		if share == 0 {
			return harness(t, warm)
		}
		return harness(t, cold)
	})
	backendtest.Run(t, h)
}

// shares are parts of the law that run at the same time, because an Execution waits for the daemon most of its time.
const shares = 3

// harness returns the harness of an installation of this backend with these options. Leftovers of more installations count, too.
func harness(t *testing.T, options json.RawMessage, more ...string) backendtest.Harness {
	law := instance(t)
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
			Leftovers:   func() []string { return lastingLeftovers(t, append(more, law)...) },
		},
	}
}

// nothingLeft waits until an installation has nothing in the daemon. A killed plugin leaves its containers to end by their
// silence, or to the reaper of the next life.
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

// lastingLeftovers lists what programs have left and the backend does not clear up.
func lastingLeftovers(t testing.TB, instances ...string) []string {
	d, err := dial(context.Background(), dockertest.Host(t))
	if err != nil {
		return []string{err.Error()}
	}
	defer d.close() //nolint:errcheck // read only
	return awaittest.None(func() (found []string) {
		for _, id := range instances {
			found = append(found, leftoversOf(d, id)...)
		}
		return found
	})
}

// leftoversOf lists the containers that do not run, and those in which there is more than an idle runner. It reads /proc, for
// which it must be root.
func leftoversOf(d *daemon, instance string) []string {
	list, err := d.containers(context.Background(), map[string]string{labelInstance: instance})
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, c := range list {
		what := fmt.Sprintf("container %s (%s, %s)", short(c.ID), c.Labels[labelKind], c.State)
		if c.State == "created" && !passed(c, labelCreated, time.Now().Add(-time.Minute)) {
			continue // the pool is still making it, but it must not stay in this state
		}
		if c.State != "running" {
			found = append(found, what)
			continue
		}
		r, err := d.api.ContainerInspect(context.Background(), c.ID)
		if err != nil || r.State == nil || r.State.Pid == 0 {
			continue // the container has ended meanwhile
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
