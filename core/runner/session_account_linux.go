package runner

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of start times in procfs (USER_HZ, which is 100 on every Linux).
const clockTick = 10 * time.Millisecond

// startTicks is t as procfs gives the start time of a process, rounded down.
func startTicks(t time.Time) int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return int64((time.Duration(now.Nano()) - time.Since(t)) / clockTick)
}

// cpuTime is what the interpreter and what it started have used so far; negative = unknown. Without a control group it is
// the interpreter's alone.
func (i *interpreter) cpuTime() time.Duration {
	if used := i.group.cpuTime(); used >= 0 {
		return used
	}
	// The clock of another process (clock_getcpuclockid).
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^i.pid<<3|2), &used); err != nil { //nolint:gosec // a process number
		return -1
	}
	return time.Duration(used.Nano())
}

// resetPeak lets the peak begin anew, where the kernel can: else it is the highest since the interpreter started.
func (i *interpreter) resetPeak() {
	if i.group.memory != "" {
		i.group.resetPeak()
		return
	}
	_ = os.WriteFile("/proc/"+strconv.Itoa(i.pid)+"/clear_refs", []byte("5"), 0o600) // it may be gone already
}
