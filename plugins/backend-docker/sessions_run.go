package dockerbackend

import (
	"context"
	"errors"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// runInSession is Run of a job whose Spec names a Session.
func (b *Backend) runInSession(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	s, err := b.session(ctx, job.Spec.Session)
	if err != nil {
		return executor.Result{}, err
	}
	ctx, r, err := b.enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer b.leave(job.ID, r)
	spec := job.Spec
	start := runner.Start{
		ExecutionID: job.ID, Session: true, Code: spec.Code, Command: spec.Command, Args: spec.Args, Limits: job.Limits,
		Outputs: spec.Outputs, OutputsChanged: spec.OutputsChanged, FilesChanged: spec.FilesChanged, SampleInterval: spec.SampleInterval,
		PythonVersion: s.version, Requirements: s.resolved(),
	}
	if s.language != executor.LanguagePython && len(spec.Command) == 0 {
		start.PythonVersion, start.Requirements = "", nil
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

// afterSession sees what became of a Session when a Run in it has returned, and of that.
func (b *Backend) afterSession(ctx context.Context, s *session, started bool, result executor.Result, err error) (executor.Result, error) {
	switch {
	case executor.CodeOf(err) != executor.Unavailable || !s.gone():
	case b.letsGo(ctx):
		s.ended.Do(func() { b.sessions.forget(s) }) // its connection is gone, and it is not
	default:
		b.log.Warn("a session's runner died", "session", s.id, "error", err)
		full := s.full()
		b.endSession(s)
		if full && started && ctx.Err() == nil {
			return executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", CPU: -1, SessionState: executor.SessionStateLost}, nil
		}
	}
	return result, err
}

// attachInSession is Attach of a job whose Spec names a Session, which is taken over first if it is not held.
func (b *Backend) attachInSession(ctx context.Context, job executor.Job, h handle, o runner.ResumeOptions, sink executor.Sink) (executor.Result, error) {
	s, err := b.session(ctx, job.Spec.Session)
	if err != nil {
		return executor.Result{}, err
	}
	// The connection that holds the session is not one that follows what runs.
	old, moved := s.move()
	defer moved()
	_ = old.conn.Detach() // another takes its place
	box, err := b.resume(ctx, h, o)
	if err != nil {
		// What was to be followed has ended, and somebody had its Result: the session is still there.
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

// move begins to change the connection to s's sandbox, which others wait for and take for no end. moved is called when it is
// done, and may be called again.
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

// take lets s go on with another connection to the same sandbox.
func (s *session) take(box, old *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	box.class, box.has = old.class, old.has
	s.box = box
}
