package uvbackend

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// TestPackagesDoNotRunInAForkServer holds because a package may have code that runs at the start of every interpreter. In a fork
// server such code would outlive its Execution, without limits, beside programs of other owners.
func TestPackagesDoNotRunInAForkServer(t *testing.T) {
	b, _ := indexed(t, nil)
	needtest.Need(t, b.how.Box && b.how.Setuid, needtest.Root, b.how.Why["box"])
	howStarted := func(spec executor.Spec) executor.StartKind {
		j := &journal{}
		if result, err := b.Run(t.Context(), job(spec), j); err != nil || result.Status != executor.StatusSucceeded {
			t.Fatalf("%v, %+v, %q", err, result.Failure, j.text(executor.Stderr))
		}
		return j.started().Start
	}
	// Each idle slot is used in turn, so every slot has had the chance to start a fork server.
	for range 3 * keptSlots {
		if got := howStarted(executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}); got != executor.StartExec {
			t.Fatalf("a program with packages is started by %s", got)
		}
	}
	forked := false
	for range 20 * keptSlots {
		if forked = howStarted(executor.Spec{Code: "print(1)"}) == executor.StartFork; forked {
			break
		}
	}
	if !forked {
		t.Error("no program without packages is a fork, so this test shows nothing")
	}
}
