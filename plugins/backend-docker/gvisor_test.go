package dockerbackend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// otherwiseOnGVisor holds the rules that are not checked on gVisor, and why. All others are checked.
var otherwiseOnGVisor = map[string]string{
	"BE-02":  "the backend chooses the entrypoint, as without gVisor",
	"BE-18":  "the backend chooses the entrypoint, as without gVisor",
	"BE-23":  "the runner and the backend hold back a flood, as without gVisor",
	"BE-24":  "the backend handles errors of the log, as without gVisor",
	"BE-25":  "the runner and the backend count and cut output, as without gVisor",
	"BE-32":  "the runner reports the status of a limit, as without gVisor",
	"BE-51":  "the package installer reports the failure, as without gVisor",
	"BE-56":  "the runner reads a tar, as without gVisor; BE-55 tests its files on gVisor",
	"BE-58":  "the backend reads a Source, as without gVisor",
	"BE-60":  "twenty containers at once take long to start, and the daemon isolates them, as without gVisor",
	"BE-62":  "twenty-five containers take long to start, and the goroutines are those of the backend, as without gVisor",
	"BE-71":  "the backend refuses fields, as without gVisor",
	"BE-85":  "the backend and the runner keep a Result, as without gVisor",
	"BE-203": "the out-of-memory score and the priority of a process can be set: both affect only gVisor's kernel",
	"BE-204": "devices can be made, and /dev/fuse opened: they are gVisor's own, without access to the machine",
	"BE-205": "the environment, map and list of descriptors of the runner can be read, which hold no secret; its memory, trace and descriptors cannot",
	"BE-207": "the program can open its own output through the runner's descriptors, and nothing else of the runner",
	"BE-208": "there is no second filter of calls: gVisor is the filter",
	"BE-210": "namespaces can be made: they are gVisor's own, and contain nothing of the machine",
	"BE-213": "an abstract address of another namespace can be used: it is in gVisor's own network",
	"BE-218": "a hundred thousand files take long, and only memory limits them",
	"SE-41":  "the package installer reports the failure, as without gVisor",
	"SE-43":  "the programs of a session are not processes of the machine, where the rule looks for them",
	"SE-47":  "the backend and the runner keep a Result, as without gVisor",
}

// TestConformanceOnGVisor checks the law with gVisor's kernel, in the direct lane: the other lanes test what lies between the
// plugin and the core.
func TestConformanceOnGVisor(t *testing.T) {
	needtest.Long(t, "one program on gVisor, and the whole law without it")
	dockertest.GVisor(t)
	index := newWheelhouse(t)
	index.probe()
	options := section(t, map[string]any{
		"runtime": dockertest.GVisor(t), "images": []string{"pyexec-test"}, "prepare": map[string]any{"index_url": index.url(t)},
		// A container on gVisor serves only one set of limits, and takes a second of CPU time to start. So the pool is empty.
	})
	forgetPrepared(t, openBackend(t, nil))
	var only []string
	for _, rule := range backendtest.Rules() {
		if why, otherwise := otherwiseOnGVisor[rule[0]]; otherwise {
			t.Logf("%s %s is not checked: %s", rule[0], rule[1], why)
		} else {
			only = append(only, rule[0])
		}
	}
	h := harness(t, options)
	h.Options.Only = only
	backendtest.Run(t, h)
}

func TestOnGVisorTheKernelIsAnotherAndTheProgramAsElsewhere(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"runtime": dockertest.GVisor(t)})
	info, err := b.Info(t.Context())
	if err != nil || info.Capabilities.Isolation != executor.IsolationVM || !slices.ContainsFunc(info.Warnings, func(w string) bool { return strings.Contains(w, "gVisor") }) {
		t.Errorf("%v; %+v", err, info)
	}
	// The runner is root: a program can neither open its streams nor kill it.
	out, r := succeeds(t, b, executor.Spec{Code: `
import os, signal
def refused(what, *args):
    try:
        what(*args)
    except OSError as e:
        return e.strerror
    return "got through"
print(os.path.exists("/proc/sentry-meminfo"), os.getuid(), os.getgid(), os.getppid())
for line in open("/proc/self/status"):
    if line.startswith("Cap"):
        print(line.split())
print(refused(os.kill, 1, signal.SIGKILL), refused(os.open, "/proc/1/fd/0", os.O_RDONLY), refused(os.open, "/proc/1/fd/1", os.O_WRONLY), refused(os.open, "/proc/1/mem", os.O_RDWR))
`})
	if !strings.HasPrefix(out, "True 1000 1000 1\n") || strings.Count(out, "'0000000000000000'") != strings.Count(out, "Cap") || r.ImageDigest == "" {
		t.Errorf("%q, %+v", out, r)
	}
	if strings.Contains(out, "got through") || !strings.Contains(out, "\nOperation not permitted ") {
		t.Errorf("the program can reach the runner: %q", out)
	}
}

