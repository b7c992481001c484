package sessions

import (
	"fmt"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Session is a Session whose sandbox is there, as far as is known: one that opens, is active, or is lost with a sandbox that a
// restart can bring back.
type Session struct {
	// ID, Owner, Backend, Language and Limits never change.
	ID, Owner, Backend string
	Language           executor.Language
	Limits             executor.Limits

	registry *Registry
	// home holds the sandbox; nil: its backend is not configured any more.
	home Home

	// checking has one element while the backend is asked whether it still has the sandbox.
	checking chan struct{}
	// saving is held while the Store is written.
	saving sync.Mutex

	// The rest is guarded by the Registry's lock.

	// rec is the Session's record. It is newer than the Store's: a change of LastUsed alone is written once a minute.
	rec executor.SessionRecord
	// saved is the LastUsed that the Store has.
	saved time.Time
	// verified: the sandbox was seen since the server started.
	verified bool
	line     []*Turn
	current  *Turn
	// closing is a turn that has ended except for its log. No turn is granted before the log is closed.
	closing *Turn
	// files counts the file operations under way.
	files int
	// clock ends a Session that is idle, or lives, for too long.
	clock *time.Timer
	// closed is made when the Session begins to close, and closed when that is done.
	closed chan struct{}
	// reason is why the Session ends, set where that ends an Execution, and ending is the status: the view has both before that
	// Execution has ended. Otherwise the view has them when the end is there.
	reason string
	ending executor.SessionStatus
}

// newSession returns a Session that has joined its home. It leaves when it is taken out of what is open.
func newSession(r *Registry, rec executor.SessionRecord, home Home) *Session {
	if home != nil {
		home.Join()
	}
	return &Session{
		ID: rec.ID, Owner: rec.Owner, Backend: rec.Backend, Language: rec.Language, Limits: rec.Limits, registry: r, rec: rec, home: home,
		checking: make(chan struct{}, 1),
	}
}

// Network returns the mode that the Session was opened with.
func (s *Session) Network() executor.Network {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return s.rec.Spec.Network
}

// End is the cause with which the Executions of a Session are told to end.
type End struct {
	// Status of those that end: killed (restart, close) or lost.
	Status  executor.Status
	Message string
}

// Error implements error.
func (e *End) Error() string { return e.Message }

func lostEnd(reason string) *End {
	return &End{executor.StatusLost, "its session was lost: " + reason}
}

// Lost is the end of an Execution whose Session was found to be lost.
func (s *Session) Lost() *End {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return lostEnd(s.rec.Reason)
}

// brief returns a copy of s with its Spec in brief, as an owner sees it.
func brief(s executor.Session) executor.Session {
	s.Spec = s.Spec.Brief()
	return s.Clone()
}

// Home returns where the sandbox is; nil: its backend is not configured any more.
func (s *Session) Home() Home { return s.home }

// View returns what the owner sees.
func (s *Session) View() executor.Session {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return s.viewLocked()
}

func (s *Session) viewLocked() executor.Session {
	view := brief(s.rec.Session)
	for _, t := range s.line {
		if t.run != nil {
			view.Waiting++
		}
	}
	switch t := s.current; {
	case t == nil || t.run == nil:
	case t.running:
		view.Running = t.run.ID()
	default:
		view.Waiting++
	}
	if at := s.dueLocked(); !s.busyLocked() {
		view.ExpiresAt = at
	}
	if s.reason != "" {
		view.Status, view.Reason, view.ExpiresAt = s.ending, s.reason, time.Time{}
	}
	return view
}

func (s *Session) busyLocked() bool {
	return s.current != nil || len(s.line) > 0 || s.files > 0 || s.rec.Status == executor.SessionUnknown
}

// dueLocked returns when s is closed unless it is used; zero means never.
func (s *Session) dueLocked() time.Time {
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

// armLocked sets the clock for the moment when s is due.
func (s *Session) armLocked() {
	if s.clock != nil {
		s.clock.Stop()
	}
	due := s.dueLocked()
	if due.IsZero() || s.closed != nil || s.registry.open[s.ID] != s || s.registry.draining {
		return
	}
	s.clock = time.AfterFunc(max(0, time.Until(due)), s.expire)
}

// expire closes s if it is due.
func (s *Session) expire() {
	r := s.registry
	r.mu.Lock()
	due, now := s.dueLocked(), time.Now()
	if r.draining || s.closed != nil || due.IsZero() {
		r.mu.Unlock()
		return
	}
	if now.Before(due) {
		s.armLocked()
		r.mu.Unlock()
		return
	}
	reason := fmt.Sprintf("it was not used for %s", s.rec.IdleTimeout)
	if life := s.rec.MaxLife; life > 0 && !now.Before(s.rec.CreatedAt.Add(life)) {
		reason = fmt.Sprintf("its life of %s is over", life)
	}
	r.mu.Unlock()
	if s.beginClose(reason) {
		r.metrics.expired.Inc()
	}
}

// usedLocked notes a use that has just ended.
func (s *Session) usedLocked() { s.rec.LastUsed = time.Now().UTC().Round(0) }

// save writes s's record. A failure is logged; the next change writes again.
func (s *Session) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	r := s.registry
	r.mu.Lock()
	rec := s.rec.Clone()
	r.mu.Unlock()
	if r.update(s.ID, func(stored *executor.SessionRecord) { *stored = rec }) != nil {
		return
	}
	r.mu.Lock()
	s.saved = rec.LastUsed
	r.mu.Unlock()
}

// Ran notes what a Run that was handed to the backend has done to its Session. It is called before the Run's turn ends.
func (s *Session) Ran(result executor.Result) {
	r := s.registry
	r.mu.Lock()
	s.usedLocked()
	restarted := result.SessionState == executor.SessionStateRestarted
	if restarted {
		s.rec.Restarts++
	}
	r.mu.Unlock()
	switch {
	case restarted:
		s.save()
	case result.SessionState == executor.SessionStateLost:
		s.lose(interpreterEnd(result), false)
	case result.Status == executor.StatusLost:
		r.Look()
	}
}

func interpreterEnd(r executor.Result) string {
	switch {
	case r.Status == executor.StatusLost && r.Failure != nil:
		return r.Failure.Message
	case r.Status == executor.StatusOutOfMemory:
		return "its interpreter ran out of memory"
	case r.Signal != "":
		return "its interpreter was ended by " + r.Signal
	case r.ExitCode != nil:
		return fmt.Sprintf("its interpreter ended with exit code %d", *r.ExitCode)
	}
	return "its interpreter died"
}

// explain returns what a caller gets of err. Where s was lost or closed meanwhile, that is the answer.
func (s *Session) explain(doing string, err error) error {
	s.registry.mu.Lock()
	code := executor.CodeOf(err)
	switch gone := s.rec.Status != executor.SessionActive; {
	case gone && code == executor.NotFound, s.rec.Status == executor.SessionClosed && code == executor.Unavailable:
		err = ErrNotActive(s.rec.Session)
	case s.closed != nil && code == executor.Unavailable: // to try again would not help
		err = s.refusalLocked()
	}
	s.registry.mu.Unlock()
	return s.registry.options.Internal(doing, err)
}
