package engine

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// errAway ends the sink of a call whose backend has gone while the program runs on.
var errAway = errors.New("its backend has gone")

// deliver hands job to x's backend and stays with it until it has ended: a Session that the backend does not know any more
// is adopted and asked again; a program that outlives its plugin is followed.
func (e *Engine) deliver(x *execution, rec executor.Record, job executor.Job) (*sink, verdict) {
	b := e.backends[x.backend]
	s := e.newSink(x, rec)
	run := func() verdict {
		return e.watch(x, s, func() (executor.Result, error) { return b.Run(x.ctx, job, s) })
	}
	v := run()
	if x.session != nil && v.began.IsZero() && v.broken == nil && s.failure() == nil && x.ctx.Err() == nil && unknownSession(v.err) {
		err := e.checkSandbox(x.ctx, x.session)
		switch executor.CodeOf(err) {
		case "":
			v = run()
		case executor.NotFound:
			x.cancel(e.lostWith(x.session))
		default:
			v.err = err
		}
	}
	return e.accompany(x, s, v, job)
}

// lostWith is the end of an Execution whose Session was found to be lost.
func (e *Engine) lostWith(s *session) *sessionEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &sessionEnd{executor.StatusLost, "its session was lost: " + s.rec.Reason}
}

// accompany follows x's program wherever its backend's plugin dies under it: it waits for the backend to come back and
// attaches where the log ends. One that comes back and breaks off at once, again and again, is given up.
func (e *Engine) accompany(x *execution, s *sink, v verdict, job executor.Job) (*sink, verdict) {
	for tries := 0; e.outlived(x, s, v) && tries < maxAttempts; tries++ {
		e.log.Warn("backend away, its program may run on", "execution", x.id, "backend", x.backend, "error", v.err)
		s = e.successor(x, s)
		if !e.awaitReturn(x, tries) {
			break
		}
		began := time.Now()
		next, ok := e.attachTo(x, s, job)
		if !ok {
			break // v says why it is lost
		}
		v = next
		if time.Since(began) >= steadyAttach {
			tries = 0
		}
	}
	return s, v
}

// steadyAttach is how long a program must have been followed for the next loss to count as the first again.
const steadyAttach = 10 * time.Second

// outlived reports whether x's program may run on although the call that followed it has ended.
func (e *Engine) outlived(x *execution, s *sink, v verdict) bool {
	return executor.CodeOf(v.err) == executor.Unavailable && !v.abandoned && v.broken == nil && !v.began.IsZero() &&
		s.failure() == nil && x.ctx.Err() == nil && len(s.handle) > 0 && e.backends[x.backend].keeps()
}

// successor is a sink that goes on where old ended. What old has of artifacts is dropped: they come again.
func (e *Engine) successor(x *execution, old *sink) *sink {
	old.abandon(errAway)
	old.artifacts.wait(e.deadlines.Stop)
	var rec executor.Record
	_, rec.StdoutBytes = old.seen(executor.Stdout)
	_, rec.StderrBytes = old.seen(executor.Stderr)
	s := e.newSink(x, rec)
	for name, o := range s.out {
		o.before, _ = old.seen(name)
	}
	s.shown, s.handle = old.displayed(), old.handle
	s.resumed(old.begun())
	return s
}

// awaitReturn waits for x's backend to answer again, after a pause where it has just broken off; false: it does not in
// time, or x is told to end.
func (e *Engine) awaitReturn(x *execution, broken int) bool {
	deadline := time.NewTimer(e.deadlines.Reattach)
	defer deadline.Stop()
	b := e.backends[x.backend]
	for try := 1; ; try++ {
		if broken > 0 && !x.rest(backOff(broken), deadline.C) {
			return false
		}
		broken = 0
		b.forget()
		_, err := e.info(x.ctx, x.backend)
		if err == nil && x.session != nil {
			err = e.checkSandbox(x.ctx, x.session)
		}
		switch {
		case x.ctx.Err() != nil:
			return false
		case err == nil:
			return true
		case executor.CodeOf(err) == executor.NotFound:
			return false // with its Session
		}
		if !x.rest(min(backOff(try), 5*time.Second), deadline.C) {
			return false
		}
	}
}

// rest lets d pass; false: deadline came, or x is told to end.
func (x *execution) rest(d time.Duration, deadline <-chan time.Time) bool {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-x.ctx.Done():
	case <-deadline:
	}
	return false
}

// attachTo follows a program from where the log ends. ok is false if the backend has it no more.
func (e *Engine) attachTo(x *execution, s *sink, job executor.Job) (v verdict, ok bool) {
	from := executor.Resume{Handle: s.handle}
	_, from.Stdout = s.seen(executor.Stdout)
	_, from.Stderr = s.seen(executor.Stderr)
	job.Workspace, job.Stdin = nil, nil
	b := e.backends[x.backend]
	v = e.watch(x, s, func() (executor.Result, error) { return b.Attach(x.ctx, job, from, s) })
	switch executor.CodeOf(v.err) {
	case executor.NotFound, executor.Unimplemented:
		return v, false
	}
	return v, true
}

// leftRunning reports whether the end of x was only that of the Engine: its backend keeps the program, or its place in the
// queue was not used, and the next Start goes on with it.
func (e *Engine) leftRunning(x *execution, v verdict) bool {
	if !errors.Is(context.Cause(x.ctx), executor.ErrCallerGone) || v.broken != nil {
		return false
	}
	return v.abandoned || executor.CodeOf(v.err) == executor.Unavailable
}

// endCause is why x is told to end when the Engine closes: an Execution that was promised to last, on a backend whose
// programs outlive their plugin, is only let go.
func (e *Engine) endCause(x *execution) error {
	if b := e.backends[x.backend]; x.durable && !e.embedded && b != nil && b.keeps() {
		return executor.ErrCallerGone
	}
	return errShutdown
}
