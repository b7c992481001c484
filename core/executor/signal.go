package executor

import (
	"strconv"
	"strings"
)

// SignalNumber returns the number of a signal (Result.Signal) on Linux, where programs run; 0 if it has none. The caller's system may have
// other numbers.
func SignalNumber(name string) int {
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	for i, known := range strings.Fields(linuxSignals) {
		if known == name {
			return i + 1
		}
	}
	// Real-time signals have no fixed names: "SIGRTMIN+2", or a bare number.
	if rest, ok := strings.CutPrefix(name, "RTMIN"); ok {
		n, err := strconv.Atoi("0" + strings.TrimPrefix(rest, "+"))
		if err == nil && 34+n <= 64 {
			return 34 + n
		}
		return 0
	}
	if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(name, "NAL"))); err == nil && n > 0 && n <= 64 {
		return n
	}
	return 0
}

const linuxSignals = `HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG
XCPU XFSZ VTALRM PROF WINCH IO PWR SYS`
