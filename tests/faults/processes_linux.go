package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of everything below it whose own parent ends, so that Runner can end what a test has left.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of what is left: %w", err)
	}
	return nil
}

// own gives the command a process group of its own, which Cancel kills.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// reapOrphans waits for the children of this process that end, other than the command, until it is stopped. A test may wait for them: the
// first process of a namespace ends when all others were waited for.
func reapOrphans(command int) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stopping:
				return
			case <-time.After(50 * time.Millisecond):
			}
			for _, pid := range childrenOf() {
				if pid != command {
					_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // most of them live
				}
			}
		}
	}()
	return func() { close(stopping); <-stopped }
}

// endChildren kills the children of this process until there are none. After Adopt they are all that a command has left. It runs
// while no command does.
func endChildren() {
	for {
		children := childrenOf()
		if len(children) == 0 {
			return
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		// Any of them, because one may have to wait for another: the first process of a namespace ends when all others were waited for.
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(-1, &status, 0, nil)
	}
}

func childrenOf() []int {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for word := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
