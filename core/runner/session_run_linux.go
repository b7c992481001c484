package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// isCell reports whether x is code for the interpreter.
func (x *execution) isCell() bool { return len(x.start.Command) == 0 }

// runInSession does what run does, in the session that is open.
func (x *execution) runInSession(before *execution) {
	defer close(x.cleaned)
	if before != nil {
		<-before.cleaned
	}
	s := x.agent.sessionNow()
	give := func() {}
	failure := x.takeSession(s)
	if failure == nil {
		give = sync.OnceFunc(func() { s.vacate(); s.give() })
		failure = x.executeInSession(s)
	}
	if failure != nil {
		x.explain(failure)
	}
	x.workspace.swallow()
	x.stdin.swallow()
	answered := x.answeredOnce
	x.answeredOnce = func() { answered(); give() } // what is delivered again needs no more than the folder
	x.deliver(failure == nil)
	give()
}

// takeSession waits until the session is x's.
func (x *execution) takeSession(s *session) error {
	if s == nil {
		return failed(executor.NotFound, executor.PhasePrepare, "no session is open")
	}
	if !x.start.Session {
		return failed(executor.Conflict, executor.PhasePrepare, "the runner has a session open, and runs nothing else until that is closed")
	}
	if err := s.take(x.cancelled, x.dropped); err != nil {
		return x.whyNot(err)
	}
	if err := s.occupy(x); err != nil {
		s.give()
		return x.whyNot(err)
	}
	return nil
}

// executeInSession prepares and runs. An error means that nothing ran.
func (x *execution) executeInSession(s *session) error {
	began := time.Now()
	x.folder, x.start.Limits.DiskBytes = s.folder, s.start.Limits.DiskBytes
	var err error
	if x.want, err = parseGlobs(x.start.Outputs); err != nil {
		return invalid("%v", err)
	}
	if x.start.Workspace {
		return invalid("workspace: not in a session, whose files stay; write them there")
	}
	if x.start.OutputsChanged {
		if x.before, err = snapshot(s.folder.fd()); err != nil {
			return fmt.Errorf("look at the work folder: %w", err)
		}
	}
	if x.start.FilesChanged {
		s.seeFiles()
	}
	x.res.Phases.Prepare = time.Since(began)
	run := x.runBeside
	if x.isCell() {
		run = x.runCell
	}
	if err := run(s); err != nil {
		return err
	}
	if x.start.FilesChanged {
		x.res.FilesChanged, x.res.FilesOmitted = s.filesChanged()
	}
	return nil
}

func (x *execution) whyNot(err error) error {
	if errors.Is(err, errClosing) || errors.Is(err, errRestarting) {
		x.cancel() // explain says killed
	}
	return err
}

// cell is the code of one Execution at work in the interpreter.
type cell struct {
	*execution
	session *session
	interp  *interpreter
	sampler *sampler
	started time.Time
	n       int64
	opened  func() // lets its standard input flow

	reason executor.Status // the first limit that fired
	done   *drivers.Answer // what the driver said in the end; nil: it did not come to that
	end    time.Time
	oom    int64
}

// runCell gives x's code to the interpreter and sees it to its end.
func (x *execution) runCell(s *session) error {
	i := s.now()
	if i == nil {
		x.res.SessionState = executor.SessionStateLost
		return failed(executor.Conflict, executor.PhaseStart, "the interpreter is gone; restart the session")
	}
	c := &cell{execution: x, session: s, interp: i, n: i.number()}
	s.mu.Lock()
	s.cells++
	count := s.cells
	s.mu.Unlock()
	fifo, opened, stopFeeding, err := x.feedCell(s, c.n)
	if err != nil {
		return err
	}
	defer stopFeeding()
	c.opened = opened
	raw, err := s.driver.Encode(drivers.Operation{Op: "cell", N: c.n, Count: count, Code: x.start.Code, Stdin: fifo})
	if err != nil {
		return invalidField("code", "%v", err)
	}
	c.oom = i.group.oomKills()
	cpu := i.cpuTime()
	i.resetPeak()
	x.agent.cellStarted(x, startedFrame{
		Started: executor.Started{PID: i.pid, Start: executor.StartExec}, EarlierStdout: i.taps[0].earlier(), EarlierStderr: i.taps[1].earlier(),
	})
	for _, t := range i.taps {
		t.attach(x.box, x.start.Limits.OutputBytes)
	}
	answers, leave := i.hear()
	c.started = time.Now()
	c.sampler = newSampler(i.group, i.pid, c.started, x.start.SampleInterval)
	i.write(raw)
	c.watch(answers)
	leave()
	c.finish(cpu)
	return nil
}

