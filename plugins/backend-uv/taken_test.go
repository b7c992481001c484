package uvbackend

import (
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// idleSlots returns the slots of b, which are idle, with the number of children that each runner has.
func idleSlots(t *testing.T, b *Backend) map[*slot]int {
	t.Helper()
	s, _, err := b.slots.take(t.Context(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	b.slots.put(s)
	b.slots.settle(t) // so that the program gets one of these
	b.slots.mu.Lock()
	defer b.slots.mu.Unlock()
	idle := map[*slot]int{}
	for s := range b.slots.all {
		idle[s] = len(sandbox.ChildrenOf(s.cmd.Process.Pid))
	}
	return idle
}

func TestAProgramWhoseRunnerDiesAtItsStartIsNotStartedAgain(t *testing.T) {
	for name, stdin := range map[string]*executor.Source{"without standard input": nil, "with standard input": input(func() {})} {
		b := openBackend(t, map[string]any{"start": StartExec})
		idle := idleSlots(t, b)
		j, ended := &journal{}, make(chan error, 1)
		jb := job(executor.Spec{Command: []string{"cat", "/dev/zero"}})
		jb.Stdin = stdin
		go func() {
			_, err := b.Run(t.Context(), jb, j)
			ended <- err
		}()
		for killed := false; !killed && len(ended) == 0; {
			for s, children := range idle {
				if len(sandbox.ChildrenOf(s.cmd.Process.Pid)) > children { // before the runner says that the program has begun
					killed = s.cmd.Process.Kill() == nil
				}
			}
		}
		if err := <-ended; executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s: Run: %v", name, err)
		}
		if j.started() == nil {
			t.Errorf("%s: the program counts as not started", name)
		}
	}
}

// input is a Source that calls opened.
func input(opened func()) *executor.Source {
	return &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
		opened()
		return io.NopCloser(strings.NewReader("input")), nil
	}}
}

// What was read of an input is gone. The runner dies before it says anything about the program.
func TestAProgramWhoseInputWasReadIsNotStartedAgain(t *testing.T) {
	for _, which := range []string{"workspace", "stdin"} {
		b := openBackend(t, map[string]any{"start": StartExec})
		idle := idleSlots(t, b)
		for s := range idle {
			if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it reads nothing
				t.Fatal(err)
			}
		}
		opened := 0
		source := input(func() {
			opened++
			for s := range idle {
				_ = s.cmd.Process.Kill() // the second time it has ended
			}
		})
		j := job(executor.Spec{Command: []string{"true"}})
		if which == "stdin" {
			j.Stdin = source
		} else {
			j.Workspace = source
		}
		if _, err := b.Run(t.Context(), j, &journal{}); executor.CodeOf(err) != executor.Unavailable || opened != 1 {
			t.Errorf("%s: it was read %d times: %v", which, opened, err)
		}
	}
}
