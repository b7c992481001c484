//go:build linux && embedrunner

package binary

import (
	"fmt"
	"os/exec"
	"testing"
)

func TestTheEmbeddedRunnerCanBeExecuted(t *testing.T) {
	t.Parallel()
	f, ok := Open()
	if !ok {
		t.Fatal("no program, or no memfd")
	}
	defer f.Close() //nolint:errcheck // read only
	out, err := exec.Command(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "--what").CombinedOutput()
	if err == nil || len(out) == 0 {
		t.Errorf("%v %s", err, out)
	}
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("the program can be changed")
	}
}
