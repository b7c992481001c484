package sandbox

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestChildrenAreFoundByTheirParent as by the kernel's own list, which not every kernel has.
func TestChildrenAreFoundByTheirParent(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	sleeper, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	shell := cmd.Process.Pid
	if !slices.Contains(childrenByParent(os.Getpid()), shell) {
		t.Error("the shell is not found")
	}
	if a, b, want := childrenByParent(shell), ChildrenOf(shell), []int{sleeper}; !slices.Equal(a, want) || !slices.Equal(b, want) {
		t.Errorf("%v, and by the kernel's list %v, want %v", a, b, want)
	}
	if err := syscall.Kill(sleeper, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // however it ends
}
