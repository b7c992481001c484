package sysmon

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// slice is how long a thread of ours may run before another one of the same processor has its turn. It is the kernel's minimum.
const slice = 100 * time.Microsecond

// ShortenSlices gives the threads of this process a short time slice, and so all threads that they make. A thread with a short slice that
// wakes up takes the processor from a program at once. With the usual slice it waits for up to 3 ms. The share of the processor stays
// the same. ShortenSlices must be called when the process starts. It does nothing before Linux 6.12.
func ShortenSlices() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil {
			setSlice(tid, slice)
		}
	}
}

// UsualSlice gives the calling thread the usual time slice. Programs inherit that of the thread that starts them.
func UsualSlice() { setSlice(0, 0) }

// setSlice sets the time slice of a thread with the usual policy, and leaves its niceness. 0 is the usual slice. A sandbox may refuse it.
func setSlice(tid int, length time.Duration) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return
	}
	attr.Runtime = uint64(length) //nolint:gosec // not negative
	_ = unix.SchedSetAttr(tid, attr, 0)
}
