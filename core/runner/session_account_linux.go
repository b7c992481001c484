package runner

import (
	"bytes"
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
	switch {
	case i.group.memory != "" && i.group.v2:
		// From Linux 6.12 on, for who holds it open.
		if i.peak == nil {
			i.peak, _ = os.OpenFile(i.group.memory+"/memory.peak", os.O_RDWR, 0)
		}
		if i.peak != nil {
			_, _ = i.peak.WriteAt([]byte("0"), 0)
		}
	case i.group.memory != "":
		_ = writeGroup(i.group.memory, "memory.max_usage_in_bytes", "0") // see above
	default:
		_ = os.WriteFile("/proc/"+strconv.Itoa(i.pid)+"/clear_refs", []byte("5"), 0o600) // see above
	}
}

// peakMemory is the highest use since resetPeak; 0 = unknown.
func (i *interpreter) peakMemory(s *sampler) int64 {
	if i.peak == nil {
		return s.result()
	}
	var text [32]byte
	n, _ := i.peak.ReadAt(text[:], 0)
	peak, err := strconv.ParseInt(string(bytes.TrimSpace(text[:n])), 10, 64)
	if err != nil {
		return s.result()
	}
	return peak
}
