package executor

import "testing"

func TestSignalNumber(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"SIGHUP": 1, "SIGKILL": 9, "sigterm": 15, "SIGSYS": 31, "SIG36": 36, "SIGRTMIN+2": 36, "SIGRTMIN": 34, "SIGRTMIN+99": 0, "signal 40": 40,
		"": 0, "SIGWHAT": 0, "SIG0": 0, "SIG65": 0,
	} {
		if got := SignalNumber(name); got != want {
			t.Errorf("%q is %d, want %d", name, got, want)
		}
	}
}
