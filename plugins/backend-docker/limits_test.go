package dockerbackend

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// forks prints how many processes a program can start.
const forks = `import os, signal
children = []
try:
    while len(children) < 500:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError:
    pass
for pid in children:
    os.kill(pid, signal.SIGKILL)
print(len(children))
`

// TestAWarmContainerGetsEveryLimitOfItsExecution: the container was made with the limits of another Execution.
func TestAWarmContainerGetsEveryLimitOfItsExecution(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"pool": map[string]any{"min_idle": 1, "sessions": 0}})
	x := job(executor.Spec{Code: "print(1)"})
	run := func(code string) *journal {
		t.Helper()
		x.ID, x.Spec.Code = "exe_"+random(), code
		j := &journal{}
		r, err := b.Run(t.Context(), x, j)
		if err != nil || r.Status != executor.StatusSucceeded {
			t.Fatalf("%v %+v %+v", err, r, r.Failure)
		}
		return j
	}
	waiting := func() bool {
		idle, _, _ := b.pool.counts()
		return idle > 0
	}
	run("print(1)")
	if err := b.Remove(t.Context(), x.ID); err != nil {
		t.Error(err)
	}
	awaittest.Until(t, "a container that waits", waiting)
	hits := b.pool.metrics()["pool_hits_total"]
	x.Limits.PIDs, x.Limits.MemoryBytes, x.Limits.CPUShares = 20, 300<<20, 77
	j := run(forks)
	if b.pool.metrics()["pool_hits_total"] == hits {
		t.Fatal("the container was not waiting")
	}
	// The limit includes the runner's threads, of which some may not run.
	n, err := strconv.Atoi(strings.TrimSpace(j.stdout.String()))
	if err != nil || n < int(x.Limits.PIDs)-1 || n > int(x.Limits.PIDs)+protocol.OwnThreads {
		t.Errorf("the program started %q processes, want about %d: %v", j.stdout.String(), x.Limits.PIDs, err)
	}
	var h handle
	if err := json.Unmarshal(j.started.Handle, &h); err != nil {
		t.Fatal(err)
	}
	c, err := b.daemon.api.ContainerInspect(t.Context(), h.Container)
	if err != nil {
		t.Fatal(err)
	}
	want := capacityOf(x.Limits)
	if r := c.HostConfig.Resources; r.PidsLimit == nil || *r.PidsLimit != want.PIDs || r.Memory != want.MemoryBytes || r.MemorySwap != want.MemoryBytes || r.CPUShares != want.CPUShares {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// TestLimitsThatHoldNoInterpreterAreInvalid: a retry would fail as well.
func TestLimitsThatHoldNoInterpreterAreInvalid(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	small := job(executor.Spec{Code: "print(1)"})
	small.Limits.MemoryBytes = 1 << 20
	if _, err := b.Run(t.Context(), small, &journal{}); executor.CodeOf(err) != executor.Invalid || !ofField(err, "config.memory_mb") {
		t.Errorf("an execution: %v", err)
	}
	sandboxed := func(t *testing.T, b *Backend) {
		for name, c := range map[string]struct {
			limits  executor.Limits
			preload []string
		}{
			"too little": {executor.Limits{MemoryBytes: 1 << 20, DiskBytes: 1 << 30}, nil},
			"too little for what it imports": {
				executor.Limits{MemoryBytes: 16 << 20, DiskBytes: 1 << 20}, []string{"pip._internal.commands.install", "pip._vendor.rich.console", "asyncio", "unittest.mock", "sqlite3", "xmlrpc.client"},
			},
		} {
			s := executor.Session{ID: "ctx_" + random(), Language: executor.LanguagePython, Limits: c.limits, Preload: c.preload}
			s.Limits.CPUShares, s.Limits.PIDs = 1024, 64
			_, err := b.OpenSession(t.Context(), s)
			if executor.CodeOf(err) != executor.Invalid || !ofField(err, "config.memory_mb") {
				t.Errorf("%s: %v", name, err)
			}
			if err := b.CloseSession(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("a session", func(t *testing.T) { sandboxed(t, b) })
	t.Run("a session on gVisor", func(t *testing.T) {
		needtest.Long(t, "a session without gVisor, and one program on gVisor")
		sandboxed(t, openBackend(t, map[string]any{"runtime": dockertest.GVisor(t)}))
	})
}

// TestMemoryBeyondTheLimitInASessionIsOutOfMemory in the interpreter, and in a command of the session.
func TestMemoryBeyondTheLimitInASessionIsOutOfMemory(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	const hog = "x = bytearray(400 << 20)"
	for name, spec := range map[string]executor.Spec{"the interpreter": {Code: hog}, "a command": {Command: []string{"python3", "-c", hog}}} {
		s := executor.Session{ID: "ctx_" + random(), Language: executor.LanguagePython, Limits: job(spec).Limits}
		s.Limits.MemoryBytes, s.Limits.DiskBytes = 64<<20, 1<<20
		if _, err := b.OpenSession(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		x := job(spec)
		x.Spec.Session, x.Limits = s.ID, s.Limits
		if r, err := b.Run(t.Context(), x, &journal{}); err != nil || r.Status != executor.StatusOutOfMemory || r.Signal != "SIGKILL" {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
		if err := b.CloseSession(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
	}
}
