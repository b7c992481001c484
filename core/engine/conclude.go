package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
)

// maxFailure bounds the message of a Failure, which may be an installer's own explanation.
const maxFailure = 16 << 10

func failed(status executor.Status, code executor.Code, phase executor.Phase, message string) executor.Result {
	return executor.Result{
		Status:  status,
		CPU:     -1,
		Failure: &executor.Failure{Code: code, Phase: phase, Message: message},
	}
}

// conclude makes the Result of an attempt that has ended, from the backend's Result and from what the sink has seen.
func (e *Engine) conclude(x *execution, s *sink, v verdict) executor.Result {
	var key string
	var list []executor.Artifact
	if !v.abandoned {
		var err error
		key, list, err = s.seal()
		if err != nil && s.brokenLaw() == nil {
			_ = s.notKept(err)
		}
	}
	v.broken = s.brokenLaw()
	r := e.judge(x, s, v)
	if x.direct != nil && v.began.IsZero() {
		r = blameInput(r, x.direct.failure())
	}
	r.Artifacts = nil
	if key != "" {
		r.Artifacts = list
		if err := e.keepArtifacts(x, key); err != nil {
			r = failed(executor.StatusLost, executor.CodeOf(err), executor.PhaseCollect, err.Error())
		}
	}
	r.StdoutBytes, r.StdoutTruncated = s.total(executor.Stdout, r.StdoutBytes, r.StdoutTruncated)
	r.StderrBytes, r.StderrTruncated = s.total(executor.Stderr, r.StderrBytes, r.StderrTruncated)
	r.DisplaysDropped = max(0, r.DisplaysDropped) + s.displayed().dropped
	boundFiles(&r)
	e.clockPhases(x, v, &r)
	if r.Status == executor.StatusTimedOut && r.Failure == nil { // a plugin may not say which clock it was
		r.Failure = r.TimedOut(executor.FieldTimeout, x.limits)
	}
	r.Hint = hintOf(r, string(s.errors), x.about)
	if f := r.Failure; f != nil {
		if f.Code = cmp.Or(f.Code, executor.Internal); f.Code == executor.Internal {
			f.Message = "internal error"
		}
		f.Message = strings.ToValidUTF8(clipMiddle(f.Message, maxFailure), "\uFFFD")
	}
	return r
}

// boundFiles bounds the files that a backend names in r, and makes their names valid UTF-8.
func boundFiles(r *executor.Result) {
	r.FilesOmitted = max(0, r.FilesOmitted)
	if n := len(r.FilesChanged) - executor.MaxFilesChanged; n > 0 {
		r.FilesChanged, r.FilesOmitted = r.FilesChanged[:executor.MaxFilesChanged], r.FilesOmitted+int64(n)
	}
	for i, f := range r.FilesChanged {
		r.FilesChanged[i].Path = strings.ToValidUTF8(clip(f.Path, maxPath), "\uFFFD")
	}
}

// judge decides how x ended.
func (e *Engine) judge(x *execution, s *sink, v verdict) executor.Result {
	cause := context.Cause(x.ctx)
	phase := executor.PhasePrepare
	if !v.began.IsZero() {
		phase = executor.PhaseRun
	}
	switch {
	case v.broken != nil:
		return e.wronged(x, v, v.broken)
	case v.abandoned:
		r := stopped(executor.Result{CPU: -1}, cause, phase)
		if r.Failure == nil {
			r.Failure = &executor.Failure{Code: executor.Unavailable, Phase: phase, Message: "the backend did not confirm its end"}
		}
		return r
	case cause != nil && v.err != nil:
		return stopped(executor.Result{CPU: -1}, cause, phase)
	case s.failure() != nil:
		return e.unkept(x, s.failure())
	case v.err != nil:
		return e.faulty(x, v, phase)
	case !v.result.Status.Terminal():
		return e.wronged(x, v, fmt.Errorf("a result with status %q", v.result.Status))
	case v.began.IsZero() && !mayEndUnstarted(v.result):
		return e.wronged(x, v, fmt.Errorf("a result with status %q without started", v.result.Status))
	case cause != nil && v.result.Status == executor.StatusKilled:
		return stopped(v.result.Clone(), cause, phase)
	}
	if f := v.result.Failure; f != nil && cmp.Or(f.Code, executor.Internal) == executor.Internal {
		e.log.Error("a backend failed", "execution", x.id, "backend", x.backend, "phase", f.Phase, "error", clipMiddle(f.Message, maxFailure))
	}
	return v.result.Clone()
}

// mayEndUnstarted reports whether r can be the Result of a program that was not started.
func mayEndUnstarted(r executor.Result) bool {
	return r.Status == executor.StatusKilled || r.Status == executor.StatusLost ||
		r.Status == executor.StatusFailed && r.Failure != nil
}

// wronged is the Result of a run whose backend broke the contract.
func (e *Engine) wronged(x *execution, v verdict, err error) executor.Result {
	e.log.Error("a backend broke the contract", "execution", x.id, "backend", x.backend, "error", err)
	if v.began.IsZero() {
		return failed(executor.StatusFailed, executor.Internal, executor.PhasePrepare, "")
	}
	return failed(executor.StatusLost, executor.Internal, executor.PhaseRun, "")
}

