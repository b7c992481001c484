package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"
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
