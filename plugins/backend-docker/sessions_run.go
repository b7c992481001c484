package dockerbackend

import (
	"context"
	"errors"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// runInSession runs a job whose Spec names a Session.
func (b *Backend) runInSession(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	s, err := b.session(ctx, job.Spec.Session)
	if err != nil {
		return executor.Result{}, err
	}
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	start := protocol.NewStart(job)
	if s.language == executor.LanguagePython || len(start.Command) > 0 {
		start.PythonVersion, start.Requirements = s.version, s.resolved()
	}
	stdin := runner.NewSourceReader(job.Stdin)
	box := s.sandbox()
	out := &jobSink{Sink: sink, handle: handle{Container: box.id, Epoch: box.conn.Epoch(), Digest: s.digest}}
	result, err := b.see(ctx, box, func(ctx context.Context) (executor.Result, error) {
		return box.conn.Run(ctx, start, runner.RunInput{Stdin: stdin.Reader()}, out)
	})
	result, err = b.afterSession(ctx, s, out.started, result, err)
	result.ImageDigest = s.digest
	return result, err
}

// afterSession returns the outcome of a Run in a Session. If the Session's runner is gone, afterSession ends the Session.
func (b *Backend) afterSession(ctx context.Context, s *session, started bool, result executor.Result, err error) (executor.Result, error) {
	switch {
	case executor.CodeOf(err) != executor.Unavailable || !s.gone():
	case b.letsGo(ctx):
		s.Once(func() { b.sessions.Remove(s) }) // only the connection is gone: the Session goes on
	default:
		b.log.Warn("a session's runner is gone", "session", s.ID, "error", err)
		full := s.full()
		b.endSession(s)
		if full && started && ctx.Err() == nil {
			return executor.Result{
				Status: executor.StatusOutOfMemory, Signal: "SIGKILL", CPU: -1, SessionState: executor.SessionStateLost, Failure: protocol.OutOfMemory(s.memory),
			}, nil
		}
	}
	return result, err
}

// attachInSession implements Attach for a job whose Spec names a Session. The backend must hold the Session.
func (b *Backend) attachInSession(ctx context.Context, job executor.Job, h handle, o runner.ResumeOptions, sink executor.Sink) (executor.Result, error) {
	s, err := b.session(ctx, job.Spec.Session)
	if err != nil {
		return executor.Result{}, err
	}
	// The present connection cannot follow a running Execution, so another replaces it.
	old, moved := s.move()
	defer moved()
	_ = old.conn.Detach() // resume makes the connection that replaces it
	box, err := b.resume(ctx, h, o)
	if err != nil {
		// The Execution has ended, and its Result is no longer there. The Session itself may still be there.
		again, againErr := b.resume(ctx, h, runner.ResumeOptions{Epoch: h.Epoch})
		if againErr != nil {
			moved()
			b.endSession(s)
			return executor.Result{}, errors.Join(err, againErr)
		}
		s.take(again, old)
		return executor.Result{}, err
	}
	s.take(box, old)
	moved()
	out := &resumedSink{Sink: sink}
	result, err := b.see(ctx, box, func(ctx context.Context) (executor.Result, error) { return box.conn.Follow(ctx, out) })
	result, err = b.afterSession(ctx, s, true, result, err)
	result.PythonVersion, result.Requirements, result.ImageDigest = out.started.PythonVersion, out.started.Requirements, h.Digest
	return result, err
}

// move begins to replace the connection to s's sandbox. Until moved is called, other calls wait, and the end of the old
// connection does not end the Session. moved may be called more than once.
func (s *session) move() (old *sandbox, moved func()) {
	done := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving = done
	return s.box, sync.OnceFunc(func() {
		s.mu.Lock()
		s.moving = nil
		s.mu.Unlock()
		close(done)
	})
}

// take replaces the connection old by box, to the same sandbox.
func (s *session) take(box, old *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	box.class, box.has = old.class, old.has
	s.box = box
}
