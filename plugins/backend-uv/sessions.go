package uvbackend

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

var _ executor.SessionBackend = (*Backend)(nil)

// session is an open Session. Its slot serves only the Session until the Session is closed.
type session struct {
	*backend.Session
	slot        *slot
	interpreter interpreter
	language    executor.Language
	version     string // of Python

	mu sync.Mutex
	// lines are the requirements of all requests so far. packages are the resolved packages.
	// environments are in use. The last has all packages. The interpreter may have loaded modules of the earlier ones.
	lines        []string
	packages     []string
	environments []*environment
	// users counts the calls that use the Session. over reports whether the Session is being closed. After that left is closed when
	// users is 0.
	users int
	over  bool
	left  chan struct{}
}

// OpenSession implements executor.SessionBackend.
func (b *Backend) OpenSession(ctx context.Context, asked executor.Session) (executor.OpenedSession, error) {
	spec := asked.Spec
	spec.Language = ""
	if err := refuse(spec, b.can, b.how.Why["way_out"]); err != nil {
		return executor.OpenedSession{}, err
	}
	language := cmp.Or(asked.Language, executor.LanguagePython)
	if !slices.Contains(b.can.Languages, language) {
		return executor.OpenedSession{}, executor.FieldErrorf(executor.Unimplemented, "language", "%s", b.languages.missing(language))
	}
	if err := runner.SessionFits(language, asked.Limits); err != nil {
		return executor.OpenedSession{}, err
	}
	i, missing, err := b.choose(ctx, spec)
	if err == nil && missing != "" {
		var failure *executor.Failure
		i, failure, err = b.download(ctx, spec, missing, backend.NoProgress)
		err = backend.FailureError(failure, err)
	}
	if err != nil {
		return executor.OpenedSession{}, err
	}
	s := &session{Session: backend.NewSession(asked.ID), interpreter: i, language: language, version: i.Version}
	if other, err := b.sessions.Add(s); err != nil {
		return executor.OpenedSession{}, err
	} else if other != nil {
		return executor.OpenedSession{}, executor.Errorf(executor.Conflict, "session %s is open already", s.ID)
	}
	if err = b.openSession(ctx, s, asked, spec); err == nil {
		err = b.prepareSession(ctx, s, asked)
	}
	s.Opened(err)
	if err != nil {
		b.endSession(s)
		return executor.OpenedSession{}, err
	}
	return executor.OpenedSession{PythonVersion: s.version, Requirements: slices.Clone(s.packages)}, nil
}

// openSession prepares the environment, takes a slot and starts the interpreter in it.
func (b *Backend) openSession(ctx context.Context, s *session, asked executor.Session, spec executor.Spec) error {
	p, failure, err := b.plan(ctx, executor.Job{ID: asked.ID, Spec: spec, Limits: asked.Limits}, s.interpreter, backend.NoProgress)
	if p.environment != nil {
		s.environments, s.packages = []*environment{p.environment}, p.environment.Requirements
	}
	if err = backend.FailureError(failure, err); err != nil {
		return err
	}
	s.lines = p.lines
	preload := b.config.Preload
	if len(asked.Preload) > 0 {
		preload = asked.Preload
	}
	start := runner.SessionStart{
		SessionID: s.ID, Language: s.language, Interpreter: p.start.Interpreter, Env: spec.Env, Path: p.start.Path,
		Network: p.network, Limits: asked.Limits, Preload: preload, Reach: p.start.Reach, Caches: p.start.Caches,
	}
	if s.language != executor.LanguagePython {
		start.Interpreter, start.Preload = []string{b.languages[s.language]}, nil
		start.Reach = append(start.Reach, installation(b.languages[s.language])...)
	}
	warm := p.environment == nil // see warmSessions
	if warm {
		if s.slot = b.warm.take(b, warmKey(start)); s.slot != nil {
			b.warm.refill(b, start)
			return nil
		}
	}
	for {
		slot, fresh, err := b.takeSlot(ctx, p.network, "")
		if err != nil {
			return err
		}
		slot.weigh(asked.Limits.CPUShares)
		err = slot.conn.OpenSession(ctx, start)
		if err == nil {
			if s.slot = slot; warm {
				b.warm.refill(b, start)
			}
			return nil
		}
		alive := slot.alive()
		b.giveBack(slot, nil)
		if alive || fresh || ctx.Err() != nil {
			return err
		}
	}
}

