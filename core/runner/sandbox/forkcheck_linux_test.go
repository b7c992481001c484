package sandbox

import (
	"os"
	"os/exec"
	"testing"
)

func TestAProcessThatExitsIsKnown(t *testing.T) {
	if IsExiting(os.Getpid()) {
		t.Error("this process exits")
	}
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if IsExiting(pid) {
		t.Error("a process that reads exits")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for end := t.Context(); !IsExiting(pid); { // until it is waited for, the process is there
		if end.Err() != nil {
			t.Fatal("a process that has ended does not exit")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
