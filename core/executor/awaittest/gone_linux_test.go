package awaittest

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTheEndOfAProcessIsSeen(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := Observe(t, cmd.Process.Pid)
	if p.Ended() {
		t.Error("a process that waits for its input counts as ended")
	}
	if !strings.Contains(evidence(), " cat\n") {
		t.Error("the evidence lacks a child of this process")
	}
	in.Close()
	p.Gone(t)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if end := failure(func(t T) { Observe(t, cmd.Process.Pid) }); !strings.Contains(end, "open process") {
		t.Errorf("a process that is gone: %q", end)
	}
}
