package dockerbackend

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// OpenSession implements executor.SessionBackend.
func (b *Backend) OpenSession(ctx context.Context, asked executor.Session) (executor.OpenedSession, error) {
	s := newSession(asked)
	if err := runner.SessionFits(s.language, asked.Limits); err != nil {
		return executor.OpenedSession{}, err
	}
	spec := asked.Spec
	spec.Language = "" // checked below
	if err := refuse(executor.Job{Spec: spec, Limits: asked.Limits}, b.can); err != nil {
		return executor.OpenedSession{}, err
	}
	if !slices.Contains(b.can.Languages, s.language) {
		return executor.OpenedSession{}, executor.FieldErrorf(executor.Unimplemented, "language", "must be one of %s on the docker backend (got %q)", joined(b.can.Languages), s.language)
	}
	other, err := b.sessions.Add(s)
	if other != nil {
		err = executor.Errorf(executor.Conflict, "session %s is open already", s.ID)
	}
	if err != nil {
		return executor.OpenedSession{}, err
	}
	if err = b.openSession(ctx, s, asked); err == nil {
		b.watch(s)
	}
	s.Opened(err)
	if err != nil {
		b.endSession(s)
		return executor.OpenedSession{}, err
	}
	return s.opened()
}

// openSession prepares the image, claims a sandbox and starts the interpreter in it.
func (b *Backend) openSession(ctx context.Context, s *session, asked executor.Session) error {
	image, i, failure, err := b.image(ctx, s.spec, backend.NoProgress)
	if err = backend.FailureError(failure, err); err != nil {
		return err
	}
	s.python, s.version, s.digest, s.packages = i.Path, i.Version, image.Digest, image.Requirements
	start := runner.SessionStart{
		SessionID: s.ID, Language: s.language, Env: s.spec.Env, Path: image.Path, Network: true, Limits: asked.Limits,
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
			b.claimed(s.ID, box.id, lifeOf(asked))
			return nil
		}
		ended := box.ended()
		// The kernel may kill the runner together with the interpreter.
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

// joined returns the languages as a list for messages.
func joined(languages []executor.Language) string {
	names := make([]string, 0, len(languages))
	for _, l := range languages {
		names = append(names, string(l))
	}
	return strings.Join(names, ", ")
}

// lifeOf returns how long the claim on disk of a Session is valid.
func lifeOf(s executor.Session) time.Duration {
	if s.MaxLife > 0 {
		return s.MaxLife + time.Hour
	}
	return sessionLife
}

// AdoptSession implements executor.SessionBackend. The container of a Session outlives the plugin and the core.
func (b *Backend) AdoptSession(ctx context.Context, asked executor.Session, raw []byte) (executor.OpenedSession, error) {
	var h sessionHandle
	if json.Unmarshal(raw, &h) != nil || h.Container == "" {
		return executor.OpenedSession{}, executor.Errorf(executor.NotFound, "session %s: the handle is not of this backend", asked.ID)
	}
	s := newSession(asked)
	s.python, s.version, s.digest, s.packages = h.Python, asked.PythonVersion, asked.ImageDigest, asked.Requirements
	if len(asked.Requirements) > 0 {
		s.requirements = strings.Join(asked.Requirements, "\n") // also those added by AddRequirements
	}
	other, err := b.sessions.Add(s)
	if err != nil {
		return executor.OpenedSession{}, err
	}
	if other != nil { // this backend already holds it
		held, err := b.session(ctx, asked.ID)
		if err != nil {
			return executor.OpenedSession{}, err
		}
		return held.opened()
	}
	s.box, err = b.resume(ctx, handle{Container: h.Container, Epoch: h.Epoch}, runner.ResumeOptions{Epoch: h.Epoch})
	if executor.CodeOf(err) == executor.NotFound && (b.full.has(s.ID) || b.factory.full(ctx, h.Container)) {
		err = errFull(s.ID)
	}
	if err == nil {
		b.watch(s)
	}
	s.Opened(err)
	if err != nil {
		b.sessions.Remove(s)
		return executor.OpenedSession{}, err
	}
	b.claimed(s.ID, s.box.id, lifeOf(asked))
	return s.opened()
}
