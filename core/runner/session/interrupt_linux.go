package session

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// The times between two interrupts of a cell: the first, and the longest while new programs keep coming.
const (
	shortInterruptPause = 10 * time.Millisecond
	firstInterruptPause = 50 * time.Millisecond
	lastInterruptPause  = time.Second

	// toldPause is what a driver has to interrupt the cell before its children are. V8 aborts if a cell fails, for the end of a child
	// for one, in the moment in which it is terminated.
	toldPause = 250 * time.Millisecond

	// A fork of a shell that has used less than forkTicks of processor time may be about to execute its program. It is waited for, at
	// most forkPatience, with looks after forkPause.
	forkTicks    = 2
	forkPatience = time.Second
	forkPause    = time.Millisecond
)

// Interruption ends a cell. It sends SIGINT to the interpreter and to what that has started since the cell began and waits for.
// What was started before goes on, as background jobs do.
//
// One signal is not always enough. A child between fork and exec drops it, and a shell ignores it when its child ends by
// itself, as the end of a pipeline does when only its beginning was interrupted. So no child is interrupted while another one is
// between fork and exec. And the signal is sent again, but not to a process that may be cleaning up: not to an interpreter that
// has heard it, not to a program that had it and is no shell, nor to what such a program has started since. A shell gets it again
// only when it goes on with new commands.
type Interruption struct {
	interp *Interpreter
	n      int64 // the cell
	from   int64 // in ticks; a process that is older is not of the cell
	pause  time.Duration
	told   map[int]processLook // the processes that were interrupted, as they were then
	// waits is called before each pause for a fork. nil but in tests.
	waits func()
}

// processLook is a process and the program that it runs.
type processLook struct {
	started int64 // in ticks
	name    string
	command string
}

func NewInterruption(i *Interpreter, n int64, since time.Time) *Interruption {
	return &Interruption{interp: i, n: n, from: startTicks(since), told: map[int]processLook{}}
}

// Send interrupts the cell, or interrupts it again, and returns when to call Send once more.
func (n *Interruption) Send() <-chan time.Time {
	first := n.pause == 0
	driver := n.interp.session.Driver
	switch {
	case first && driver.Told: // what waits for a child hears of it before the child ends
		n.tell()
		n.pause = toldPause
		return time.After(n.pause)
	case first:
		// The interpreter comes first: a shell whose child is interrupted, and which is not, goes on. It comes before the look: the shell
		// waits for nothing that it starts afterwards.
		_ = unix.Kill(n.interp.PID, driver.Signal) // gone is as good
	}
	found := n.settled()
	if !first && !driver.Told && (driver.Hears || len(found.fresh) > 0 || !found.waits) {
		_ = unix.Kill(n.interp.PID, driver.Signal) // gone is as good
	}
	for _, pid := range found.fresh {
		_ = unix.Kill(pid, unix.SIGINT) // gone is as good
	}
	switch {
	case first:
		n.pause = firstInterruptPause
	case len(found.fresh) > 0:
		n.pause = shortInterruptPause
	default:
		n.pause = min(2*n.pause, lastInterruptPause)
	}
	return time.After(n.pause)
}

// Kill ends what the cell has started and the interpreter may be waiting for, and returns when to call Send, so that the cell
// does not go on. Without such processes it returns nil.
func (n *Interruption) Kill() <-chan time.Time {
	if n.killBelow(n.interp.PID) == 0 {
		return nil
	}
	n.pause = shortInterruptPause
	return time.After(n.pause)
}

func (n *Interruption) killBelow(pid int) (killed int) {
	for _, child := range sandbox.ChildrenOf(pid) {
		if now := sandbox.ReadProcess(child); now.Started < n.from || now.State == 'Z' {
			continue
		}
		killed += 1 + n.killBelow(child)
		_ = unix.Kill(child, unix.SIGKILL) // gone is as good
	}
	return killed
}

// tell makes the driver interrupt the cell.
func (n *Interruption) tell() {
	if raw, err := n.interp.session.Driver.Encode(drivers.Operation{Op: "interrupt", N: n.n}); err == nil {
		n.interp.Write(raw)
	}
}

// looked is what a look has found: the processes to interrupt, and whether a process that was interrupted before is alive.
type looked struct {
	// fresh has parents before their children, and readers of a pipe before its writers, whose end would end the readers
	// otherwise.
	fresh []int
	waits bool
	// forks reports whether a process may be a shell between fork and exec.
	forks bool
}

// settled looks for the processes of the cell until no shell is between fork and exec.
func (n *Interruption) settled() looked {
	before := n.told
	for until := time.Now().Add(forkPatience); ; time.Sleep(forkPause) {
		n.told = map[int]processLook{}
		found := n.look(n.interp.PID, before)
		if !found.forks || time.Now().After(until) {
			return found
		}
		if n.waits != nil {
			n.waits()
		}
	}
}

// look finds the processes below pid that have to be interrupted, and notes them as told. In before are those that were told
// earlier.
func (n *Interruption) look(pid int, before map[int]processLook) looked {
	var found looked
	for _, child := range slices.Backward(sandbox.ChildrenOf(pid)) {
		now, state := lookAt(child)
		if now.started < n.from || state == 'Z' || len(n.told) > 1<<12 {
			continue
		}
		then, told := before[child]
		told = told && then == now
		n.told[child] = now
		if told && !now.isShell() {
			found.waits = found.waits || !ignoresInterrupts(child)
			continue
		}
		below := n.look(child, before)
		found.forks = found.forks || below.forks || !told && state != 'S' && now.isShell() && mayExec(child)
		if !told || len(below.fresh) > 0 {
			found.fresh = append(found.fresh, child)
		}
		found.fresh = append(found.fresh, below.fresh...)
		found.waits = found.waits || below.waits || told && !ignoresInterrupts(child)
	}
	return found
}

// isShell reports whether a process runs a shell, or is a fork of one.
func (p processLook) isShell() bool {
	switch p.name {
	case "bash", "sh", "dash", "ash", "busybox", "zsh", "ksh":
		return true
	}
	return false
}

// mayExec reports whether a shell that runs may be a fork that is about to execute its program: it has no child, and it has hardly run.
func mayExec(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") //nolint:gosec // a path of procfs
	if err != nil {
		return false
	}
	const user, system = 11, 12 // behind the name
	f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(f) <= system || len(sandbox.ChildrenOf(pid)) > 0 {
		return false
	}
	ticks := 0
	for _, field := range [][]byte{f[user], f[system]} {
		n, _ := strconv.Atoi(string(field)) // it is a number
		ticks += n
	}
	return ticks < forkTicks
}

// lookAt returns what a process runs, and its state, which is 0 if the process is gone.
func lookAt(pid int) (processLook, byte) {
	p := sandbox.ReadProcess(pid)
	command, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") //nolint:gosec // a path of procfs
	return processLook{started: p.Started, name: p.Name, command: string(command)}, p.State
}

// ignoresInterrupts reports whether a process ignores SIGINT, as a shell's background job does.
func ignoresInterrupts(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") //nolint:gosec // a path of procfs
	if err != nil {
		return true
	}
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		if len(f) == 2 && (string(f[0]) == "SigIgn:" || string(f[0]) == "SigBlk:") {
			if set, err := strconv.ParseUint(string(f[1]), 16, 64); err == nil && set&(1<<(unix.SIGINT-1)) != 0 {
				return true
			}
		}
	}
	return false
}
