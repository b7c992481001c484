package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// sessionForm is "ctx-" and a UUIDv4.
var sessionForm = regexp.MustCompile(`^ctx-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func newSessionID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("ctx-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// sessionRules are config.Sessions in the Engine's units.
type sessionRules struct {
	most, perOwner, waiting int
	evict                   time.Duration
	idle, life, kept        time.Duration
	fileBytes               int64
	preload                 []string
}

func newSessionRules(c config.Sessions) sessionRules {
	return sessionRules{
		most: c.Max, perOwner: c.MaxPerOwner, waiting: c.MaxWaiting,
		evict: time.Duration(c.EvictIdleSeconds * float64(time.Second)),
		idle:  c.IdleTimeout(), life: c.MaxLife(), kept: c.KeepClosed(), fileBytes: c.MaxFileBytes, preload: c.Preload,
	}
}

// session is a Session whose sandbox is there, as far as is known: one that opens, is active, or lost with a sandbox that
// can be brought back. All others are in the Store only.
//
// Who wants to use its interpreter, an Execution or a tool, takes a turn. An Execution first waits for its turn here,
// holding no slot, and only then in the Engine's queue: so slots are never held by who waits for a Session, and no two can
// wait for each other.
type session struct {
	engine  *Engine
	id      string
	owner   string
	backend string

	// checking is held while the backend is asked whether it still has the sandbox, saving while the Store is written.
	checking sync.Mutex
	saving   sync.Mutex

	// The rest is guarded by the Engine's lock.

	// rec is its record, newer than the Store's: LastUsed is written now and then only.
	rec executor.SessionRecord
	// saved is the LastUsed that the Store has.
	saved time.Time
	// verified: this life of the server has seen that the sandbox is there.
	verified bool
	line     []*turn
	current  *turn
	// closing is the turn that is over, but for its log: nobody has the next one before that is closed.
	closing *turn
	// files counts the file operations under way.
	files int
	// clock ends an idle or too long life.
	clock *time.Timer
	// closed is made when it begins to close, and closed when that is done. reason is why, if that ends something: then it is
	// closed for who looks before what it has ended is seen to have. Else it is when its place is free.
	closed chan struct{}
	reason string
}

// turn is a claim on a Session's interpreter.
type turn struct {
	session *session
	// x is the Execution that has it; nil: a tool's, whose work ends with stop and which is told by granted.
	x       *execution
	stop    context.CancelCauseFunc
	granted chan struct{}
	// first: it goes before all others and in a lost Session, too: a restart or a close.
	first bool
	// ready: it may be granted. One that is not holds up those behind it, unless its input is still being uploaded.
	ready     bool
	uploading bool
	// refused is why it will never be granted.
	refused error
}

// sessionEnd is the cause with which the Executions of a Session are told to end.
type sessionEnd struct {
	// status of those that end: killed (restart, close) or lost.
	status  executor.Status
	message string
}

// Error implements error.
func (s *sessionEnd) Error() string { return s.message }

func errNoSession(id string) error {
	return executor.FieldErrorf(executor.NotFound, "session", "no session has the id %s", clip(id, 64))
}

// errNotActive says why nothing can be done in a Session with this record.
func errNotActive(rec executor.Session) error {
	message := "is " + string(rec.Status)
	if rec.Reason != "" {
		message += ": " + rec.Reason
	}
	return executor.FieldErrorf(executor.Conflict, "session", "%s %s", rec.ID, message)
}

// ownSession returns the record of a Session that the Principal in ctx may use, and what is open of it, nil if nothing.
func (e *Engine) ownSession(ctx context.Context, id string, scope executor.Scope) (*session, executor.Session, error) {
	p := executor.PrincipalFrom(ctx)
	if err := needs(p, scope); err != nil {
		return nil, executor.Session{}, err
	}
	if !sessionForm.MatchString(id) {
		return nil, executor.Session{}, errNoSession(id)
	}
	mine := func(owner string) bool { return owner == p.Owner || p.Has(executor.ScopeAdmin) }
	e.mu.Lock()
	s := e.sessions[id]
	if s != nil && s.rec.Status != executor.SessionUnknown && mine(s.owner) {
		view := s.viewLocked()
		e.mu.Unlock()
		return s, view, nil
	}
	e.mu.Unlock()
	rec, err := e.store.GetSessionRecord(ctx, id)
	switch {
	case executor.CodeOf(err) == executor.NotFound:
		return nil, executor.Session{}, errNoSession(id)
	case err != nil:
		return nil, executor.Session{}, e.internal("get a session", err)
	case !mine(rec.Owner):
		return nil, executor.Session{}, errNoSession(id)
	}
	return nil, briefSession(rec.Session), nil
}

// briefSession returns a copy of s with its Spec in brief, as an owner sees it.
func briefSession(s executor.Session) executor.Session {
	s.Spec = s.Spec.Brief()
	return s.Clone()
}

// activeSession is ownSession of one that can be used now. Codes: conflict (lost, closed).
func (e *Engine) activeSession(ctx context.Context, id string) (*session, executor.Session, error) {
	s, view, err := e.ownSession(ctx, id, executor.ScopeExec)
	if err == nil && (s == nil || view.Status != executor.SessionActive) {
		err = errNotActive(view)
	}
	return s, view, err
}

// viewLocked is what an owner sees. The caller holds the lock.
func (s *session) viewLocked() executor.Session {
	view := briefSession(s.rec.Session)
	for _, t := range s.line {
		if t.x != nil {
			view.Waiting++
		}
	}
	if t := s.current; t != nil && t.x != nil {
		if t.x.state == stateActive {
			view.Running = t.x.id
		} else {
			view.Waiting++
		}
	}
	if at := s.dueLocked(); !s.busyLocked() {
		view.ExpiresAt = at
	}
	if s.reason != "" {
		view.Status, view.Reason, view.ExpiresAt = executor.SessionClosed, s.reason, time.Time{}
	}
	return view
}

func (s *session) busyLocked() bool {
	return s.current != nil || len(s.line) > 0 || s.files > 0 || s.rec.Status == executor.SessionUnknown
}

// dueLocked is when s is closed unless it is used; zero: never. The caller holds the lock.
func (s *session) dueLocked() time.Time {
	var due time.Time
	if life := s.rec.MaxLife; life > 0 {
		due = s.rec.CreatedAt.Add(life)
	}
	if idle := s.rec.IdleTimeout; idle > 0 && !s.busyLocked() {
		if at := s.rec.LastUsed.Add(idle); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// armLocked sets the clock for the moment when s is due. The caller holds the lock.
func (s *session) armLocked() {
	if s.clock != nil {
		s.clock.Stop()
	}
	due := s.dueLocked()
	if due.IsZero() || s.closed != nil || s.engine.sessions[s.id] != s || s.engine.phase == closed {
		return
	}
	s.clock = time.AfterFunc(max(0, time.Until(due)), s.expire)
}

// expire closes s if it is due.
func (s *session) expire() {
	e := s.engine
	e.mu.Lock()
	due := s.dueLocked()
	if e.phase != serving || s.closed != nil || due.IsZero() {
		e.mu.Unlock()
		return
	}
	if time.Now().Before(due) {
		s.armLocked()
		e.mu.Unlock()
		return
	}
	reason := fmt.Sprintf("it was not used for %s", s.rec.IdleTimeout)
	if life := s.rec.MaxLife; life > 0 && !time.Now().Before(s.rec.CreatedAt.Add(life)) {
		reason = fmt.Sprintf("its life of %s is over", life)
	}
	e.mu.Unlock()
	if s.beginClose(reason) {
		e.metrics.sessionsExpired.Inc()
	}
}

// usedLocked notes a use that has just ended. The caller holds the lock.
func (s *session) usedLocked() { s.rec.LastUsed = time.Now().UTC().Round(0) }

// saveInterval is how old the Store's LastUsed may be.
const saveInterval = time.Minute

// save writes s's record. What cannot be written is tried again with the next change.
func (s *session) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	e := s.engine
	e.mu.Lock()
	rec := s.rec.Clone()
	e.mu.Unlock()
	ctx, cancel := storeContext(e.base)
	defer cancel()
	_, err := e.store.UpdateSession(ctx, s.id, func(r *executor.SessionRecord) { *r = rec })
	if err != nil {
		e.log.Error("session not written", "session", s.id, "error", err)
		return
	}
	e.mu.Lock()
	s.saved = rec.LastUsed
	e.mu.Unlock()
}

// GetSession implements executor.Sessions.
func (e *Engine) GetSession(ctx context.Context, id string) (executor.Session, error) {
	_, view, err := e.ownSession(ctx, id, executor.ScopeRead)
	return view, err
}

// ListSessions implements executor.Sessions. With ScopeAdmin it lists everybody's.
func (e *Engine) ListSessions(ctx context.Context) ([]executor.Session, error) {
	p := executor.PrincipalFrom(ctx)
	if err := needs(p, executor.ScopeRead); err != nil {
		return nil, err
	}
	owner := p.Owner
	if p.Has(executor.ScopeAdmin) {
		owner = ""
	}
	recs, err := e.store.ListSessionRecords(ctx, owner)
	if err != nil {
		return nil, e.internal("list sessions", err)
	}
	list := make([]executor.Session, 0, len(recs))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rec := range recs {
		view := briefSession(rec.Session)
		if s := e.sessions[rec.ID]; s != nil && s.rec.Status != executor.SessionUnknown {
			view = s.viewLocked()
		}
		list = append(list, view)
	}
	return list, nil
}

// sessionsOf returns the open Sessions that keep keeps, by age.
func (e *Engine) sessionsOf(keep func(*session) bool) []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*session
	for _, s := range e.sessions {
		if s.rec.Status != executor.SessionUnknown && keep(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *session) int { return a.rec.CreatedAt.Compare(b.rec.CreatedAt) })
	return list
}

// ask calls f, somebody else's code, for at most limit, and gives it up when it does not heed its ctx.
func ask[T any](ctx context.Context, e *Engine, what string, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New(what+" took too long"))
	answers, returned := call(func() (T, error) { return f(ctx) })
	return await(ctx, cancel, e, what, answers, returned)
}

func await[T any](ctx context.Context, cancel context.CancelFunc, e *Engine, what string, answers <-chan answer[T], returned <-chan struct{}) (T, error) {
	defer cancel()
	select {
	case got := <-answers:
		return got.value, got.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(e.deadlines.Stop)
	defer timer.Stop()
	select {
	case got := <-answers:
		if got.err != nil && executor.CodeOf(got.err) == executor.Internal {
			got.err = executor.Errorf(executor.Unavailable, "%s: %w", what, context.Cause(ctx))
		}
		return got.value, got.err
	case <-timer.C:
		e.stray(returned, what)
		e.log.Error("a backend does not return", "doing", what)
		var none T
		return none, executor.Errorf(executor.Unavailable, "%s: %w", what, context.Cause(ctx))
	}
}
