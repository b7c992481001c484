package sysmon

import (
	"os"
	"strconv"
)

// slackNanoseconds is by how much a sleep of the monitor may be longer. A system call that blocks keeps other goroutines from its
// processor for one or two sleeps.
const slackNanoseconds = 1_000_000

// Calm prolongs the sleeps of this process's monitor. It must be called when the process starts. It needs CAP_SYS_NICE, and does nothing
// without it. A thread that the monitor makes inherits its timer slack, and passes it on to programs that it starts.
func Calm() {
	if tid := monitor(); tid != "" {
		// A sleep as long as before does no harm.
		_ = os.WriteFile("/proc/"+tid+"/timerslack_ns", strconv.AppendInt(nil, slackNanoseconds, 10), 0)
	}
}

// monitor returns the number of the monitor's thread, which the runtime makes before all others, or "".
func monitor() string {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return ""
	}
	defer dir.Close()                   //nolint:errcheck // read only
	threads, err := dir.Readdirnames(2) // in the order of their starts
	if err != nil || len(threads) < 2 {
		return ""
	}
	return threads[1]
}
