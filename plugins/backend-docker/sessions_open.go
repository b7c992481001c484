package dockerbackend

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// OpenSession implements executor.SessionBackend.
func (b *Backend) OpenSession(ctx context.Context, asked executor.Session) (executor.OpenedSession, error) {
	spec := asked.Spec
	spec.Language = asked.Language
	s := newSession(asked, spec)
	if err := runner.SessionFits(s.language, asked.Limits); err != nil {
		return executor.OpenedSession{}, err
	}
	if err := refuse(executor.Job{Spec: spec, Limits: asked.Limits}, b.can); err != nil {
		return executor.OpenedSession{}, err
	}
	other, err := b.sessions.reserve(s)
	if other != nil {
		err = executor.Errorf(executor.Conflict, "session %s is open already", s.id)
	}
	if err != nil {
		return executor.OpenedSession{}, err
	}
	s.err = b.openSession(ctx, s, asked)
	if s.err == nil {
		b.watch(s)
	}
	close(s.ready)
	if s.err != nil {
		b.endSession(s)
		return executor.OpenedSession{}, s.err
	}
	return s.opened()
}

// openSession prepares the image, claims a sandbox and starts the interpreter in it.
func (b *Backend) openSession(ctx context.Context, s *session, asked executor.Session) error {
	e := &emitter{sink: nowhere{}, stop: func(error) {}}
	image, i, failure, err := b.image(ctx, s.spec, e)
	if err == nil && failure != nil {
		err = failureError(failure)
	}
	if err != nil {
		return err
	}
	s.python, s.version, s.digest, s.packages = i.Path, i.Version, image.Digest, image.Requirements
	start := runner.SessionStart{
		SessionID: s.id, Language: s.language, Env: s.spec.Env, Path: programPath(image.Path), Network: true, Limits: asked.Limits,
	}
	interpreters := [][]string{{i.Path}}
	switch s.language {
	case executor.LanguageJavaScript:
		interpreters = [][]string{{"node"}, {"nodejs"}}
	case executor.LanguageShell:
		interpreters = [][]string{{"bash"}, {"sh"}}
	default:
		start.Preload = b.config.Preload
		if len(asked.Preload) > 0 {
			start.Preload = asked.Preload
		}
		if i.Path == "" {
			return executor.FieldErrorf(executor.Invalid, "docker_image", "the image %s has neither python3 nor python on its PATH", b.wanted(s.spec))
		}
	}
	c := b.class(image.ID, s.spec.Network, asked.Limits, true)
	for {
		box, warm, err := b.pool.claim(ctx, c, capacityOf(asked.Limits))
		if err != nil {
			return err
		}
		for _, interpreter := range interpreters {
			start.Interpreter = interpreter
			if err = box.conn.OpenSession(ctx, start); executor.CodeOf(err) != executor.Invalid || ofField(err, memoryField) {
				break
			}
		}
		if err == nil {
			s.box, s.pooled = box, true
			b.claimed(s.id, box.id, lifeOf(asked))
			return nil
		}
		ended := box.ended()
		// The kernel may end the runner together with the interpreter.
		full := ended && ctx.Err() == nil && b.factory.full(ctx, box.id)
		b.spend(box)
		switch {
		case full:
			return executor.FieldErrorf(executor.Invalid, memoryField, "must be more than %d: the container ran out of memory before the interpreter was ready", asked.Limits.MemoryBytes>>20)
		case ofField(err, memoryField):
			return err
		case executor.CodeOf(err) == executor.Invalid:
			return executor.FieldErrorf(executor.Invalid, "language", "the image %s has no interpreter for %s: %v", b.wanted(s.spec), s.language, err)
		}
		if !warm || !ended || ctx.Err() != nil {
			return err
		}
	}
}

func lifeOf(s executor.Session) time.Duration {
	if s.MaxLife > 0 {
		return s.MaxLife + time.Hour
	}
	return sessionLife
}

// nowhere is the Sink of a preparation that nobody follows.
type nowhere struct{ executor.Sink }

// Emit implements executor.Sink.
func (nowhere) Emit(executor.Event) error { return nil }

// failureError is what an Execution would have in its Result.
func failureError(f *executor.Failure) error {
	err := &executor.Error{Code: f.Code, Message: f.Message}
	if f.Field != "" {
		err.Fields = []executor.FieldError{{Field: f.Field, Message: f.Message}}
	}
	return err
}

// AdoptSession implements executor.SessionBackend: the container of a Session outlives the plugin and the core.
func (b *Backend) AdoptSession(ctx context.Context, asked executor.Session, raw []byte) (executor.OpenedSession, error) {
	var h sessionHandle
	if json.Unmarshal(raw, &h) != nil || h.Container == "" {
		return executor.OpenedSession{}, executor.Errorf(executor.NotFound, "session %s: not a handle of ours", asked.ID)
	}
	spec := asked.Spec
	spec.Language = asked.Language
	s := newSession(asked, spec)
	s.python, s.version, s.digest, s.packages = h.Python, asked.PythonVersion, asked.ImageDigest, asked.Requirements
	if len(asked.Requirements) > 0 {
		s.requirements = strings.Join(asked.Requirements, "\n") // also those that were added
	}
	other, err := b.sessions.reserve(s)
	if err != nil {
		return executor.OpenedSession{}, err
	}
	if other != nil { // it is held already
		held, err := b.session(ctx, asked.ID)
		if err != nil {
			return executor.OpenedSession{}, err
		}
		return held.opened()
	}
	s.box, s.err = b.resume(ctx, handle{Container: h.Container, Epoch: h.Epoch}, runner.ResumeOptions{Epoch: h.Epoch})
	if executor.CodeOf(s.err) == executor.NotFound && (b.sessions.wasFull(s.id) || b.factory.full(ctx, h.Container)) {
		s.err = errFull(s.id)
	}
	if s.err == nil {
		b.watch(s)
	}
	close(s.ready)
	if s.err != nil {
		b.sessions.forget(s)
		return executor.OpenedSession{}, s.err
	}
	b.claimed(s.id, s.box.id, lifeOf(asked))
	return s.opened()
}