// giveBack returns a slot that may have had a session to the slots. left is closed when no call uses the session any more; nil
// means that no call did.
func (b *Backend) giveBack(s *slot, left <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), runnerPatience)
	defer cancel()
	if err := s.conn.CloseSession(ctx); err != nil {
		_ = s.conn.Close() // the session's processes end with the runner
	}
	if left != nil && !s.leftBy(left) {
		_ = s.conn.Close() // a late call must not reach the slot's next session
	}
	b.slots.put(s)
}

// session returns an open Session. Codes: not_found.
func (b *Backend) session(ctx context.Context, id string) (*session, error) {
	s, err := b.sessions.Get(ctx, id)
	if err == nil && !s.slot.alive() {
		b.endSession(s)
		err = backend.NotHeld(id)
	}
	return s, err
}

// endSession gives everything of a Session back. It is idempotent; a later call waits for the first.
func (b *Backend) endSession(s *session) {
	s.Once(func() {
		left := s.shut()
		if s.slot != nil {
			b.giveBack(s.slot, left)
		}
		s.mu.Lock()
		for _, e := range s.environments {
			e.release()
		}
		s.environments = nil
		s.mu.Unlock()
		b.sessions.Remove(s)
	})
}

// AdoptSession implements executor.SessionBackend: sessions do not outlive the plugin.
func (b *Backend) AdoptSession(context.Context, executor.Session, []byte) (executor.OpenedSession, error) {
	return executor.OpenedSession{}, executor.Errorf(executor.Unimplemented, "sessions of the uv backend end with its plugin")
}

// CloseSession implements executor.SessionBackend.
func (b *Backend) CloseSession(ctx context.Context, id string) error {
	s, err := b.session(ctx, id)
	if executor.CodeOf(err) == executor.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	b.endSession(s)
	return nil
}

// AddRequirements implements executor.SessionTools. Environments are shared and never changed: the Session gets one more,
// with its old packages and the new ones, and finds that environment first.
func (b *Backend) AddRequirements(ctx context.Context, id, text string) ([]string, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.language != executor.LanguagePython {
		return nil, executor.FieldErrorf(executor.Unimplemented, "requirements_txt", "must not be added to a session in %s: open a session with them", s.language)
	}
	added, failure := b.normalise(text)
	if failure != nil {
		return nil, backend.FailureError(failure, nil)
	}
	s.mu.Lock()
	lines := slices.Concat(s.lines, added)
	slices.Sort(lines)
	lines = slices.Compact(lines)
	same, packages := slices.Equal(lines, s.lines), slices.Clone(s.packages)
	s.mu.Unlock()
	if same {
		return packages, nil
	}
	env, failure, err := b.builder.environment(ctx, want{s.interpreter, lines}, backend.NoProgress)
	if err = backend.FailureError(failure, err); err != nil {
		return nil, err
	}
	if packages, err = b.adopt(ctx, s, lines, env); err != nil {
		env.release()
	}
	return packages, err
}

// adopt gives env to a Session. It fails if the Session was closed while env was prepared.
func (b *Backend) adopt(ctx context.Context, s *session, lines []string, env *environment) ([]string, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	folder, err := sitePackages(env.dir)
	if err == nil {
		err = b.said(s, s.slot.conn.AddPath(ctx, folder))
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, backend.NotHeld(s.ID)
	}
	s.lines, s.packages = lines, env.Requirements
	s.environments = append(s.environments, env)
	return slices.Clone(s.packages), nil
}

// said returns the error of a call to the runner. If the runner has ended, said ends the Session.
func (b *Backend) said(s *session, err error) error {
	if err != nil && !s.slot.alive() {
		b.endSession(s)
		return executor.Errorf(executor.Unavailable, "session %s: runner ended: %w", s.ID, err)
	}
	return err
}

// runInSession runs a job whose Spec names a Session.
func (b *Backend) runInSession(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	s, done, err := b.use(ctx, job.Spec.Session)
	if err != nil {
		return executor.Result{}, err
	}
	defer done()
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	start := protocol.NewStart(job)
	if s.language == executor.LanguagePython || len(start.Command) > 0 {
		s.mu.Lock()
		start.PythonVersion, start.Requirements = s.version, slices.Clone(s.packages)
		s.mu.Unlock()
	}
	stdin := runner.NewSourceReader(job.Stdin)
	begun := time.Now()
	result, err := s.slot.conn.Run(ctx, start, runner.RunInput{Stdin: stdin.Reader()}, &watchedSink{Sink: sink, start: &start})
	if executor.CodeOf(err) == executor.Unavailable && !s.slot.alive() {
		b.endSession(s)
		b.log.Warn("the runner of a session died", "session", s.ID, "after", time.Since(begun))
	}
	return result, err
}
