//go:build linux

package sandbox

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// On a busy machine a killed process may get no processor for longer than KillPatience. It does not hang in the kernel.
func TestAProcessThatWaitsForAProcessorDoesNotHang(t *testing.T) {
	t.Parallel()
	const starved, hangs = 7, 8
	begun := time.Now()
	p := &Patience{looked: begun}
	waits := time.Hour // what it had waited before it was killed
	look := func(pids ...int) bool {
		begun = begun.Add(KillPatience / 2)
		return p.over(pids, begun, func(pid int) time.Duration {
			if pid == starved {
				return waits
			}
			return time.Hour
		})
	}
	if look(starved, hangs) {
		t.Fatal("patience is over after half of the time")
	}
	for range 3 {
		waits += KillPatience / 3
		if look(hangs, starved) {
			t.Fatal("a process that waits for a processor is taken for one that hangs")
		}
	}
	waits += KillPatience / 10
	if !look(hangs, starved) {
		t.Error("a process that had a processor most of the time is waited for")
	}
	p = &Patience{looked: begun}
	if look(hangs) || !look(hangs) {
		t.Error("a process that hangs is waited for longer, or less long, than before")
	}
	if p = NewPatience(); p.Over(func() []int { panic("too early") }) || p.Left() <= 0 {
		t.Error("patience is over at once")
	}
}

func TestTheKernelTellsHowLongAProcessHasWaitedForAProcessor(t *testing.T) {
	t.Parallel()
	var set unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &set))
	first := 0
	for !set.IsSet(first) {
		first++
	}
	set.Zero()
	set.Set(first)
	var pids []int
	for range 2 { // of which one can run at a time
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // never fails: nobody has waited for it
			_ = cmd.Wait()         // it was killed
		})
		must(t, unix.SchedSetaffinity(cmd.Process.Pid, &set))
		pids = append(pids, cmd.Process.Pid)
	}
	awaittest.Until(t, "both wait", func() bool {
		return waitedForProcessor(pids[0]) > 10*time.Millisecond && waitedForProcessor(pids[1]) > 10*time.Millisecond
	})
}
