package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/session"
)

// afterKill is what a cell has to end after the programs that it has started were killed.
const afterKill = 2 * time.Second

// isCell reports whether x is code for the interpreter, and not a Command.
func (x *execution) isCell() bool { return len(x.start.Command) == 0 }

// runInSession is run for an Execution in the open session.
func (x *execution) runInSession(before *execution) {
	defer close(x.cleaned)
	if before != nil {
		before.awaitCleaned()
	}
	s := x.agent.sessionNow()
	give := func() {}
	failure := x.takeSession(s)
	if failure == nil {
		give = sync.OnceFunc(func() { s.Vacate(); s.Give() })
		failure = x.executeInSession(s)
	}
	if failure != nil {
		x.explain(failure)
	}
	x.workspace.Swallow()
	x.stdin.Swallow()
	answered := x.answeredOnce
	x.answeredOnce = func() { answered(); give() } // what is delivered again needs no more than the folder
	x.deliver(failure == nil)
	give()
}

// takeSession waits for the turn of x in the session.
func (x *execution) takeSession(s *session.Session) error {
	if s == nil {
		return sandbox.Failed(executor.NotFound, executor.PhasePrepare, "no session is open")
	}
	if !x.start.Session {
		return sandbox.Failed(executor.Conflict, executor.PhasePrepare, "the runner has an open session and can run nothing outside of it")
	}
	if err := s.Take(x.cancelled, x.dropped); err != nil {
		return x.whyNot(err)
	}
	kill := func() {
		x.cancel()
		x.force()
		if i := s.Now(); i != nil && x.isCell() {
			i.Kill()
		}
	}
	if err := s.Occupy(kill); err != nil {
		s.Give()
		return x.whyNot(err)
	}
	return nil
}

// executeInSession prepares and runs x. After an error nothing has run.
func (x *execution) executeInSession(s *session.Session) error {
	began := time.Now()
	x.folder = s.Folder
	x.start.Limits.MemoryBytes, x.start.Limits.DiskBytes = s.Start.Limits.MemoryBytes, s.Start.Limits.DiskBytes
	var err error
	if x.want, err = archive.ParseGlobs(x.start.Outputs); err != nil {
		return sandbox.Invalid("%v", err)
	}
	if x.start.Workspace {
		return sandbox.Invalid("workspace: must not be given in a session; write files into the session instead")
	}
	if x.start.OutputsChanged {
		if x.before, err = archive.Snapshot(s.Folder.FD()); err != nil {
			return fmt.Errorf("look at the work folder: %w", err)
		}
	}
	if x.start.FilesChanged {
		s.SeeFiles()
	}
	x.res.Phases.Prepare = time.Since(began)
	run := x.runCommand
	if x.isCell() {
		run = x.runCell
	}
	if err := run(s); err != nil {
		return err
	}
	if x.start.FilesChanged {
		x.res.FilesChanged, x.res.FilesOmitted = s.FilesChanged()
	}
	return nil
}

func (x *execution) whyNot(err error) error {
	if errors.Is(err, session.ErrClosing) || errors.Is(err, session.ErrRestarting) {
		x.cancel() // explain says killed
	}
	return err
}

// cell is an Execution whose code runs in the interpreter.
type cell struct {
	*execution
	session *session.Session
	interp  *session.Interpreter
	sampler *sandbox.Sampler
	started time.Time
	n       int64
	used    func() time.Duration // the CPU time since its start
	cpu     *sandbox.CPUClock    // nil without a limit
	opened  func()               // lets its standard input flow

	reason executor.Status // the first limit that fired
	done   *drivers.Answer // what the driver said in the end; nil: it did not come to that
	end    time.Time
	oom    int64
}

