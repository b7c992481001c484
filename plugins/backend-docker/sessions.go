package dockerbackend

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

var _ executor.SessionBackend = (*Backend)(nil)

// sessionLife bounds what is kept on disk of a Session that says no bound of its own.
const sessionLife = 30 * 24 * time.Hour

// closeTime bounds how long a runner may take to end a session; then its container is killed.
const closeTime = 15 * time.Second

// session is a sandbox that one Session has for its life.
type session struct {
	id       string
	language executor.Language
	spec     executor.Spec
	// python is its image's interpreter, and version which one that is.
	python  string
	version string
	digest  string
	// ready is closed when it is open, or never will be; err says why.
	ready chan struct{}
	err   error
	ended sync.Once
	// pooled: the sandbox was claimed from the pool, in this life of the plugin.
	pooled bool
	// full tells of a sandbox that is gone whether it went for its memory; see watch.
	full func() bool

	mu  sync.Mutex
	box *sandbox
	// moving is not nil while another connection to the sandbox takes the place of box's; it is closed when one has.
	moving chan struct{}
	// requirements is the text of all that was asked for, packages what it resolved to, added how often some were added.
	requirements string
	packages     []string
	added        int
}

// sandbox is where the session is now.
func (s *session) sandbox() *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box
}

// gone reports whether the sandbox is. A connection that was let go for another one says nothing about it.
func (s *session) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moving == nil && s.box.ended()
}

// settled waits until no connection is being changed for another.
func (s *session) settled(ctx context.Context) error {
	s.mu.Lock()
	moving := s.moving
	s.mu.Unlock()
	if moving == nil {
		return nil
	}
	select {
	case <-moving:
		return nil
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "session %s: %w", s.id, context.Cause(ctx))
	}
}

func (s *session) conn() *runner.Conn { return s.sandbox().conn }

func (s *session) resolved() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.packages)
}

// sessions are the Sessions at hand.
type sessions struct {
	mu     sync.Mutex
	open   map[string]*session
	closed bool
	// full are the last of those that went for their memory.
	full []string
}

// maxFull bounds how many are remembered.
const maxFull = 1000

func (l *sessions) ranFull(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = append(l.full, id)
	l.full = l.full[max(0, len(l.full)-maxFull):]
}

// wasFull reports whether a Session went for its memory, in this life of the plugin.
func (l *sessions) wasFull(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.full, id)
}

// reserve makes room for a Session; another one of that id is returned instead.
func (l *sessions) reserve(s *session) (other *session, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if other := l.open[s.id]; other != nil {
		return other, nil
	}
	if l.open == nil {
		l.open = map[string]*session{}
	}
	l.open[s.id] = s
	return nil, nil
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

// sessionHandle finds a Session's sandbox again: OpenedSession.Handle.
type sessionHandle struct {
	Container string `json:"container"`
	Epoch     uint64 `json:"epoch"`
	Python    string `json:"python,omitempty"`
}

func (s *session) opened() (executor.OpenedSession, error) {
	box := s.sandbox()
	raw, err := json.Marshal(sessionHandle{box.id, box.conn.Epoch(), s.python})
	return executor.OpenedSession{Handle: raw, PythonVersion: s.version, Requirements: s.resolved(), ImageDigest: s.digest}, err
}

func newSession(asked executor.Session, spec executor.Spec) *session {
	s := &session{id: asked.ID, language: asked.Language, spec: spec, requirements: spec.Requirements, ready: make(chan struct{})}
	if s.language == executor.LanguageDefault {
		s.language = executor.LanguagePython
	}
	return s
}

// claimed notes on disk whose a container is.
func (b *Backend) claimed(id, container string, life time.Duration) {
	if err := b.claims.add(id, container, time.Now().Add(life)); err != nil {
		b.log.Warn("a claim is not on disk: after a crash the container is left to its silence", "error", err)
	}
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
		if s.err == nil {
			if err := s.settled(ctx); err != nil {
				return nil, err
			}
			if s.gone() {
				s.full() // while it can be told
				b.endSession(s)
				s = nil
			}
		}
	}
	if s == nil || s.err != nil {
		return nil, executor.Errorf(executor.NotFound, "session %s is not held here", id)
	}
	return s, nil
}