// watch waits for the cell's end and enforces its time.
func (c *cell) watch(answers <-chan drivers.Answer) {
	var timeout, grace, interrupt, look <-chan time.Time
	if c.start.Limits.Timeout > 0 {
		t := time.NewTimer(c.start.Limits.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	if c.sampler.interval > 0 {
		look = time.After(c.sampler.next())
	}
	defer func() { c.end = time.Now() }()
	cancelled := c.cancelled
	begun := !c.session.driver.Begins
	i := newInterruption(c.interp, c.n, c.started)
	stop := func(why executor.Status) {
		if c.reason != executor.StatusUnknown {
			return
		}
		c.reason = why
		grace = time.After(max(c.start.Limits.KillGrace, 0))
		if begun {
			interrupt = i.send()
		}
	}
	for {
		select {
		case a := <-answers:
			if a.N != c.n {
				continue // a cell's that has ended, or nobody's
			}
			switch a.Op {
			case "display":
				c.display(a)
			case "begun":
				if begun = true; c.reason != executor.StatusUnknown {
					interrupt = i.send()
				}
			case "heard":
				if c.reason != executor.StatusUnknown {
					interrupt = nil
				}
			case "reading":
				c.opened()
			case "done":
				c.done = &a
				return
			}
		case <-c.interp.exited:
			return
		case <-c.interp.broken:
			select {
			case <-c.interp.exited: // that is why
			case <-time.After(500 * time.Millisecond):
			}
			return
		case <-timeout:
			stop(executor.StatusTimedOut)
		case <-cancelled:
			cancelled = nil
			stop(executor.StatusKilled)
		case <-c.forcedNow:
			c.reason = executor.StatusKilled
			return
		case <-c.dropped:
			c.reason = executor.StatusKilled
			return
		case <-interrupt:
			interrupt = i.send()
		case <-grace:
			return
		case <-look:
			c.sampler.take()
			look = time.After(c.sampler.next())
		}
	}
}

// finish reports how the cell ended, and restarts an interpreter that did not.
func (c *cell) finish(cpu time.Duration) {
	x, s, i := c.execution, c.session, c.interp
	x.res.Wall = c.end.Sub(c.started)
	if i.group.memory == "" || c.sampler.interval > 0 {
		c.sampler.take()
	}
	x.res.PeakMemoryBytes, x.res.MemorySamples = c.sampler.result(), c.sampler.samples
	x.res.CPU = -1
	if now := i.cpuTime(); now >= 0 && cpu >= 0 {
		x.res.CPU = max(now-cpu, 0)
	}
	ended := isClosed(i.exited)
	if c.done == nil && !ended {
		i.kill() // so that what it has written is all
		<-i.exited
	}
	for n, t := range i.taps {
		tally := t.detach()
		if n == 0 {
			x.res.StdoutBytes, x.res.StdoutTruncated = tally.total, tally.truncated
		} else {
			x.res.StderrBytes, x.res.StderrTruncated = tally.total, tally.truncated
		}
	}
	x.res.Phases.Run = time.Since(c.started)
	c.verdict(ended)
	if c.done != nil {
		return
	}
	s.stopInterpreter()
	x.res.SessionState = executor.SessionStateLost
	switch {
	case s.isEnding() || isClosed(x.dropped):
		x.res.SessionState = executor.SessionStateRestarted // by whoever ends it, if at all
	case c.reason != executor.StatusUnknown && !ended, ended && s.driver.ExitEnds && i.end.status.Exited():
		if err := s.startInterpreter(context.Background()); err == nil {
			x.res.SessionState = executor.SessionStateRestarted
		} else {
			x.agent.logf("restart: %v", err)
		}
	}
}

func (c *cell) verdict(ended bool) {
	res := &c.execution.res
	var ws syscall.WaitStatus
	if ended {
		ws = c.interp.end.status
	}
	switch {
	case c.done != nil:
		code := c.done.Code
		res.ExitCode = &code
		res.DisplaysDropped += max(c.done.Dropped, 0)
		res.Status = executor.StatusFailed
		if code == 0 {
			res.Status = executor.StatusSucceeded
		}
	case !ended && c.reason == executor.StatusUnknown:
		res.Status, res.Signal = executor.StatusFailed, signalName(unix.SIGKILL)
		res.Failure = &executor.Failure{Code: executor.Conflict, Phase: executor.PhaseRun, Message: "the interpreter was killed: " + c.interp.why.Error()}
	case !ended:
		res.Signal = signalName(unix.SIGKILL)
	case ws.Exited():
		code := ws.ExitStatus()
		res.ExitCode = &code
		res.Status = executor.StatusFailed
	default:
		res.Status, res.Signal = executor.StatusFailed, signalName(ws.Signal())
		if ws.Signal() == unix.SIGKILL && c.interp.group.oomKills() > c.oom {
			res.Status = executor.StatusOutOfMemory
		}
	}
	if c.reason != executor.StatusUnknown {
		res.Status = c.reason
	}
}
