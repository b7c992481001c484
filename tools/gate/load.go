package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// busyCommand is this program as a loop that keeps one processor busy.
const busyCommand = "busy"

// busy ends when its parent has.
func busy() {
	runtime.GOMAXPROCS(1)
	for parent := os.Getppid(); os.Getppid() == parent; {
		for i := 0; i < 1<<28; i++ { //nolint:revive // a loop is what it is for
		}
	}
	os.Exit(0)
}

// startLoad starts n busy loops at nice 0 and returns what ends them.
func startLoad(n int) (func(), error) {
	var loops []*exec.Cmd
	stop := func() {
		for _, loop := range loops {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}
	}
	for range n {
		loop := exec.Command("/proc/self/exe", busyCommand)
		loop.Env = append(os.Environ(), supervised+"=1")
		loop.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := loop.Start(); err != nil {
			stop()
			return nil, err
		}
		loops = append(loops, loop)
	}
	return stop, nil
}

// wantedLoops is the variable LOOPS. Parts do not see it, because some of them run gates of their own.
var wantedLoops = os.Getenv("LOOPS")

// besideLoops is a runner's first: busy loops that last as long as the run.
func besideLoops() (last func(), err error) {
	fmt.Printf("beside %d busy loops:\n", loops())
	return startLoad(loops())
}

// loops is the number of busy loops in `make test-load` and in the evidence: LOOPS, or four per processor. `make test` has none without LOOPS.
func loops() int {
	if n, err := strconv.Atoi(wantedLoops); err == nil && n > 0 {
		return n
	}
	return 4 * runtime.NumCPU()
}

// strace delays system calls of all processes of a command, in microseconds: what starts, ends and waits for processes each time, the frequent
// calls every now and then. delay_exit would be as good, but strace 6.1 then loses processes.
var strace = []string{
	"strace", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf",
	"-e", "trace=write,futex,fork,vfork,clone,clone3,execve,wait4,waitid",
	"-e", "inject=fork,vfork,clone,clone3,execve,wait4,waitid:delay_enter=20000",
	"-e", "inject=write:delay_enter=5000:when=1+20",
	"-e", "inject=futex:delay_enter=2000:when=1+50",
}

// delayed wraps the command of a part in strace: the test binaries of `go test`, else the whole command.
func delayed(command []string) []string {
	if command[0] != "go" {
		return append(slices.Clone(strace), command...)
	}
	return slices.Insert(slices.Clone(command), 2, "-exec="+strings.Join(strace, " "))
}
