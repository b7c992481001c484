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
	main  chan ended
	empty chan struct{}
	// cpu is the time of all that was reaped; read it after empty.
	cpu time.Duration
}

func newReaper(pid int, fatal func()) *reaper {
	r := &reaper{main: make(chan ended, 1), empty: make(chan struct{})}
	go func() {
		defer fatal()
		r.loop(pid)
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

func (r *reaper) loop(main int) {
	defer close(r.empty)
	changed := childEnded() // before the first look, so that nothing is missed
	var first *ended
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, &ru)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && pid > 0 {
			r.cpu += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
			if pid == main {
				first = &ended{status: ws, at: time.Now()}
			}
			continue
		}
		if first != nil {
			first.alone = err != nil
			r.main <- *first
			first = nil
		}
		if err != nil {
			return // ECHILD
		}
		<-changed
	}
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

// children lists the children of all threads of pid.
func children(pid int) []int {
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
