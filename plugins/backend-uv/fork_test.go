package uvbackend

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// TestPackagesDoNotRunInAForkServer holds because a package may have code that runs at the start of every interpreter. In a fork
// server such code would outlive its Execution, without limits, beside programs of other owners.
func TestPackagesDoNotRunInAForkServer(t *testing.T) {
	b, _ := indexed(t, nil)
	for requirements, want := range map[string]string{"": "alice", "pyexec-probe": ""} {
		j := job(executor.Spec{Code: "print(1)", Requirements: requirements})
		j.Owner = "alice"
		i, err := b.choose(t.Context(), j.Spec)
		if err != nil {
			t.Fatal(err)
		}
		p, failure, err := b.plan(t.Context(), j, i, func(executor.Progress) {})
		if failure != nil || err != nil {
			t.Fatal(failure, err)
		}
		if p.environment != nil {
			t.Cleanup(p.environment.release)
		}
		if p.start.Fork != want {
			t.Errorf("with the requirements %q, programs of %q share a fork server, want %q", requirements, p.start.Fork, want)
		}
	}
}