// endSession ends all that is in a Session and gives everything of it back. Idempotent; who comes second waits for the first.
func (b *Backend) endSession(s *session) {
	s.ended.Do(func() {
		if box := s.sandbox(); box != nil {
			// What runs in it ends now; the container goes behind the answer.
			ctx, cancel := context.WithTimeoutCause(context.Background(), closeTime, errSilent)
			if err := box.conn.CloseSession(ctx); err != nil && !box.ended() {
				b.log.Warn("a session's runner did not close it", "session", s.id, "error", err)
				_ = b.daemon.remove(ctx, box.id) // discard tries again, and says so
			}
			cancel()
			b.factory.discard(box)
			if s.pooled {
				b.pool.done(box.class)
			}
			b.claims.drop(s.id)
		}
		b.sessions.forget(s)
	})
}

// leaveSessions ends all, or lets them go: then they can be adopted for Config.SilenceSeconds.
func (b *Backend) leaveSessions(letGo bool) {
	b.sessions.mu.Lock()
	b.sessions.closed = true
	var all []*session
	for _, s := range b.sessions.open {
		all = append(all, s)
	}
	b.sessions.mu.Unlock()
	for _, s := range all {
		<-s.ready
		if !letGo || s.err != nil {
			b.endSession(s)
			continue
		}
		s.ended.Do(func() {
			_ = s.conn().Detach() // the connection is of no more use
			b.sessions.forget(s)
		})
	}
}

// RestartSession implements executor.SessionBackend.
func (b *Backend) RestartSession(ctx context.Context, id string, wipe bool) error {
	s, err := b.session(ctx, id)
	if err != nil {
		return err
	}
	return b.said(s, s.conn().RestartSession(ctx, wipe))
}

// CloseSession implements executor.SessionBackend: also of one that an earlier life of this plugin has left.
func (b *Backend) CloseSession(ctx context.Context, id string) error {
	s, err := b.session(ctx, id)
	switch {
	case err == nil:
		b.endSession(s)
		return nil
	case executor.CodeOf(err) != executor.NotFound:
		return err
	}
	return b.removeClaimed(ctx, id)
}

// said passes on what a runner said; a runner that is gone takes its Session with it.
func (b *Backend) said(s *session, err error) error {
	if err != nil && s.gone() {
		full := s.full()
		b.endSession(s)
		if full {
			return errFull(s.id)
		}
		return executor.Errorf(executor.Unavailable, "session %s: its runner is gone: %w", s.id, err)
	}
	return err
}

// errFull says why a Session is over whose container went for its memory.
func errFull(id string) error {
	return executor.Errorf(executor.Exhausted, "session %s: its container ran out of memory, and is gone", id)
}

// watch finds out, when s's sandbox is gone, whether it went for its memory, and ends s then: also one that nobody uses, and
// soon, for a daemon does not remember for long. It comes before s is ready.
func (b *Backend) watch(s *session) {
	s.full = sync.OnceValue(func() bool {
		full := b.factory.full(b.base, s.sandbox().id)
		if full {
			b.log.Warn("a session's container ran out of memory", "session", s.id)
			b.sessions.ranFull(s.id)
		}
		return full
	})
	b.wg.Go(func() {
		for {
			box := s.sandbox()
			select {
			case <-box.gone:
			case <-b.base.Done():
				return
			}
			switch {
			case s.settled(b.base) != nil: // we are closed
				return
			case s.sandbox() != box: // another connection has taken its place
			case box.conn.HungUp():
				return
			default:
				if s.full() {
					b.endSession(s)
				}
				return
			}
		}
	})
}