// TestOnGVisorWhatTheKernelKillsIsOutOfMemory: the out-of-memory event may be missing, so a kill of gVisor's process counts as
// out of memory.
func TestOnGVisorWhatTheKernelKillsIsOutOfMemory(t *testing.T) {
	needtest.Long(t, "out of memory without gVisor, and one program on gVisor")
	t.Parallel()
	b := openBackend(t, map[string]any{"runtime": dockertest.GVisor(t)})
	for name, c := range map[string]struct {
		kill func(container containerInfo) error
		full bool
	}{
		"by the kernel": {func(c containerInfo) error { return unix.Kill(c.PID, unix.SIGKILL) }, true},
		"by the daemon": {func(c containerInfo) error { return b.daemon.remove(t.Context(), c.ID) }, false},
	} {
		r := begin(t, b, executor.Spec{Code: "import time; print('up', flush=True); time.sleep(3600)"}, "up")
		var h handle
		if err := json.Unmarshal(r.started.Handle, &h); err != nil {
			t.Fatal(err)
		}
		container, err := b.daemon.inspect(t.Context(), h.Container)
		if err != nil || !b.daemon.local() || os.Geteuid() != 0 {
			t.Skipf("SKIPPED, the process of a container is out of reach: %v", err)
		}
		if err := c.kill(container); err != nil {
			t.Fatal(err)
		}
		<-r.ended
		if full := r.err == nil && r.result.Status == executor.StatusOutOfMemory; full != c.full || !full && executor.CodeOf(r.err) != executor.Unavailable {
			t.Errorf("%s: %+v, %v", name, r.result, r.err)
		}
	}
}

// TestOnGVisorAWarmContainerHasTheLimitsThatItWillBeAskedFor: gVisor cannot change the limits of a running container.
func TestOnGVisorAWarmContainerHasTheLimitsThatItWillBeAskedFor(t *testing.T) {
	needtest.Long(t, "the classes of the pool with toys, and one program on gVisor")
	t.Parallel()
	b := openBackend(t, map[string]any{"runtime": dockertest.GVisor(t), "pool": map[string]any{"min_idle": 1, "sessions": 0}})
	small := job(executor.Spec{Code: "print(1)"})
	small.Limits.MemoryBytes, small.Limits.DiskBytes = 300<<20, 64<<20
	for range 2 {
		small.ID = "exe_" + random()
		var j journal
		if r, err := b.Run(t.Context(), small, &j); err != nil || r.Status != executor.StatusSucceeded {
			t.Fatalf("%v %+v", err, r)
		}
		if err := b.Remove(t.Context(), small.ID); err != nil {
			t.Error(err)
		}
		awaittest.Until(t, "a container that waits", func() bool {
			b.pool.mu.Lock()
			defer b.pool.mu.Unlock()
			f := b.pool.shelves[b.class(b.imageOf(t), executor.NetworkDefault, small.Limits, false)]
			return f != nil && len(f.idle) > 0
		})
	}
	if m := b.pool.metrics(); m["pool_hits_total"] < 1 || m["pool_updates_total"] != 0 {
		t.Errorf("%v", m)
	}
}

// fileOf returns the path of a file with this content.
func fileOf(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// imageOf returns the id of the default image.
func (b *Backend) imageOf(t *testing.T) string {
	t.Helper()
	info, err := b.images.ensure(t.Context(), b.config.DefaultImage, func(executor.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// TestWhatCannotStartSaysSoAtOnce: if the runner does not work, an Execution fails at once with the reason.
func TestWhatCannotStartSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	for name, program := range map[string]string{"a runner that ends": "#!/usr/bin/python3\nimport sys\nsys.exit('this runner cannot be')\n", "a runner that is none": "nothing to execute"} {
		t.Run(name, func(t *testing.T) {
			ill := openBackend(t, map[string]any{runnerKey: fileOf(t, program)})
			_, err := ill.Run(awaittest.Context(t), job(executor.Spec{Code: "print(1)"}), &journal{})
			if executor.CodeOf(err) != executor.Unimplemented || !strings.Contains(fmt.Sprint(err), "no container can run programs on this daemon") {
				t.Errorf("%v", err)
			}
			if strings.HasPrefix(program, "#!") && !strings.Contains(fmt.Sprint(err), "this runner cannot be") {
				t.Errorf("the error does not hold the reason: %v", err)
			}
		})
	}
	// If containers have worked before, the failure may be temporary.
	if _, r := succeeds(t, b, executor.Spec{Code: "print(1)"}); r.Status != executor.StatusSucceeded {
		t.Fatal(r)
	}
	b.factory.place.Program = []string{"/nowhere"}
	if _, err := b.Run(t.Context(), job(executor.Spec{Code: "print(1)"}), &journal{}); err == nil || executor.CodeOf(err) == executor.Unimplemented {
		t.Errorf("%v", err)
	}
}