// runCell gives the code of x to the interpreter and waits for its end.
func (x *execution) runCell(s *session.Session) error {
	i := s.Now()
	if i == nil {
		x.res.SessionState = executor.SessionStateLost
		return sandbox.Failed(executor.Conflict, executor.PhaseStart, "the interpreter has ended; restart the session")
	}
	c := &cell{execution: x, session: s, interp: i, n: i.Number()}
	count := s.NextCell()
	fifo, opened, stopFeeding, err := x.feedCell(s, c.n)
	if err != nil {
		return err
	}
	defer stopFeeding()
	c.opened = opened
	raw, err := s.Driver.Encode(drivers.Operation{Op: "cell", N: c.n, Count: count, Code: x.start.Code, Stdin: fifo})
	if err != nil {
		return sandbox.InvalidField("code", "%v", err)
	}
	c.oom = i.Group.OOMKills()
	c.used = s.MeterCPU(i.Group, nil)
	c.cpu = sandbox.NewCPUClock(x.start.Limits.CPUTime, c.used)
	i.ResetPeak()
	x.agent.started(x, protocol.Started{
		Started: executor.Started{PID: i.PID, Start: executor.StartExec}, EarlierStdout: i.Outputs[0].Earlier(), EarlierStderr: i.Outputs[1].Earlier(),
	})
	for _, t := range i.Outputs {
		t.Attach(x.box, x.start.Limits.OutputBytes)
	}
	answers, leave := i.Hear()
	c.started = time.Now()
	c.sampler = sandbox.NewSampler(i.Group, i.PID, c.started, x.start.SampleInterval)
	s.Bound.Full() // of cells before
	s.Bound.Soon()
	i.Write(raw)
	c.watch(answers)
	leave()
	c.finish()
	return nil
}

// watch waits for the end of the cell and enforces its time.
func (c *cell) watch(answers <-chan drivers.Answer) {
	var timeout, grace, again, interrupt, look <-chan time.Time
	if c.start.Limits.Timeout > 0 {
		timeout = c.arm(LimitTimeout, c.start.Limits.Timeout)
	}
	used := c.cpu.First()
	if c.sampler.Interval > 0 {
		look = time.After(c.sampler.Next())
	}
	defer func() { c.end = time.Now() }()
	cancelled := c.cancelled
	begun, killed := !c.session.Driver.Begins, false
	i := session.NewInterruption(c.interp, c.n, c.started)
	stop := func(why executor.Status) {
		if c.reason != executor.StatusUnknown {
			return
		}
		c.reason = why
		patience := max(c.start.Limits.KillGrace, 0)
		grace, again = c.arm(LimitGrace, patience), c.arm(LimitAgain, patience*3/4)
		if begun {
			interrupt = i.Send()
		}
	}
	for {
		select {
		case a := <-answers:
			if a.N != c.n {
				continue // of a cell that has ended, or forged
			}
			switch a.Op {
			case "display":
				c.show(a)
			case "begun":
				if begun = true; c.reason != executor.StatusUnknown {
					interrupt = i.Send()
				}
			case "heard":
				if c.reason != executor.StatusUnknown {
					interrupt = nil
				}
			case "lost":
				if c.reason != executor.StatusUnknown {
					interrupt = i.Send()
				}
			case "reading":
				c.opened()
			case "done":
				c.done = &a
				return
			}
		case <-c.interp.Exited:
			return
		case <-c.interp.Broken:
			select {
			case <-c.interp.Exited: // that is why
			case <-time.After(500 * time.Millisecond):
			}
			return
		case <-timeout:
			stop(executor.StatusTimedOut)
		case <-used:
			if used = c.cpu.Look(); used == nil {
				stop(executor.StatusTimedOut)
			}
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
			interrupt = i.Send()
		case <-again:
			if begun { // what has heard the interrupt may have dropped it
				interrupt = i.Send()
			}
		case <-grace:
			if killed {
				return
			}
			if interrupt = i.Kill(); interrupt == nil {
				return
			}
			killed, grace = true, c.arm(LimitLast, afterKill)
		case <-look:
			c.sampler.Take()
			look = time.After(c.sampler.Next())
		}
	}
}

