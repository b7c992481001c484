package sysmon

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// It comes after the test of the monitor, because it ends a thread. Go makes another one in its place.
func TestThreadsHaveShortSlicesAndKeepTheirNiceness(t *testing.T) {
	runtime.LockOSThread() // without an unlock: the thread ends with its slice and its niceness
	UsualSlice()           // a run before has shortened that of all threads
	usual, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(slice)
	if usual.Runtime == 0 || usual.Policy != unix.SCHED_NORMAL {
		want = usual.Runtime // before Linux 6.12, or with another policy, threads have no slices of their own
	}
	nice := min(usual.Nice+1, 19) // the kernel's maximum
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), int(nice)); err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task") // a thread that is made meanwhile may have the slice of its maker
	if err != nil {
		t.Fatal(err)
	}
	ShortenSlices()
	if got, err := unix.SchedGetAttr(0, 0); err != nil || got.Runtime != want || got.Nice != nice {
		t.Errorf("this thread has %+v, %v", got, err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unix.SchedGetAttr(tid, 0); err == nil && got.Runtime != want {
			t.Errorf("thread %d has a slice of %d ns", tid, got.Runtime)
		}
	}
	UsualSlice()
	if got, err := unix.SchedGetAttr(0, 0); err != nil || got.Runtime != usual.Runtime || got.Nice != nice {
		t.Errorf("this thread has %+v, %v; usual is %+v", got, err, usual)
	}
}
