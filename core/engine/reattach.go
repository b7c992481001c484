package engine

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

// errAway ends the sink of a call whose plugin has died while the program runs on.
var errAway = errors.New("the backend has gone")

// deliver hands job to x's backend and returns when it has ended. If the backend does not know the Session any more, it has to adopt it,
// and gets the job again. A program that outlives its plugin is followed.
func (e *Engine) deliver(x *execution, rec executor.Record, job executor.Job) (*sink, verdict) {
	b := x.on
	s := e.newSink(x, rec)
	run := func() verdict {
		return e.watch(x, s, func() (executor.Result, error) { return b.Run(x.ctx, job, s) })
	}
	v := run()
	if x.session != nil && v.began.IsZero() && v.broken == nil && s.failure() == nil && x.ctx.Err() == nil && sessions.Unknown(v.err) {
		err := x.session.Check(x.ctx)
		switch executor.CodeOf(err) {
		case "":
			v = run()
		case executor.NotFound:
			x.cancel(x.session.Lost())
		default:
			v.err = err
		}
	}
	return e.accompany(x, s, v, job)
}

// accompany follows x's program when the plugin of its backend has died: it waits for the backend to come back and attaches where the log
// ends. It gives up after maxAttempts calls that break off soon.
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

// steadyAttach is how long a call of Attach must last for the next loss to count as the first again.
const steadyAttach = 10 * time.Second

// outlived reports whether x's program may run on although the call of its backend has ended. A program without a handle cannot be
// found again.
func (e *Engine) outlived(x *execution, s *sink, v verdict) bool {
	return executor.CodeOf(v.err) == executor.Unavailable && !v.abandoned && v.broken == nil &&
		s.failure() == nil && x.ctx.Err() == nil && len(s.handle) > 0 && x.on.Keeps()
}

// successor returns a sink that goes on where old ended. The artifacts of old are dropped: the backend sends them again.
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

// awaitReturn waits for x's backend to answer again. broken counts the calls that broke off soon; after one it pauses first. It reports
// false if the backend does not answer in time, or x is told to end.
func (e *Engine) awaitReturn(x *execution, broken int) bool {
	deadline := time.NewTimer(e.deadlines.Reattach)
	defer deadline.Stop()
	b := x.on
	for try := 1; ; try++ {
		if broken > 0 && !x.rest(backOff(broken), deadline.C) {
			return false
		}
		broken = 0
		b.forget()
		_, err := e.info(x.ctx, b)
		if err == nil && x.session != nil {
			err = x.session.Check(x.ctx)
		}
		switch {
		case x.ctx.Err() != nil:
			return false
		case err == nil:
			return true
		case executor.CodeOf(err) == executor.NotFound:
			return false // the Session is lost
		}
		if !x.rest(min(backOff(try), 5*time.Second), deadline.C) {
			return false
		}
	}
}

// rest waits for d. It reports false if deadline comes earlier, or x is told to end.
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

// attachTo attaches to a program from where the log ends. It reports false if the backend does not have the program any more.
func (e *Engine) attachTo(x *execution, s *sink, job executor.Job) (v verdict, ok bool) {
	from := executor.Resume{Handle: s.handle}
	_, from.Stdout = s.seen(executor.Stdout)
	_, from.Stderr = s.seen(executor.Stderr)
	job.Workspace, job.Stdin = nil, nil
	b := x.on
	v = e.watch(x, s, func() (executor.Result, error) { return b.Attach(x.ctx, job, from, s) })
	switch executor.CodeOf(v.err) {
	case executor.NotFound, executor.Unimplemented:
		return v, false
	}
	return v, true
}

// leftRunning reports whether x goes on in the next life of the server: the Engine has let go of it, and its backend keeps the program.
func (e *Engine) leftRunning(x *execution, v verdict) bool {
	if !errors.Is(context.Cause(x.ctx), executor.ErrCallerGone) || v.broken != nil {
		return false
	}
	return v.abandoned || executor.CodeOf(v.err) == executor.Unavailable
}

// endCause returns the cause with which x is told to end when the Engine closes. A Durable execution is only let go of, if programs of its
// backend outlive their plugin, or if it is of an earlier life of the server and its backend has not answered in this one.
func (e *Engine) endCause(x *execution) error {
	e.mu.Lock()
	b := x.on
	e.mu.Unlock()
	if x.durable && !e.embedded && b != nil && (b.Keeps() || x.adopted && !b.Answered()) {
		return executor.ErrCallerGone
	}
	return errShutdown
}
