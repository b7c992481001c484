package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/sysmon"
)

func TestAThreadThatStartsProgramsHasTheUsualTimerSlack(t *testing.T) {
	t.Parallel()
	got := make(chan int)
	go changing(func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 300_000, 0, 0, 0) // as a thread that the monitor has made
		changing(func() {
			slack, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
			got <- slack
		})
	})
	if slack := <-got; slack != 50_000 {
		t.Errorf("it is %d ns", slack)
	}
}

func TestAThreadThatStartsProgramsHasTheUsualTimeSlice(t *testing.T) {
	t.Parallel()
	short, got := make(chan uint64, 1), make(chan uint64, 1)
	read := func(to chan uint64) {
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Error(err)
			attr = &unix.SchedAttr{}
		}
		to <- attr.Runtime
	}
	go changing(func() {
		sysmon.ShortenSlices()
		read(short)
		changing(func() { read(got) })
	})
	if a, b := <-short, <-got; a != 0 && a >= b { // 0: before Linux 6.12
		t.Errorf("it is %d ns, and a short one is %d ns", b, a)
	}
}
