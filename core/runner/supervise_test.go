//go:build linux

package runner

import (
	"context"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/toldtest"
)

// A program's children in its process group are asked to end, too, by a timeout as by a cancel.
func TestTheWholeGroupIsAskedToEnd(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := shell(`trap 'wait; exit 3' TERM; sh -c 'trap "echo asked; exit" TERM; echo up; while :; do sleep 0.01; done' & wait`)
	start.Limits.KillGrace = awaittest.Forever
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cancelled := newRecord()
	cancelled.emit = func(executor.Event) error {
		if strings.Contains(cancelled.out[0].String(), "up") {
			cancel(executor.Errorf(executor.Unavailable, "enough"))
		}
		return nil
	}
	res, err := r.Run(ctx, start, RunInput{}, cancelled)
	if err != nil || res.Status != executor.StatusKilled || cancelled.stdout() != "up\nasked\n" {
		t.Errorf("%s, %q, %v", describe(res), cancelled.stdout(), err)
	}
	if res, rec := r.told(t, start, said{"up", agent.LimitTimeout}); res.Status != executor.StatusTimedOut || rec.stdout() != "up\nasked\n" {
		t.Errorf("%s, %q", describe(res), rec.stdout())
	}
}

// The first limit that fires is the status, whatever comes within its grace.
func TestACancelWithinTheGraceOfATimeoutLeavesItATimeout(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := shell(`trap 'echo asked' TERM; echo up; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	rec := newRecord()
	rec.tells(t, &start, said{"up", agent.LimitTimeout})
	tell := rec.emit
	rec.emit = func(e executor.Event) error {
		if strings.Contains(rec.out[0].String(), "asked") {
			cancel(executor.Errorf(executor.Unavailable, "enough"))
			toldtest.Tell(t, start.ExecutionID, agent.LimitGrace)
		}
		return tell(e)
	}
	res, err := r.Run(ctx, start, RunInput{}, rec)
	if err != nil || describe(res) != "timed_out SIGKILL run/exhausted" || rec.stdout() != "up\nasked\n" {
		t.Errorf("%s, %q, %v", describe(res), rec.stdout(), err)
	}
}

// Nobody wants the files of a program that was cancelled.
func TestNothingIsCollectedAfterACancel(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := shell("echo x > file; trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done")
	start.Outputs, start.Limits.KillGrace = []string{"file"}, awaittest.Forever
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	rec := newRecord()
	rec.cancelsAtOutput(cancel)
	res, err := r.Run(ctx, start, RunInput{}, rec)
	if err != nil || describe(res) != "killed exit 0" || len(res.Artifacts) > 0 || len(rec.files) > 0 {
		t.Errorf("%s with %v, %v", describe(res), res.Artifacts, err)
	}
}

// An interpreter that was killed did not run out of memory unless its group has counted that.
func TestAnInterpreterThatKillsItselfHasEnoughMemory(t *testing.T) {
	r := openSession(t, pythonSession())
	res, _ := r.cell(t, "import os; os.kill(os.getpid(), 9)")
	if describe(res) != "failed SIGKILL" || res.SessionState != executor.SessionStateLost {
		t.Errorf("%s %q", describe(res), res.SessionState)
	}
}
