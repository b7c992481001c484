//go:build linux

package runner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestAProgramHasNoGroupsOfTheRunners(t *testing.T) {
	needtest.NeedRoot(t) // whose programs have a uid of their own
	r := startRunner(t, testConfig(t))
	_, rec := r.run(t, python("import os; print(os.getgroups(), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())"), RunInput{})
	if rec.stdout() != "[] True True\n" {
		t.Errorf("got %q", rec.stdout())
	}
}

// A program cannot raise the limits that no control group holds.
func TestTheLimitsOfAProgramAreHard(t *testing.T) {
	cfg := testConfig(t)
	cfg.Tmpfs, cfg.Box, cfg.Cgroups = false, false, nil
	r := startRunner(t, cfg)
	start := python(`
import resource, time
want = [int(v) for v in input().split()]
for kind, value in zip((resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NPROC), want):
    while value and resource.getrlimit(kind) != (value, value):  # they are made hard right after the start
        time.sleep(0.01)
print("hard")
`)
	start.Limits.DiskBytes, start.Limits.MemoryBytes, start.Limits.PIDs = 3<<20, 200<<20, 50
	pids := int64(0)
	if cfg.OwnUID {
		pids = start.Limits.PIDs
	}
	in := fmt.Sprintln(start.Limits.DiskBytes, start.Limits.MemoryBytes+256<<20, pids)
	if res, rec := r.run(t, start, RunInput{Stdin: strings.NewReader(in)}); describe(res) != "succeeded exit 0" {
		t.Errorf("%s %q", describe(res), rec.stderr())
	}
}

func TestACancelReachesTheWholeGroup(t *testing.T) {
	r := startRunner(t, testConfig(t))
	rec := newRecord()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	rec.emit = func(executor.Event) error {
		if rec.out[0].String() == "up\n" {
			cancel(context.Canceled)
		}
		return nil
	}
	start := shell(`trap 'wait; exit 3' TERM; sh -c 'trap "echo child; exit" TERM; echo up; while :; do sleep 0.01; done' & wait`)
	res, err := r.Run(ctx, start, RunInput{}, rec)
	if err != nil || describe(res) != "killed exit 3" || rec.stdout() != "up\nchild\n" {
		t.Errorf("%s, %q, %v", describe(res), rec.stdout(), err)
	}
}

// A program that ends by another signal did not run out of memory, whatever its children did.
func TestOnlyAKillIsOutOfMemory(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, sandbox.Cgroups(cfg.Cgroups).Enforces("memory"), needtest.Cgroup, "a memory control group")
	r := startRunner(t, cfg)
	for script, want := range map[string]string{
		"/usr/bin/python3 -c 'x = bytearray(1 << 30)'; kill -ABRT $$": "failed SIGABRT",
		"kill -KILL $$": "failed SIGKILL",
		"exec /usr/bin/python3 -c 'x = bytearray(1 << 30)'": "out_of_memory SIGKILL",
	} {
		start := shell(script)
		start.Limits.MemoryBytes = 64 << 20
		if res, rec := r.run(t, start, RunInput{}); string(res.Status)+" "+res.Signal != want {
			t.Errorf("%s: %s %q", script, describe(res), rec.stderr())
		}
	}
}
