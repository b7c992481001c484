package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Container is what a runner that is PID 1 of a container has and does differently. The program may have its uid, and there are
// only the container's own control groups, which it may read.
type Container struct {
	// oom is /proc/self/oom_score_adj, opened before the process was not dumpable. It is nil if it cannot be opened.
	oom      *os.File
	oomScore []byte
	Seen     Watched
	// GVisor reports whether the kernel is gVisor's. See "On gVisor" in doc.go.
	GVisor bool
}

// programOOMScore makes the kernel kill the program, and not the runner, when the container's memory is full.
const programOOMScore = "1000"

// EnterContainer prepares a runner that is PID 1. It returns nil if the process is not. It comes before the process is made not
// dumpable, because the process cannot open its own files in /proc afterwards.
func EnterContainer() (*Container, error) {
	if os.Getpid() != 1 {
		return nil, nil
	}
	c := &Container{Seen: findWatched(), GVisor: archive.OnGVisor()}
	if f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0); err == nil {
		raw := make([]byte, 16)
		if n, err := f.ReadAt(raw, 0); err == nil || n > 0 {
			c.oom, c.oomScore = f, bytes.TrimSpace(raw[:n])
		}
	}
	// A write to standard error must never block, because there may be no reader.
	if err := unix.SetNonblock(2, true); err != nil && !errors.Is(err, unix.EBADF) {
		return nil, fmt.Errorf("standard error: %w", err)
	}
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 2))
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(48 << 20)
	makeThreads(protocol.OwnThreads - 8)
	return c, nil
}

// makeThreads makes n threads, which the Go scheduler keeps. A Go program that cannot make a thread ends, and a program may
// take all processes that the container may have.
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

// IgnoreSignals gives every signal that the runner does not need back to the kernel, which lets none from inside a pid
// namespace reach PID 1. Go would handle them all, and take a signal that was queued with a certain code for a fault of its
// own. IgnoreSignals comes after the last signal.Notify.
func IgnoreSignals() {
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

// lendOOMScore makes the kernel kill first what is forked before restore.
func (c *Container) lendOOMScore() (restore func()) {
	if c == nil || c.oom == nil {
		return func() {}
	}
	if _, err := c.oom.WriteAt([]byte(programOOMScore), 0); err != nil {
		return func() {}
	}
	return func() { _, _ = c.oom.WriteAt(c.oomScore, 0) } // it was so before
}

// Group returns the container's own groups, to read, in place of groups of an Execution's own.
func (c *Container) Group() *Group {
	w := c.Seen
	g := &Group{Everything: true}
	if w.Memory == "" && w.cpu == "" {
		return g
	}
	g.watched = &w
	g.watched.Begin()
	if w.limited() {
		g.Memory, g.v2 = w.Memory, w.v2
	}
	return g
}

// boundsMemory reports whether the container's memory has a bound. gVisor's has one that cannot be seen from inside.
func (c *Container) boundsMemory() bool { return c != nil && (c.GVisor || c.Seen.limited()) }

// Watched is the container's control groups, which the runner may only read. They count since the container's start.
type Watched struct {
	Memory string // a v1 folder, or with v2 the v2 one; "": none
	cpu    string // likewise, of cpuacct on v1
	v2     bool

	oomBefore, peakBefore int64
	cpuBefore, ownBefore  time.Duration
}

// findWatched finds the container's control groups where they are mounted.
func findWatched() Watched {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Watched{}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Watched{}
	}
	var w Watched
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
			w.Memory = there(p, "memory.oom_control")
		case "cpuacct":
			w.cpu = there(p, "cpuacct.usage")
		case unified:
			if dir := there(p, "memory.events"); dir != "" {
				w.Memory, w.v2 = dir, true
				w.cpu = there(p, "cpu.stat")
			}
		}
	}
	return w
}

// Begin remembers the counts before an Execution.
func (w *Watched) Begin() {
	w.oomBefore, w.peakBefore, w.cpuBefore, w.ownBefore = w.countOOM(), w.readPeak(), w.readCPU(), ownCPU()
}

// limited reports whether the container's memory has a bound that a program could reach.
func (w *Watched) limited() bool {
	n := number(w.Memory, memoryFilesOf(w.v2).limit) // "max" is no number
	return n > 0 && n < 1<<60
}

func (w *Watched) countOOM() int64 { return keyed(w.Memory, memoryFilesOf(w.v2).events, "oom_kill") }

func (w *Watched) readPeak() int64 { return number(w.Memory, memoryFilesOf(w.v2).peak) }

func (w *Watched) readCPU() time.Duration {
	if w.v2 {
		return time.Duration(keyed(w.cpu, "cpu.stat", "usage_usec")) * time.Microsecond
	}
	return time.Duration(number(w.cpu, "cpuacct.usage"))
}

func (w *Watched) oomKills() int64 { return w.countOOM() - w.oomBefore }

// peak returns the container's peak if this Execution has raised it, and 0 otherwise.
func (w *Watched) peak() int64 {
	if peak := w.readPeak(); peak > w.peakBefore || w.oomKills() > 0 {
		return peak
	}
	return 0
}

// hides reports whether the Execution may stay below the peak of those before it.
func (w *Watched) hides() bool { return w.peakBefore > 16<<20 }

// Counts reports whether w knows the CPU time.
func (w *Watched) Counts() bool { return w.cpu != "" }

// CPUTime returns the CPU time of this Execution, without that of the runner, which passes its output on; negative if unknown.
func (w *Watched) CPUTime() time.Duration {
	own := ownCPU() - w.ownBefore // before the rest, so that none of it is missing there
	if used := w.readCPU() - w.cpuBefore - own; used > 0 {
		return used
	}
	return -1
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it fails for a wrong argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Kernel returns the kernel's name for HelloReply. c may be nil.
func (c *Container) Kernel() string {
	if c == nil || !c.GVisor {
		return ""
	}
	return protocol.KernelGVisor
}

// CatchSignals catches the signals that would end the runner. On gVisor every signal reaches PID 1, also the runner's own
// SIGPIPE. Programs cannot send any, because they have another uid. Signals are caught and not ignored, because programs would
// inherit that.
func CatchSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXFSZ)
}
