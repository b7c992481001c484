package agent

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// supervise waits for the end of the program and enforces its time. cpu may be nil. reason is the first limit that it hit.
func (x *execution) supervise(started time.Time, r *sandbox.Reaper, s *sandbox.Sampler, cpu *sandbox.CPUClock) (sandbox.Exit, executor.Status) {
	var reason executor.Status
	var timeout, grace, look <-chan time.Time
	used := cpu.First()
	if x.start.Limits.Timeout > 0 {
		timeout = x.arm(LimitTimeout, time.Until(started.Add(x.start.Limits.Timeout)))
	}
	if wait := s.Next(); wait > 0 {
		look = time.After(wait)
	}
	cancelled, dropped, forced := x.cancelled, x.dropped, x.forcedNow
	stop := func(why executor.Status, signal unix.Signal) {
		if reason != executor.StatusUnknown {
			return
		}
		reason = why
		x.signal(signal)
		grace = x.arm(LimitGrace, max(x.start.Limits.KillGrace, 0))
	}
	kill := func() {
		if reason == executor.StatusUnknown {
			reason = executor.StatusKilled
		}
		x.killPrograms()
		grace = time.After(time.Millisecond)
	}
	for {
		select {
		case end := <-r.Main:
			return end, reason
		case <-timeout:
			stop(executor.StatusTimedOut, unix.SIGTERM)
		case <-used:
			if used = cpu.Look(); used == nil {
				stop(executor.StatusTimedOut, unix.SIGTERM)
			}
		case <-cancelled:
			cancelled = nil
			signal := unix.SIGTERM
			if x.start.Interrupt {
				signal = unix.SIGINT
			}
			stop(executor.StatusKilled, signal)
		case <-dropped:
			dropped = nil
			kill()
		case <-forced:
			forced = nil
			kill()
		case <-grace:
			x.killPrograms()
			grace = time.After(5 * time.Millisecond) // again, until it is gone: something may have been forking
		case <-look:
			s.Take()
			look = time.After(s.Next())
		}
	}
}

// arm arms a limit of x.
func (x *execution) arm(limit string, d time.Duration) <-chan time.Time {
	return x.agent.alarm(limit, x.start.ExecutionID, d, x.cleaned)
}

// finish makes sure that no process of the program is alive.
func (x *execution) finish(r *sandbox.Reaper, end sandbox.Exit) {
	if end.Alone {
		timer := time.NewTimer(sandbox.KillPatience) // a process that exits gives its memory back, and a kill makes that no quicker
		defer timer.Stop()
		select {
		case <-r.Empty:
			return
		case <-timer.C:
		}
	}
	if err := x.agent.KillUntil(x.group, r.Empty, r.Look); err != nil {
		x.stuck = true
		x.agent.Logf("%v", err)
	}
}

// verdict puts the end of the program into the Result. For killed and full see nameLimit.
func (x *execution) verdict(end sandbox.Exit, reason executor.Status, killed, full bool) {
	x.ended(end.Status, killed)
	if reason != executor.StatusUnknown {
		x.res.Status = reason
	}
	x.nameLimit(killed, full)
}

// ended puts the end of a process into the Result.
func (x *execution) ended(ws syscall.WaitStatus, killed bool) {
	switch {
	case ws.Exited():
		x.exited(ws.ExitStatus())
	case ws.Signaled():
		x.res.Status, x.res.Signal = executor.StatusFailed, sandbox.SignalName(ws.Signal())
		if ws.Signal() == syscall.SIGKILL && killed {
			x.res.Status = executor.StatusOutOfMemory
		}
	}
}

// exited puts an exit code into the Result.
func (x *execution) exited(code int) {
	x.res.ExitCode, x.res.Status = &code, executor.StatusFailed
	if code == 0 {
		x.res.Status = executor.StatusSucceeded
	}
}

// nameLimit puts into the Result of a program that did not succeed which limit it hit. killed reports that a process was killed
// for its memory, full that the disk was full while the program ran.
func (x *execution) nameLimit(killed, full bool) {
	limits := x.start.Limits
	if x.res.Failure != nil {
		return
	}
	switch x.res.Status {
	case executor.StatusOutOfMemory:
		x.res.Failure = protocol.OutOfMemory(limits.MemoryBytes)
	case executor.StatusFailed:
		tooLarge := x.res.Signal == "SIGXFSZ" // RLIMIT_FSIZE is DiskBytes
		switch {
		case killed:
			x.res.Failure = protocol.OutOfMemory(limits.MemoryBytes)
		case limits.DiskBytes > 0 && (full || tooLarge || sandbox.ReadDiskUse(x.folder.Disks(x.agent.Config)).Full):
			x.res.Failure = protocol.DiskFull(limits.DiskBytes)
		}
	default: // it succeeded, or something else ended it
	}
}

// nameClock puts into the Result that the program ended because of its time, and by which clock. The CPU time decides also where the
// program ended before anything stopped it, so that the verdict does not depend on when the runner looked.
func (x *execution) nameClock(cpu *sandbox.CPUClock) {
	var over bool
	x.res.CPU, over = cpu.Over(x.res.CPU)
	ended := (x.res.Status == executor.StatusSucceeded || x.res.Status == executor.StatusFailed) && x.res.Failure == nil
	switch {
	case over && (ended || x.res.Status == executor.StatusTimedOut):
		x.res.Status = executor.StatusTimedOut
		x.res.Failure = x.res.TimedOut(executor.FieldCPUTime, x.start.Limits)
	case x.res.Status == executor.StatusTimedOut:
		x.res.Failure = x.res.TimedOut(executor.FieldTimeout, x.start.Limits)
	}
}

// cpuClock returns the clock of the program that r waits for; nil without a limit.
func (x *execution) cpuClock(r *sandbox.Reaper) *sandbox.CPUClock {
	used := r.Tree().Used
	if x.group.Counts() {
		used = func() time.Duration { return max(x.group.CPUTime(), 0) - x.preCPU }
	}
	return sandbox.NewCPUClock(x.start.Limits.CPUTime, used)
}

// account puts into the Result what the program has used. It reads the control groups, so it comes before clean.
func (x *execution) account(end sandbox.Exit, r *sandbox.Reaper, s *sandbox.Sampler) {
	x.res.CPU = x.group.CPUTime()
	if x.res.CPU >= 0 {
		x.res.CPU = max(0, x.res.CPU-x.preCPU)
	}
	if x.res.CPU < 0 && !x.stuck && x.exiting == nil {
		x.res.CPU = r.CPU
	}
	// A control group does not count what the fork server and the copy have touched before. More than both is not true.
	peak := s.Result()
	// Looks at a process miss its last moments. The interpreter that waited may have raised the peak of its container before: then the
	// control group has no number for x.
	if !end.Early && (x.group.Memory == "" || peak == 0) {
		x.forkPeak = max(x.forkPeak, end.MaxRSS)
	}
	if peak > 0 && x.forkBase > 0 {
		x.forkPeak = min(x.forkPeak, peak+x.forkBase)
	}
	x.res.PeakMemoryBytes = max(peak, x.forkPeak)
	x.res.MemorySamples = s.Samples
}

// setPID names the program's process. pidfd is a descriptor of it, or negative.
func (x *execution) setPID(pid, pidfd int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pid, x.pidfd = pid, pidfd
}

// signal sends a signal to the program's process group. A fork server may have waited for the process, and its number be another's.
func (x *execution) signal(s syscall.Signal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pid > 0 && (x.pidfd < 0 || sandbox.IsAlive(x.pidfd)) {
		_ = unix.Kill(-x.pid, s) // gone is as good
	}
}
