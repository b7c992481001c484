package uvbackend

import (
	"maps"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestAProgramWhoseRunnerDiesAtItsStartIsNotStartedAgain(t *testing.T) {
	b := openBackend(t, map[string]any{"start": StartExec})
	s, _, err := b.slots.take(t.Context(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	b.slots.put(s)
	b.slots.settle(t) // so that the program gets one of these
	b.slots.mu.Lock()
	slots := slices.Collect(maps.Keys(b.slots.all))
	b.slots.mu.Unlock()
	idle := map[*slot]int{}
	for _, s := range slots {
		idle[s] = len(sandbox.ChildrenOf(s.cmd.Process.Pid))
	}
	j, ended := &journal{}, make(chan error, 1)
	go func() {
		_, err := b.Run(t.Context(), job(executor.Spec{Command: []string{"sleep", "60"}}), j)
		ended <- err
	}()
	for killed := false; !killed && len(ended) == 0; {
		for _, s := range slots {
			if len(sandbox.ChildrenOf(s.cmd.Process.Pid)) > idle[s] { // before the runner says that the program has begun
				killed = s.cmd.Process.Kill() == nil
			}
		}
	}
	if err := <-ended; executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("Run: %v", err)
	}
	if j.started() == nil {
		t.Error("the program counts as not started")
	}
}