// unkept is the Result of a run whose output or artifacts could not be kept.
func (e *Engine) unkept(x *execution, err error) executor.Result {
	err = e.internal("keep what "+x.id+" made", err)
	if typed, ok := errors.AsType[*executor.Error](err); ok && typed.Code == executor.Exhausted && len(typed.Fields) > 0 {
		r := failed(executor.StatusFailed, typed.Code, executor.PhaseCollect, typed.Message)
		r.Failure.Field = typed.Fields[0].Field
		return r
	}
	return failed(executor.StatusLost, executor.CodeOf(err), executor.PhaseRun, err.Error())
}

// faulty is the Result of a run for which the backend returned an error.
func (e *Engine) faulty(x *execution, v verdict, phase executor.Phase) executor.Result {
	err := e.internal("run "+x.id+" on "+x.backend, v.err)
	status, code := executor.StatusFailed, executor.CodeOf(err)
	if code == executor.Unavailable || !v.began.IsZero() {
		status = executor.StatusLost
	}
	message := err.Error()
	if code == executor.Unavailable {
		message = "the backend " + x.backend + " went away: " + message
	}
	r := failed(status, code, phase, message)
	if typed, ok := errors.AsType[*executor.Error](err); ok && len(typed.Fields) > 0 {
		r.Failure.Field = typed.Fields[0].Field
	}
	if code == executor.Unavailable && !v.began.IsZero() && x.session != nil && !x.on.Keeps() {
		r.SessionState = executor.SessionStateLost // the interpreter died with the plugin
	}
	return r
}

// stopped is the Result of a run that was told to end with cause. r is the backend's Result, or an empty one.
func stopped(r executor.Result, cause error, phase executor.Phase) executor.Result {
	fail := func(status executor.Status, code executor.Code, phase executor.Phase, message string) {
		r.Status = status
		r.Failure = &executor.Failure{Code: code, Phase: phase, Message: message}
	}
	if end, ok := errors.AsType[*sessions.End](cause); ok {
		code := executor.Conflict
		if end.Status == executor.StatusLost {
			code = executor.Unavailable
		}
		fail(end.Status, code, phase, end.Message)
		return r
	}
	switch {
	case errors.Is(cause, errShutdown), errors.Is(cause, executor.ErrCallerGone):
		fail(executor.StatusLost, executor.Unavailable, phase, "the server stopped")
	case errors.Is(cause, errQueueDeadline):
		fail(executor.StatusLost, executor.Exhausted, executor.PhaseQueue, "the execution waited too long for its turn")
	case errors.Is(cause, errPrepareDeadline):
		fail(executor.StatusFailed, executor.Exhausted, executor.PhasePrepare, "the preparation took too long")
	case errors.Is(cause, errRunDeadline):
		r.Status = executor.StatusTimedOut
	default:
		r.Status = executor.StatusKilled
	}
	return r
}

// unstarted is the Result of an execution that was told to end before it was handed to its backend.
func (x *execution) unstarted() executor.Result {
	r := stopped(executor.Result{CPU: -1}, context.Cause(x.ctx), executor.PhaseQueue)
	r.Phases.Queue = max(0, time.Since(x.created))
	return r
}

// blameInput returns r with the failure of the caller's stream, if that broke. The backend has seen only a broken tar.
func blameInput(r executor.Result, err error) executor.Result {
	if err == nil || r.Status == executor.StatusSucceeded || r.Status == executor.StatusKilled {
		return r
	}
	typed, ok := errors.AsType[*executor.Error](err)
	if !ok {
		return r
	}
	if typed.Code == executor.Unavailable {
		r.Status, r.Failure = executor.StatusKilled, nil // the caller went away
		return r
	}
	r.Status = executor.StatusFailed
	r.Failure = &executor.Failure{Code: typed.Code, Phase: executor.PhasePrepare, Message: typed.Message}
	if len(typed.Fields) > 0 {
		r.Failure.Field = typed.Fields[0].Field
	}
	return r
}

func (e *Engine) keepArtifacts(x *execution, key string) error {
	ctx, cancel := calls.StoreContext(x.ctx)
	defer cancel()
	_, err := e.store.Update(ctx, x.id, func(r *executor.Record) { r.ArtifactsBlob = key })
	if err != nil {
		e.dropBlobs(x.id, blobArtifacts)
		return e.internal("keep artifacts", err)
	}
	return nil
}

// total returns how many bytes a stream has in all, and whether some of them are not in the log.
func (s *sink) total(name executor.Stream, reported int64, truncated bool) (int64, bool) {
	sent, kept := s.seen(name)
	all := max(reported, sent)
	return all, truncated || kept < all
}

// clockPhases sets the times of r that only the Engine knows or that the backend did not report.
func (e *Engine) clockPhases(x *execution, v verdict, r *executor.Result) {
	r.Phases.Queue = max(0, x.granted.Sub(x.created))
	if v.began.IsZero() {
		r.Phases.Prepare = cmp.Or(r.Phases.Prepare, v.ended.Sub(x.granted))
		return
	}
	r.Phases.Prepare = cmp.Or(r.Phases.Prepare, v.began.Sub(x.granted))
	r.Wall = cmp.Or(r.Wall, max(0, v.ended.Sub(v.began)-r.Phases.Collect))
	r.Phases.Run = cmp.Or(r.Phases.Run, r.Wall)
}
