//go:build linux

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/python-executor/python-executor/core/executor/leaktest"
)

// TestMain is also a runner that breaks.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "break" {
		a := newAgent(nil)
		a.dying = func(err error) { fmt.Println("told", err) }
		a.die(errors.New("broken"))
	}
	leaktest.Main(m)
}

func TestARunnerThatBreaksTellsItsHostInTheSameProcess(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("/proc/self/exe", "break").Output() //nolint:gosec // ourselves
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != ExitBroken || string(out) != "told broken\n" {
		t.Errorf("%v, %q", err, out)
	}
}
