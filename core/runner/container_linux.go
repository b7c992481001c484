package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OwnThreads is how many threads a runner that is PID 1 has at most. A container's pids limit must leave them to it, beside
// what the program may have.
const OwnThreads = 24

// container is what a runner does, and knows, that is PID 1 of a container: the program has its uid, nobody else's control
// groups are at hand, and what it starts has nowhere else to go.
type container struct {
	// oom is /proc/self/oom_score_adj, opened while that was ours; nil: it cannot be.
	oom      *os.File
	oomScore []byte
	seen     watched
	// gvisor: the kernel is gVisor's. See "On gVisor" in doc.go.
	gvisor bool
}

// programOOMScore makes the kernel end the program, not us, when the container's memory is full.
const programOOMScore = "1000"

// enterContainer settles a runner that is PID 1; nil: it is not. It comes before the process is made not dumpable, for its
// own files in /proc are not its own afterwards.
func enterContainer() (*container, error) {
	if os.Getpid() != 1 {
		return nil, nil
	}
	c := &container{seen: findWatched(), gvisor: onGVisor()}
	if f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0); err == nil {
		raw := make([]byte, 16)
		if n, err := f.ReadAt(raw, 0); err == nil || n > 0 {
			c.oom, c.oomScore = f, bytes.TrimSpace(raw[:n])
		}
	}
	// What we say must never hold us up: nobody may be reading.
	if err := unix.SetNonblock(2, true); err != nil && !errors.Is(err, unix.EBADF) {
		return nil, fmt.Errorf("standard error: %w", err)
	}
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 2))
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(48 << 20)
	makeThreads(OwnThreads - 8)
	return c, nil
}

// makeThreads makes n threads that the Go scheduler keeps. A program that has taken all the processes that the container
// may have would otherwise leave it none to make, and that is the end of a Go program.
func makeThreads(n int) {
	var there, done sync.WaitGroup
	release := make(chan struct{})
	for range n {
		there.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			there.Done()
			<-release
		})
	}
	there.Wait()
	close(release)
	done.Wait()
}

// ignoreSignals gives every signal that we do not need ourselves back to the kernel, which lets none of those from inside
// a pid namespace reach its PID 1. Go would handle them all, and take one that was queued with the right code for a fault
// of its own. It comes after the last signal.Notify.
func ignoreSignals() {
	type action struct { // the kernel's, all zero: the default
		handler, flags, restorer uintptr
		mask                     uint64
	}
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP: // cannot be changed, and do not reach us either
		case syscall.SIGCHLD: // the reaper's
		case syscall.SIGURG: // the scheduler's, which takes it for a hint at most
		default:
			var a action
			//nolint:gosec // there is no other way past Go's own handlers
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&a)), 0, unsafe.Sizeof(a.mask), 0, 0)
		}
	}
}

// lendOOMScore lets what is forked before restore be what the kernel ends first.
func (c *container) lendOOMScore() (restore func()) {
	if c == nil || c.oom == nil {
		return func() {}
	}
	if _, err := c.oom.WriteAt([]byte(programOOMScore), 0); err != nil {
		return func() {}
	}
	return func() { _, _ = c.oom.WriteAt(c.oomScore, 0) } // it was so before
}

// group is what there is in the place of control groups of an Execution's own.
func (c *container) group() *group {
	w := c.seen
	g := &group{everything: true}
	if w.memory == "" && w.cpu == "" {
		return g
	}
	g.watched = &w
	g.watched.begin()
	if w.limited() {
		g.memory, g.v2 = w.memory, w.v2
	}
	return g
}

// boundsMemory reports whether the container is one whose memory has a bound: gVisor's kernel is in such a one, whole, which
// nobody inside sees.
func (c *container) boundsMemory() bool { return c != nil && (c.gvisor || c.seen.limited()) }

// watched is the container's control groups, which we may only read. They count since the container's start.
type watched struct {
	memory string // a v1 folder, or with v2 the v2 one; "": none
	cpu    string // likewise, of cpuacct on v1
	v2     bool

	oomBefore, peakBefore int64
	cpuBefore             time.Duration
}

// findWatched finds them where they are mounted.
func findWatched() watched {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return watched{}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return watched{}
	}
	var w watched
	there := func(p groupPlace, file string) string {
		for _, dir := range []string{p.own, p.mount} {
			if _, err := os.Stat(dir + "/" + file); err == nil {
				return dir
			}
		}
		return ""
	}
	for _, p := range groupPlaces(string(mounts), string(own)) {
		switch p.controller {
		case "memory":
			w.memory = there(p, "memory.oom_control")
		case "cpuacct":
			w.cpu = there(p, "cpuacct.usage")
		case unified:
			if dir := there(p, "memory.events"); dir != "" {
				w.memory, w.v2 = dir, true
				w.cpu = there(p, "cpu.stat")
			}
		}
	}
	return w
}

// begin remembers what was counted before.
func (w *watched) begin() {
	w.oomBefore, w.peakBefore, w.cpuBefore = w.countOOM(), w.readPeak(), w.readCPU()
}

// limited reports whether the container's memory has a bound; else it is not one that a program could run into.
func (w *watched) limited() bool {
	file := "memory.limit_in_bytes"
	if w.v2 {
		file = "memory.max"
	}
	n := number(w.memory, file) // "max" is no number
	return n > 0 && n < 1<<60
}

func (w *watched) countOOM() int64 {
	if w.v2 {
		return keyed(w.memory, "memory.events", "oom_kill")
	}
	return keyed(w.memory, "memory.oom_control", "oom_kill")
}

func (w *watched) readPeak() int64 {
	if w.v2 {
		return number(w.memory, "memory.peak")
	}
	return number(w.memory, "memory.max_usage_in_bytes")
}

func (w *watched) readCPU() time.Duration {
	if w.v2 {
		return time.Duration(keyed(w.cpu, "cpu.stat", "usage_usec")) * time.Microsecond
	}
	return time.Duration(number(w.cpu, "cpuacct.usage"))
}

func (w *watched) oomKills() int64 { return w.countOOM() - w.oomBefore }

// peak is the container's where this Execution has raised it; 0 = it has not.
func (w *watched) peak() int64 {
	if peak := w.readPeak(); peak > w.peakBefore || w.oomKills() > 0 {
		return peak
	}
	return 0
}

// hides reports whether an Execution may stay below the peak of those before it.
func (w *watched) hides() bool { return w.peakBefore > 16<<20 }

// cpuTime is negative if it is unknown.
func (w *watched) cpuTime() time.Duration {
	if now := w.readCPU(); now > w.cpuBefore {
		return now - w.cpuBefore
	}
	return -1
}

// say writes to standard error without ever waiting.
func say(format string, args ...any) {
	_, _ = unix.Write(2, fmt.Appendf(nil, "runner: "+format+"\n", args...)) // it goes nowhere if nobody takes it
}
