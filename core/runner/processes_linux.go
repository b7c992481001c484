package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ended is how the main process ended.
type ended struct {
	status syscall.WaitStatus
	at     time.Time
	// alone: nothing else was left at that moment.
	alone bool
}

// reaper waits for the main process and, since the runner is a subreaper, for every orphan of it. It ends when no
// process is left: a descendant that is alive has ancestors alive up to a child of ours, so "no children" means none.
type reaper struct {
	pid   int
	main  chan ended
	empty chan struct{}
	// cpu is the time of all that was reaped; read it after empty.
	cpu time.Duration

	mu   sync.Mutex
	over bool // empty is closed
}

func newReaper(pid int, fatal func()) *reaper {
	r := &reaper{pid: pid, main: make(chan ended, 1), empty: make(chan struct{})}
	go func() {
		defer fatal()
		r.loop()
	}()
	return r
}

// childEnded receives when children of ours may have ended. A thread that waits in wait4 instead keeps its place in Go's
// scheduler for milliseconds, and the scheduler's monitor awake for as long, beside a program that runs not much longer.
var childEnded = sync.OnceValue(func() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	return c
})

func (r *reaper) loop() {
	changed := childEnded() // before the first look, so that nothing is missed
	for !r.reap() {
		select {
		case <-changed:
		case <-r.empty:
		}
	}
}

// endWait is how long a process is given to end whose output has ended. It takes microseconds, or the process has closed
// its output and goes on.
const endWait = time.Millisecond

// soon waits a moment for the main process, whose output has ended: the thread that saw that sees its end much earlier
// than one that a signal has to wake. pidfd is of the main process, negative without one.
func (r *reaper) soon(pidfd int) {
	if pidfd < 0 {
		return
	}
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	if n, err := unix.Poll(fds, int(endWait.Milliseconds())); n > 0 || errors.Is(err, unix.EINTR) {
		r.reap() // EINTR: the signal that tells of its end came to this thread
	}
}

// reap takes every process that has ended, and reports whether none is left.
func (r *reaper) reap() (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first *ended
	for !r.over {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, &ru)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && pid > 0 {
			r.cpu += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
			if pid == r.pid {
				first = &ended{status: ws, at: time.Now()}
			}
			continue
		}
		if first != nil {
			first.alone = err != nil
			r.main <- *first
		}
		if err == nil {
			return false
		}
		r.over = true // ECHILD
		close(r.empty)
	}
	return true
}

// killAll kills the group, then whatever descends from this process in other ways.
func killAll(g *group) {
	if g.everything {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all at once but ourselves, PID 1: nothing forks faster
		return
	}
	if len(g.Cgroups) > 0 {
		g.killOnce()
	}
	for _, pid := range descendants() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
}

// killUntil repeats killAll until empty is closed. It fails when something does not die, which is then stuck in the kernel.
func killUntil(g *group, empty <-chan struct{}) error {
	deadline := time.Now().Add(killPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		killAll(g)
		timer := time.NewTimer(pause)
		select {
		case <-empty:
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes do not die: %v", descendants())
		}
	}
}

// descendants lists what descends from this process, parents first.
func descendants() []int {
	var found []int
	queue := []int{os.Getpid()}
	for len(queue) > 0 && len(found) < 1<<16 {
		next := children(queue[0])
		queue = append(queue[1:], next...)
		found = append(found, next...)
	}
	return found
}

// listsChildren reports whether the kernel lists the children of processes.
var listsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// children lists the children of all threads of pid.
func children(pid int) []int {
	if !listsChildren() {
		return childrenByParent(pid)
	}
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil
	}
	var found []int
	for _, list := range lists {
		raw, err := os.ReadFile(list) //nolint:gosec // a path of procfs
		if err != nil {
			continue
		}
		for f := range bytes.FieldsSeq(raw) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}

// childrenByParent lists the processes that call pid their parent.
func childrenByParent(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, parent := processState(child); parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// statusBytes reads one value of /proc/<pid>/status that is given in kB, as bytes; 0 = unknown.
func statusBytes(pid int, keys ...string) []int64 {
	values := make([]int64, len(keys))
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") //nolint:gosec // a path of procfs
	if err != nil {
		return values
	}
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		for i, key := range keys {
			if len(f) == 3 && string(f[0]) == key+":" {
				if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
					values[i] = n << 10
				}
			}
		}
	}
	return values
}
