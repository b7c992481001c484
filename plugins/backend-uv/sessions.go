package uvbackend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

var _ executor.SessionBackend = (*Backend)(nil)

// session is a slot that one Session has for its life.
type session struct {
	id          string
	slot        *slot
	interpreter interpreter
	language    executor.Language
	version     string // of Python
	// ready is closed when it is open, or never will be; err says why.
	ready chan struct{}
	err   error
	ended sync.Once

	mu sync.Mutex
	// lines are the requirements asked for so far, packages what they resolved to, environments those in use: the last one
	// has all, the ones before may be imported from.
	lines        []string
	packages     []string
	environments []*environment
	// users counts the calls that are in it; over: it is being closed, and left is closed when they are out.
	users int
	over  bool
	left  chan struct{}
}

// sessions are the Sessions at hand.
type sessions struct {
	mu     sync.Mutex
	open   map[string]*session
	closed bool
}

// reserve makes room for a Session.
func (l *sessions) reserve(s *session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if l.open[s.id] != nil {
		return executor.Errorf(executor.Conflict, "session %s is open already", s.id)
	}
	if l.open == nil {
		l.open = map[string]*session{}
	}
	l.open[s.id] = s
	return nil
}

func (l *sessions) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[s.id] == s {
		delete(l.open, s.id)
	}
}

func (l *sessions) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// OpenSession implements executor.SessionBackend.
func (b *Backend) OpenSession(ctx context.Context, asked executor.Session) (executor.OpenedSession, error) {
	spec := asked.Spec
	spec.Language = ""
	if err := refuse(spec, b.can); err != nil {
		return executor.OpenedSession{}, err
	}
	language := asked.Language
	if language == executor.LanguageDefault {
		language = executor.LanguagePython
	}
	if !slices.Contains(b.can.Languages, language) {
		return executor.OpenedSession{}, executor.FieldErrorf(executor.Unimplemented, "language", "%s", b.languages.missing(language))
	}
	if err := runner.SessionFits(language, asked.Limits); err != nil {
		return executor.OpenedSession{}, err
	}
	i, err := b.choose(ctx, spec)
	if err != nil {
		return executor.OpenedSession{}, err
	}
	s := &session{id: asked.ID, interpreter: i, language: language, version: i.Version, ready: make(chan struct{})}
	if err := b.sessions.reserve(s); err != nil {
		return executor.OpenedSession{}, err
	}
	s.err = b.openSession(ctx, s, asked, spec)
	close(s.ready)
	if s.err != nil {
		b.endSession(s)
		return executor.OpenedSession{}, s.err
	}
	return executor.OpenedSession{PythonVersion: s.version, Requirements: slices.Clone(s.packages)}, nil
}

// openSession prepares the environment, takes a slot and starts the interpreter in it.
func (b *Backend) openSession(ctx context.Context, s *session, asked executor.Session, spec executor.Spec) error {
	p, failure, err := b.plan(ctx, executor.Job{ID: asked.ID, Spec: spec, Limits: asked.Limits}, s.interpreter, nowhere{})
	if p.environment != nil {
		s.environments, s.packages = []*environment{p.environment}, p.environment.Requirements
	}
	if err == nil && failure != nil {
		err = failureError(failure)
	}
	if err != nil {
		return err
	}
	if s.lines, err = normalise(spec.Requirements, b.config.AllowBuilds); err != nil {
		return failureError(refused(err)) // plan has said so
	}
	preload := b.config.Preload
	if len(asked.Preload) > 0 {
		preload = asked.Preload
	}
	start := runner.SessionStart{
		SessionID: s.id, Language: s.language, Interpreter: p.start.Interpreter, Env: spec.Env, Path: p.start.Path,
		Network: p.network, Limits: asked.Limits, Preload: preload, Reach: p.start.Reach,
	}
	if s.language != executor.LanguagePython {
		start.Interpreter, start.Preload = []string{b.languages[s.language]}, nil
		start.Reach = append(start.Reach, installation(b.languages[s.language])...)
	}
	ahead := p.environment == nil // see warmSessions
	if ahead {
		if s.slot = b.warm.take(b, warmKey(start)); s.slot != nil {
			b.warm.refill(b, start)
			return nil
		}
	}
	for {
		slot, fresh, err := b.takeSlot(ctx, p.network)
		if err != nil {
			return err
		}
		slot.weigh(asked.Limits.CPUShares)
		err = slot.conn.OpenSession(ctx, start)
		if err == nil {
			if s.slot = slot; ahead {
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

// giveBack returns a slot that had, or may have had, a session. left is closed when nobody is in that any more; nil: nobody
// was.
func (b *Backend) giveBack(s *slot, left <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), runnerPatience)
	defer cancel()
	if err := s.conn.CloseSession(ctx); err != nil {
		_ = s.conn.Close() // what it has left ends with the runner
	}
	if left != nil && !s.leftBy(left) {
		_ = s.conn.Close() // what they still send must not reach another session
	}
	b.slots.put(s)
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

// session returns an open Session. Codes: not_found.
func (b *Backend) session(ctx context.Context, id string) (*session, error) {
	b.sessions.mu.Lock()
	s := b.sessions.open[id]
	b.sessions.mu.Unlock()
	if s != nil {
		select {
		case <-s.ready: // mostly; then the end of ctx is for others to see
		default:
			select {
			case <-s.ready:
			case <-ctx.Done():
				return nil, executor.Errorf(executor.Unavailable, "session %s: %w", id, context.Cause(ctx))
			}
		}
		if s.err == nil && !s.slot.alive() {
			b.endSession(s)
			s = nil
		}
	}
	if s == nil || s.err != nil {
		return nil, notHeld(id)
	}
	return s, nil
}

// endSession gives everything of a Session back. Idempotent; who comes second waits for the first.
func (b *Backend) endSession(s *session) {
	s.ended.Do(func() {
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
		b.sessions.forget(s)
	})
}

// closeSessions ends all, in the order of nothing in particular.
func (b *Backend) closeSessions() {
	b.sessions.mu.Lock()
	b.sessions.closed = true
	var all []*session
	for _, s := range b.sessions.open {
		all = append(all, s)
	}
	b.sessions.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			<-s.ready
			b.endSession(s)
		})
	}
	wg.Wait()
}

