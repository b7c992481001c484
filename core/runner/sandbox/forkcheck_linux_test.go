package sandbox

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
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

// Go's scheduler preempts threads by signals. Each one may come before a poll that does not wait.
func TestAProcessIsAliveWhateverSignalsComeMeanwhile(t *testing.T) {
	pid := os.Getpid()
	pidfd := descriptor(t, pid)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	asked, signalled := make(chan struct{}), make(chan struct{})
	go func(thread int) {
		defer close(signalled)
		for !IsClosed(asked) {
			_ = unix.Tgkill(pid, thread, unix.SIGURG) // this process is there
		}
	}(unix.Gettid())
	for range 50_000 {
		if !IsAlive(pidfd) {
			t.Error("this process seems to have ended")
			break
		}
	}
	close(asked)
	<-signalled
}
