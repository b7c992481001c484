package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// supervise runs this program again, as a child, with the same arguments, and ends all that the child leaves behind: processes of
// tests and daemons, in whatever group or session they are. It returns the exit code.
//
// The supervisor is the reaper of the whole tree (PR_SET_CHILD_SUBREAPER), so that no orphan of a test gets out of it.
func supervise() int {
	const setChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		fmt.Fprintln(os.Stderr, "gate: become the reaper of the tests' processes:", errno)
		return 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{ //nolint:gosec // it is this program, with the same arguments
		Env: append(os.Environ(), supervised+"=1"), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: true}, // signals of a terminal come to it from here only
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = child.Signal(s)
		}
	}()
	var code int
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid == child.Pid {
			code = status.ExitStatus()
			if status.Signaled() {
				code = 128 + int(status.Signal())
			}
			break
		}
		if err != nil {
			return 1
		}
	}
	endDescendants()
	return code
}

// endDescendants ends all processes below this one: by SIGTERM, and after ten seconds by SIGKILL.
func endDescendants() {
	begin := time.Now()
	told := map[int]bool{}
	for {
		for { // reap
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
		left := descendants(os.Getpid())
		if len(left) == 0 {
			return
		}
		for pid, name := range left {
			if time.Since(begin) > 10*time.Second {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			} else if !told[pid] {
				fmt.Fprintf(os.Stderr, "gate: ending process %d, which a part left running: %.120s\n", pid, name)
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
			told[pid] = true
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// descendants returns the processes below a process, with their command lines.
func descendants(of int) map[int]string {
	parents := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		// PID (NAME) STATE PARENT …, where NAME may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	below := map[int]string{}
	for pid := range parents {
		for up := parents[pid]; up > 1; up = parents[up] {
			if up == of {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				below[pid] = strings.ReplaceAll(string(line), "\x00", " ")
				break
			}
		}
	}
	return below
}
