package runner

import (
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// supervise waits for the end of the program that was forked at started, and enforces its time. reason is the first limit
// that fired.
func (x *execution) supervise(pid int, started time.Time, r *reaper, s *sampler) (ended, executor.Status) {
	var reason executor.Status
	var timeout, grace, look <-chan time.Time
	if x.start.Limits.Timeout > 0 {
		t := time.NewTimer(time.Until(started.Add(x.start.Limits.Timeout)))
		defer t.Stop()
		timeout = t.C
	}
	if wait := s.next(); wait > 0 {
		look = time.After(wait)
	}
	cancelled, dropped := x.cancelled, x.dropped
	stop := func(why executor.Status) {
		if reason != executor.StatusUnknown {
			return
		}
		reason = why
		_ = unix.Kill(-pid, unix.SIGTERM) // its process group; gone is as good
		grace = time.After(max(x.start.Limits.KillGrace, 0))
	}
	for {
		select {
		case end := <-r.main:
			return end, reason
		case <-timeout:
			stop(executor.StatusTimedOut)
		case <-cancelled:
			cancelled = nil
			stop(executor.StatusKilled)
		case <-dropped:
			dropped = nil
			if reason == executor.StatusUnknown {
				reason = executor.StatusKilled
			}
			x.killPrograms()
			grace = time.After(time.Millisecond)
		case <-grace:
			x.killPrograms()
			grace = time.After(5 * time.Millisecond) // again, until it is gone: something may have been forking
		case <-look:
			s.take()
			look = time.After(s.next())
		}
	}
}

// finish makes sure that nothing of the program is alive.
func (x *execution) finish(r *reaper, end ended) {
	if end.alone {
		<-r.empty
		return
	}
	if err := killUntil(x.group, r.empty); err != nil {
		x.stuck = true
		x.agent.logf("%v", err)
	}
}

// verdict says how it ended.
func (x *execution) verdict(end ended, reason executor.Status) {
	ws := end.status
	switch {
	case ws.Exited():
		code := ws.ExitStatus()
		x.res.ExitCode = &code
		x.res.Status = executor.StatusFailed
		if code == 0 {
			x.res.Status = executor.StatusSucceeded
		}
	case ws.Signaled():
		x.res.Signal = signalName(ws.Signal())
		x.res.Status = executor.StatusFailed
		if ws.Signal() == syscall.SIGKILL && x.group.oomKills() > 0 {
			x.res.Status = executor.StatusOutOfMemory
		}
	}
	if reason != executor.StatusUnknown {
		x.res.Status = reason
	}
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

// account reports what it used. It reads the control groups, so it comes before clean.
func (x *execution) account(r *reaper, s *sampler) {
	x.res.CPU = x.group.cpuTime()
	if x.res.CPU < 0 && !x.stuck {
		x.res.CPU = r.cpu
	}
	x.res.PeakMemoryBytes = s.result()
	x.res.MemorySamples = s.samples
}

func (x *execution) setPID(pid int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pid = pid
}

// signal sends a signal to the program's process group.
func (x *execution) signal(s syscall.Signal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pid > 0 {
		_ = unix.Kill(-x.pid, s) // gone is as good
	}
}