// AdoptSession implements executor.SessionBackend: sessions do not outlive the plugin.
func (b *Backend) AdoptSession(context.Context, executor.Session, []byte) (executor.OpenedSession, error) {
	return executor.OpenedSession{}, executor.Errorf(executor.Unimplemented, "the uv backend's sessions end with its plugin")
}

// RestartSession implements executor.SessionBackend.
func (b *Backend) RestartSession(ctx context.Context, id string, wipe bool) error {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return b.said(s, s.slot.conn.RestartSession(ctx, wipe))
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

// Variables implements executor.SessionTools.
func (b *Backend) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	s, done, err := b.use(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := s.slot.conn.Variables(ctx)
	return list, b.said(s, err)
}

// AddRequirements implements executor.SessionTools. Environments are shared and never changed: the Session gets one more,
// with all that it has and what is new, in front of the others on its path.
func (b *Backend) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.language != executor.LanguagePython {
		return nil, executor.FieldErrorf(executor.Unimplemented, "requirements_txt", "a session in %s has no path to add to: open one with them", s.language)
	}
	added, err := normalise(requirements, b.config.AllowBuilds)
	if err != nil {
		return nil, failureError(refused(err))
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
	env, failure, err := b.flights.prepare(ctx, want{s.interpreter, lines}, func(executor.Progress) error { return nil })
	if err == nil && failure != nil {
		err = failureError(failure)
	}
	if err != nil {
		return nil, err
	}
	if packages, err = b.adopt(ctx, s, lines, env); err != nil {
		env.release()
	}
	return packages, err
}

// adopt lets a Session have env, which is its own then. It may have been closed while that was prepared.
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
		return nil, notHeld(s.id)
	}
	s.lines, s.packages = lines, env.Requirements
	s.environments = append(s.environments, env)
	return slices.Clone(s.packages), nil
}

// said passes on what a runner said; a runner that is gone takes its Session with it.
func (b *Backend) said(s *session, err error) error {
	if err != nil && !s.slot.alive() {
		b.endSession(s)
		return executor.Errorf(executor.Unavailable, "session %s: its runner is gone: %w", s.id, err)
	}
	return err
}

// runInSession is Run of a job whose Spec names a Session.
func (b *Backend) runInSession(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	s, done, err := b.use(ctx, job.Spec.Session)
	if err != nil {
		return executor.Result{}, err
	}
	defer done()
	ctx, r, err := b.enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer b.leave(job.ID, r)
	spec := job.Spec
	s.mu.Lock()
	packages := slices.Clone(s.packages)
	s.mu.Unlock()
	start := runner.Start{
		ExecutionID: job.ID, Session: true, Code: spec.Code, Command: spec.Command, Args: spec.Args, Limits: job.Limits,
		Outputs: spec.Outputs, OutputsChanged: spec.OutputsChanged, FilesChanged: spec.FilesChanged, SampleInterval: spec.SampleInterval,
		PythonVersion: s.version, Requirements: packages,
	}
	if s.language != executor.LanguagePython && len(spec.Command) == 0 {
		start.PythonVersion, start.Requirements = "", nil
	}
	stdin := runner.NewSourceReader(job.Stdin)
	begun := time.Now()
	result, err := s.slot.conn.Run(ctx, start, runner.RunInput{Stdin: stdin.Reader()}, &watchedSink{Sink: sink, start: &start})
	if executor.CodeOf(err) == executor.Unavailable && !s.slot.alive() {
		b.endSession(s)
		b.log.Warn("a session's runner died", "session", s.id, "after", time.Since(begun))
	}
	return result, err
}
