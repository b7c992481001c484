package backendtest

import (
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
)

// watchedRules returns the rules that are checked in every run of every case.
func watchedRules() []rule {
	return []rule{
		{ID: "EV-01", Name: "a backend emits Progress, Started, Output and Display, unnumbered, and nothing else"},
		{ID: "EV-02", Name: "Started comes exactly once, before all output, and not at all when nothing was started"},
		{ID: "EV-03", Name: "the offsets of each stream have no gaps and no repeats"},
		{ID: "EV-04", Name: "an Output names its stream and has 1 to 256 KiB"},
		{ID: "EV-05", Name: "nothing is emitted after Run has returned"},
		{ID: "EV-06", Name: "a sink is called by one goroutine at a time"},
		{ID: "EV-07", Name: "Started reports how the program was started, and has a handle where Attach is promised"},
		{ID: "EV-08", Name: "Progress names a phase and never counts beyond its total"},
		{ID: "EV-09", Name: "a Display has forms of at most 2 MiB together, and an Execution at most 200 of them"},
		{ID: "EV-10", Name: "output marked as earlier comes before all other output, and in a Session only"},
		{ID: "BE-90", Name: "a Result is consistent"},
		{ID: "BE-91", Name: "a Result's byte counts agree with the log"},
		{ID: "BE-92", Name: "a Source is opened once, closed, and stdin only after the workspace"},
		{ID: "BE-93", Name: "nothing is left of an Execution that has ended and was removed"},
	}
}

// agree checks the rules of every Result. wait calls it.
func (r *running) agree() {
	res := r.result
	bad := func(id, format string, args ...any) {
		r.suite.violate(id, "%s: %s (%s)", r.id, fmt.Sprintf(format, args...), r.verdict())
	}
	r.mu.Lock()
	started := len(r.started)
	r.mu.Unlock()
	switch res.Status {
	case executor.StatusSucceeded:
		if res.ExitCode == nil || *res.ExitCode != 0 {
			bad("BE-90", "succeeded without exit code 0")
		}
	case executor.StatusFailed:
		if res.Failure == nil && res.Signal == "" && (res.ExitCode == nil || *res.ExitCode == 0) {
			bad("BE-90", "failed, but nothing says how")
		}
	case executor.StatusTimedOut, executor.StatusOutOfMemory, executor.StatusKilled:
	case executor.StatusUnknown, executor.StatusQueued, executor.StatusRunning, executor.StatusLost:
		bad("BE-90", "a backend cannot end with this status")
	}
	switch ended := res.ExitCode != nil || res.Signal != ""; {
	case res.ExitCode != nil && res.Signal != "":
		bad("BE-90", "an exit code and a signal")
	case res.ExitCode != nil && (*res.ExitCode < 0 || *res.ExitCode > 255):
		bad("BE-90", "the exit code is out of range")
	case started == 0 && ended:
		bad("EV-02", "a program ended that Started did not tell of")
	case started > 0 && !ended && res.Failure == nil:
		bad("BE-90", "a program was started and nothing says how it ended")
	}
	if started > 0 && res.Failure != nil && (res.Failure.Phase == executor.PhasePrepare || res.Failure.Phase == executor.PhaseStart) {
		bad("EV-02", "Started, although %s failed", res.Failure.Phase)
	}
	if f := res.Failure; f != nil && (f.Message == "" || f.Code == "" || f.Phase == "") {
		bad("BE-90", "a failure without code, phase or message")
	}
	if res.Wall < 0 || res.PeakMemoryBytes < 0 || res.PeakResidentBytes < 0 || res.Phases.Prepare < 0 || res.Phases.Run < 0 || res.Phases.Collect < 0 {
		bad("BE-90", "a negative number: wall %s, peak %d, resident %d, phases %+v", res.Wall, res.PeakMemoryBytes, res.PeakResidentBytes, res.Phases)
	}
	if started == 0 && res.Wall != 0 {
		bad("BE-90", "wall time %s without a program", res.Wall)
	}
	r.bytesAgree(bad)
}

func (r *running) bytesAgree(bad func(id, format string, args ...any)) {
	limit := r.job.Limits.OutputBytes
	for _, s := range []struct {
		stream    executor.Stream
		bytes     int64
		truncated bool
	}{
		{executor.Stdout, r.result.StdoutBytes, r.result.StdoutTruncated},
		{executor.Stderr, r.result.StderrBytes, r.result.StderrTruncated},
	} {
		r.mu.Lock()
		kept := r.next[s.stream]
		r.mu.Unlock()
		switch {
		case limit >= 0 && kept > limit:
			bad("BE-91", "%d bytes of %s are in the log, the limit is %d", kept, s.stream, limit)
		case s.truncated && (s.bytes <= kept || kept != limit):
			bad("BE-91", "%s is truncated with %d of %d bytes kept and a limit of %d", s.stream, kept, s.bytes, limit)
		case !s.truncated && s.bytes != kept:
			bad("BE-91", "%s has %d bytes in the Result and %d in the log", s.stream, s.bytes, kept)
		}
	}
	collected := r.result.Artifacts
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(collected) != len(r.artifacts) {
		bad("BE-91", "%d artifacts in the Result, %d were handed over", len(collected), len(r.artifacts))
		return
	}
	for i, a := range collected {
		if a.Path != r.artifacts[i].header.Name || a.SizeBytes != r.artifacts[i].header.Size {
			bad("BE-91", "artifact %d is %+v in the Result and %q of %d bytes in the log", i, a, r.artifacts[i].header.Name, r.artifacts[i].header.Size)
		}
	}
}