// finish puts the end of the cell into the Result. It restarts an interpreter in which the cell did not end.
func (c *cell) finish() {
	x, s, i := c.execution, c.session, c.interp
	x.res.Wall = c.end.Sub(c.started)
	if i.Group.Memory == "" || c.sampler.Interval > 0 {
		c.sampler.Take()
	}
	x.res.PeakMemoryBytes, x.res.MemorySamples = c.sampler.Result(), c.sampler.Samples
	x.res.PeakResidentBytes = i.PeakResident()
	x.res.CPU = c.used()
	ended := sandbox.IsClosed(i.Exited)
	if c.done == nil && !ended {
		i.Kill() // it must not write any more
		<-i.Exited
	}
	x.countOutput(i.Outputs[0].Detach(), i.Outputs[1].Detach())
	x.res.Phases.Run = time.Since(c.started)
	killed := i.Group.OOMKills() > c.oom
	c.verdict(ended, killed)
	x.nameLimit(killed, s.Bound.Full())
	x.nameClock(c.cpu)
	if c.done != nil {
		return
	}
	s.StopInterpreter()
	x.res.SessionState = executor.SessionStateLost
	switch {
	case s.IsEnding() || sandbox.IsClosed(x.dropped):
		x.res.SessionState = executor.SessionStateRestarted // the caller that ends it starts the next one, if at all
	case c.reason != executor.StatusUnknown && !ended, ended && s.Driver.ExitEnds && i.End.Status.Exited():
		if err := s.StartInterpreter(context.Background()); err == nil {
			x.res.SessionState = executor.SessionStateRestarted
		} else {
			x.agent.Logf("restart: %v", err)
		}
	}
}

func (c *cell) verdict(ended, killed bool) {
	res := &c.execution.res
	switch {
	case c.done != nil:
		c.exited(c.done.Code)
		res.DisplaysDropped += max(c.done.Dropped, 0)
	case !ended && c.reason == executor.StatusUnknown:
		res.Status, res.Signal = executor.StatusFailed, sandbox.SignalName(unix.SIGKILL)
		res.Failure = &executor.Failure{Code: executor.Conflict, Phase: executor.PhaseRun, Message: "the interpreter was killed: " + c.interp.Why.Error()}
	case !ended:
		res.Signal = sandbox.SignalName(unix.SIGKILL)
	default:
		c.ended(c.interp.End.Status, killed)
		if res.Status == executor.StatusSucceeded {
			res.Status = executor.StatusFailed // the interpreter should not have ended
		}
	}
	if c.reason != executor.StatusUnknown {
		res.Status = c.reason
	}
}

// show sends a Display, behind all output that was written before it.
func (c *cell) show(a drivers.Answer) {
	for _, t := range c.interp.Outputs {
		t.Drain()
	}
	c.sendDisplay(a)
}

// feedCell makes a FIFO for the standard input of a cell, because every language can open one, and returns its name. Nothing is
// written to it before opened is called. stop ends it.
func (x *execution) feedCell(s *session.Session, n int64) (name string, opened, stop func(), err error) {
	if !x.start.Stdin {
		return "", func() {}, func() {}, nil
	}
	dir := int(s.Folder.TempRoot.Fd())
	base := fmt.Sprintf(".stdin-%d", n)
	_ = unix.Unlinkat(dir, base, 0) // of an interpreter that died
	fd, err := session.MakeFIFO(dir, base, x.agent.Config)
	if err != nil {
		return "", nil, nil, sandbox.Failed(executor.Internal, executor.PhaseStart, "stdin: %v", err)
	}
	pipe := os.NewFile(uintptr(fd), "stdin") //nolint:gosec // a descriptor
	fed, open, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	opened = sync.OnceFunc(func() { close(open) })
	again, err := session.OpenAgain(fd)
	if err != nil {
		_ = pipe.Close() // nothing was written
		return "", nil, nil, sandbox.Failed(executor.Internal, executor.PhaseStart, "stdin: %v", err)
	}
	x.agent.Go(func() {
		defer close(fed)
		defer func() { _ = again.Close() }() // nothing was written
		<-open                               // a FIFO loses its bytes while it has no reader, and its reader waits while it has no writer
		output.Feed(x.stdin, pipe)
		again.Release(ended)
	})
	return path.Join(s.Folder.Temp, base), opened, func() {
		close(ended)
		opened()
		x.stdin.Abort(protocol.ErrStopped)
		_ = pipe.Close() // feed may have closed it
		<-fed
		_ = unix.Unlinkat(dir, base, 0) // usually the driver has removed it
	}, nil
}
