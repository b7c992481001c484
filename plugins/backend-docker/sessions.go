package dockerbackend

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

var _ executor.SessionBackend = (*Backend)(nil)

// sessionLife bounds the claim on disk of a Session that has no MaxLife.
const sessionLife = 30 * 24 * time.Hour

// closeTime bounds the end of a session by its runner. After that the container is killed.
const closeTime = 15 * time.Second

// session is an open Session: a container that serves nothing else.
type session struct {
	*backend.Session
	language executor.Language
	spec     executor.Spec
	// python is the path of the image's interpreter, and version its version.
	python  string
	version string
	digest  string
	memory  int64 // the limit in bytes
	// pooled reports whether the sandbox was claimed from the pool, in this life of the plugin.
	pooled bool
	// full reports whether a sandbox that is gone ran out of memory; see watch.
	full func() bool

	mu  sync.Mutex
	box *sandbox
	// moving is not nil while the connection to the sandbox is replaced. It is closed when that is done.
	moving chan struct{}
	// requirements is the text of all requests so far, packages what it resolved to. added counts the calls of AddRequirements.
	requirements string
	packages     []string
	added        int
}

// sandbox returns the present connection to the container.
func (s *session) sandbox() *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box
}

// gone reports whether the container has ended. While the connection is replaced, its end means nothing.
func (s *session) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moving == nil && s.box.ended()
}

// settled waits until no connection is being replaced.
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
		return executor.Errorf(executor.Unavailable, "session %s: %w", s.ID, context.Cause(ctx))
	}
}

func (s *session) conn() *runner.Conn { return s.sandbox().conn }

func (s *session) resolved() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.packages)
}

// fullSessions remembers which Sessions ran out of memory last, in this life of the plugin. It is safe for concurrent use.
type fullSessions struct {
	mu  sync.Mutex
	ids []string
}

// maxFull bounds the remembered ids.
const maxFull = 1000

func (f *fullSessions) add(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, id)
	f.ids = f.ids[max(0, len(f.ids)-maxFull):]
}

func (f *fullSessions) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.ids, id)
}

// sessionHandle is the content of OpenedSession.Handle, by which a Session's sandbox is found again.
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

func newSession(asked executor.Session) *session {
	return &session{
		Session: backend.NewSession(asked.ID), language: cmp.Or(asked.Language, executor.LanguagePython), spec: asked.Spec,
		memory: asked.Limits.MemoryBytes, requirements: asked.Spec.Requirements,
	}
}

// claimed records on disk which Execution or Session has a container.
func (b *Backend) claimed(id, container string, life time.Duration) {
	if err := b.claims.add(id, container, time.Now().Add(life)); err != nil {
		b.log.Warn("write a claim: after a crash the container ends by its silence", "error", err)
	}
}

// session returns an open Session. Codes: not_found, unavailable.
func (b *Backend) session(ctx context.Context, id string) (*session, error) {
	s, err := b.sessions.Get(ctx, id)
	if err == nil {
		err = s.settled(ctx)
	}
	if err == nil && s.gone() {
		s.full() // ask now: the daemon forgets the reason
		b.endSession(s)
		err = backend.NotHeld(id)
	}
	return s, err
}

// useConn returns the connection of an open Session, for backend.Calls.
func (b *Backend) useConn(ctx context.Context, id string) (backend.Conn, func(error) error, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return s.conn(), func(err error) error { return b.said(s, err) }, nil
}

// endSession ends everything in a Session and removes its container. It is idempotent; a later call waits for the first.
func (b *Backend) endSession(s *session) {
	s.Once(func() {
		if box := s.sandbox(); box != nil {
			// The programs end now; the container is removed in the background.
			ctx, cancel := context.WithTimeoutCause(context.Background(), closeTime, errSilent)
			if err := box.conn.CloseSession(ctx); err != nil && !box.ended() {
				b.log.Warn("close a session's runner", "session", s.ID, "error", err)
				_ = b.daemon.remove(ctx, box.id) // discard tries again and logs failures
			}
			cancel()
			b.factory.discard(box)
			if s.pooled {
				b.pool.done(box.class)
			}
			b.claims.drop(s.ID)
		}
		b.sessions.Remove(s)
	})
}

// leaveSessions ends all Sessions, or lets them go: then they can be adopted for Config.SilenceSeconds.
func (b *Backend) leaveSessions(letGo bool) {
	b.sessions.Close(func(s *session, err error) {
		if !letGo || err != nil {
			b.endSession(s)
			return
		}
		s.Once(func() {
			_ = s.conn().Detach() // the connection has no further use
			b.sessions.Remove(s)
		})
	})
}

// CloseSession implements executor.SessionBackend. It also closes a Session that an earlier life of this plugin left.
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

// said returns the error of a call to the runner. If the runner is gone, said ends the Session.
func (b *Backend) said(s *session, err error) error {
	if err != nil && s.gone() {
		full := s.full()
		b.endSession(s)
		if full {
			return errFull(s.ID)
		}
		return executor.Errorf(executor.Unavailable, "session %s: its runner is gone: %w", s.ID, err)
	}
	return err
}

// errFull returns the error of a Session whose container ran out of memory.
func errFull(id string) error {
	return executor.Errorf(executor.Exhausted, "session %s: its container ran out of memory, and is gone", id)
}

// watch waits for the end of the container of s, and asks the daemon whether the container ran out of memory. If so, it ends s,
// even if no call uses s. The daemon remembers the reason only for a while. watch is called before s is ready.
func (b *Backend) watch(s *session) {
	s.full = sync.OnceValue(func() bool {
		full := b.factory.full(b.base, s.sandbox().id)
		if full {
			b.log.Warn("a session's container ran out of memory", "session", s.ID)
			b.full.add(s.ID)
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
			case s.settled(b.base) != nil: // the backend is closed
				return
			case s.sandbox() != box: // the connection was replaced
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
