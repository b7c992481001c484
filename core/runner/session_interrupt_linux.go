package runner

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/drivers"
)

// The times between two interrupts of one cell: while new programs keep coming, the first, and the longest.
const (
	shortInterruptPause = 10 * time.Millisecond
	firstInterruptPause = 50 * time.Millisecond
	lastInterruptPause  = time.Second
)

// interruption ends a cell: SIGINT to the interpreter and to what it has started since the cell began and waits for. What
// it had started before goes on, as background jobs do.
//
// One signal is not always enough. A child between fork and exec drops it; a shell takes no notice when its child ended by
// itself. So it is sent again, but to nobody who may be cleaning up: not to an interpreter that has heard it, not to a program
// that had it and is no shell, or to what that has started since, and to a shell only when it goes on with new commands.
type interruption struct {
	interp *interpreter
	n      int64 // the cell
	from   int64 // in ticks: who is older is none of the cell's
	pause  time.Duration
	told   map[int]processLook // who had the signal, as they were then
}

// processLook is a process and what it runs.
type processLook struct {
	started int64 // in ticks
	name    string
	command string
}

func newInterruption(i *interpreter, n int64, since time.Time) *interruption {
	return &interruption{interp: i, n: n, from: startTicks(since), told: map[int]processLook{}}
}

// send interrupts, or interrupts again, and says when to do so once more.
func (n *interruption) send() <-chan time.Time {
	first := n.pause == 0
	driver := n.interp.session.driver
	found := n.look(n.interp.pid)
	switch {
	case driver.Told:
		if first { // what waits for a child hears of it before the child ends
			n.tell()
			found.fresh, n.told = nil, map[int]processLook{}
		}
	case first, driver.Hears, len(found.fresh) > 0, !found.waits:
		// Before its children: a shell whose child is interrupted and who is not itself goes on.
		_ = unix.Kill(n.interp.pid, driver.Signal) // gone is as good
	}
	for _, pid := range found.fresh {
		_ = unix.Kill(pid, unix.SIGINT) // gone is as good
	}
	n.pause = min(max(2*n.pause, firstInterruptPause), lastInterruptPause)
	if len(found.fresh) > 0 && !first {
		return time.After(shortInterruptPause)
	}
	return time.After(n.pause)
}

// tell lets the driver interrupt the cell.
func (n *interruption) tell() {
	if raw, err := n.interp.session.driver.Encode(drivers.Operation{Op: "interrupt", N: n.n}); err == nil {
		n.interp.write(raw)
	}
}

// looked is who is to be interrupted, and whether somebody was before and has not ended yet.
type looked struct {
	// fresh are parents before their children, and readers of a pipe before writers, whose end would end them otherwise.
	fresh []int
	waits bool
}

// look finds who below pid is to be interrupted, and takes them for told.
func (n *interruption) look(pid int) looked {
	var found looked
	for _, child := range slices.Backward(children(pid)) {
		now, state := lookAt(child)
		if now.started < n.from || state == 'Z' || len(n.told) > 1<<12 {
			continue
		}
		before, told := n.told[child]
		if told = told && before == now; told && !now.isShell() {
			found.waits = found.waits || !ignoresInterrupts(child)
			continue
		}
		n.told[child] = now
		below := n.look(child)
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

// lookAt says what a process runs and the state that it is in; zero: it is gone.
func lookAt(pid int) (processLook, byte) {
	dir := "/proc/" + strconv.Itoa(pid)
	raw, err := os.ReadFile(dir + "/stat") //nolint:gosec // a path of procfs
	if err != nil {
		return processLook{}, 0
	}
	open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')') // the name between may contain anything
	f := bytes.Fields(raw[end+1:])
	if len(f) < 20 || open < 0 {
		return processLook{}, 0
	}
	started, _ := strconv.ParseInt(string(f[19]), 10, 64)
	command, _ := os.ReadFile(dir + "/cmdline") //nolint:gosec // a path of procfs
	return processLook{started: started, name: string(raw[open+1 : end]), command: string(command)}, f[0][0]
}

// ignoresInterrupts reports whether SIGINT does nothing to a process, as to a background job of a shell.
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
