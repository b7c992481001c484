package sessions

import (
	"context"
	"errors"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// Run is an Execution that runs in a Session. A Registry calls Proceed and Stop without its own lock.
type Run interface {
	ID() string
	// Proceed tells the Run that it has the turn and may wait for a slot.
	Proceed()
	// Stop tells the Run to end with cause.
	Stop(cause error)
}

// Turn is a claim on a Session's interpreter. The methods take the Registry's lock, and the engine may hold its own lock when it
// calls them. Those that may grant the turn of another Run return that Run, nil for none: the engine then does what Proceed does.
// A nil Turn is of a Run in no Session; its methods do nothing.
type Turn struct {
	session *Session
	// run is the Execution that has the Turn. It is nil for a tool, whose work ends with stop and which waits for granted.
	run     Run
	stop    context.CancelCauseFunc
	granted chan struct{}
	// first: the Turn is of a restart or a close. It goes before all others, also in a lost Session.
	first bool
	// ready: the Turn may be granted. One that is not ready holds up those behind it, unless its input is still being uploaded.
	ready     bool
	uploading bool
	// running: the Run has a slot.
	running bool
	// refused is why the Turn will never be granted. It is set before granted is closed.
	refused error
}

// ErrFull is returned by Join where too many wait for the Session.
var ErrFull = errors.New("too many wait for the session")

// Full names the bound of ErrFull.
const Full = "what waits in the session"

// Join gives run a Turn at the end of s's line. It calls start with its lock held; start must not call this package. free reports
// whether run may have the turn at once; started, that run has a slot, which gives it the turn. The engine may hold its lock.
// Codes: conflict (s takes nothing new), and start's; ErrFull.
func (s *Session) Join(run Run, uploading bool, start func(free bool) (started bool, err error)) (*Turn, error) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	if err := s.refusalLocked(); err != nil {
		return nil, err
	}
	if s.fullLocked() {
		return nil, ErrFull
	}
	started, err := start(s.freeLocked() && s.closing == nil)
	if err != nil {
		return nil, err
	}
	t := &Turn{session: s, run: run, uploading: uploading, running: started}
	if started {
		s.current = t
	} else {
		s.line = append(s.line, t)
	}
	s.armLocked()
	return t, nil
}

// Rejoin gives an Execution of an earlier life of the server a Turn in the Session with this id: the turn itself if it was running.
// It is called in the order of their Submit. A reason says why the Execution can run there no more; where the Session is gone,
// there is no Session either.
func (r *Registry) Rejoin(id string, run Run, running bool) (s *Session, t *Turn, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = r.open[id]
	if s == nil {
		return nil, nil, "its session is gone"
	}
	if s.rec.Status != executor.SessionActive {
		reason = "its session is " + string(s.rec.Status) + ": " + s.rec.Reason
	}
	t = &Turn{session: s, run: run}
	if running && s.current == nil {
		s.current, t.running = t, true
		s.armLocked()
	} else {
		s.line = append(s.line, t)
	}
	return s, t, reason
}

// Wait lets t's Run wait for its turn, and then for a slot.
func (t *Turn) Wait() (next Run) {
	r := t.session.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.session.current == t {
		return t.run
	}
	t.ready, t.uploading = true, false
	return t.session.advanceLocked()
}

// SetRunning notes whether t's Run has a slot.
func (t *Turn) SetRunning(running bool) {
	if t == nil {
		return
	}
	t.session.registry.mu.Lock()
	defer t.session.registry.mu.Unlock()
	t.running = running
}

// Leave ends t, or takes it out of the line. Idempotent.
func (t *Turn) Leave() (next Run) {
	if t == nil {
		return nil
	}
	r := t.session.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.leaveLocked()
}

// Finish ends t for its Session's view. With hold, no other turn is granted before Leave. Idempotent.
func (t *Turn) Finish(hold bool) (next Run) {
	if t == nil {
		return nil
	}
	s := t.session
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	if hold && s.current == t {
		s.current, s.closing = nil, t
		return nil
	}
	return t.leaveLocked()
}

func (t *Turn) leaveLocked() (next Run) {
	s := t.session
	s.line = slices.DeleteFunc(s.line, func(other *Turn) bool { return other == t })
	if s.current == t {
		s.current = nil
	}
	if s.closing == t {
		s.closing = nil
	}
	return s.advanceLocked()
}

// refusalLocked says why nothing new may wait for s; nil if it may.
func (s *Session) refusalLocked() error {
	switch {
	case s.closed != nil:
		return executor.FieldErrorf(executor.Conflict, "session", "%s is being closed", s.ID)
	case s.registry.open[s.ID] != s, s.rec.Status != executor.SessionActive:
		return ErrNotActive(s.rec.Session)
	}
	return nil
}

// freeLocked reports whether nobody has the turn and only Runs whose input is being uploaded wait for it. A turn that is closing
// does not count: its Execution has ended for all who look at it.
func (s *Session) freeLocked() bool {
	return s.current == nil && !slices.ContainsFunc(s.line, func(t *Turn) bool { return !t.uploading })
}

// fullLocked reports whether nothing more may wait.
func (s *Session) fullLocked() bool {
	return !s.freeLocked() && len(s.line) >= s.registry.options.Rules.MaxWaiting
}

// advanceLocked grants the next turn, if nobody has it. Where a Run gets it, it is returned.
func (s *Session) advanceLocked() (next Run) {
	defer s.armLocked()
	if s.current != nil || s.closing != nil {
		return nil
	}
	for i, t := range s.line {
		switch {
		case t.uploading:
			continue
		case !t.ready, !t.first && (s.rec.Status != executor.SessionActive || s.closed != nil):
			return nil
		}
		s.line = slices.Delete(s.line, i, i+1)
		s.current = t
		if t.run == nil {
			close(t.granted)
		}
		return t.run
	}
	return nil
}

// unlock gives the Registry's lock back, stops the Runs in stop, and lets next proceed.
func (r *Registry) unlock(stop []Run, cause error, next Run) {
	r.mu.Unlock()
	for _, run := range stop {
		run.Stop(cause)
	}
	if next != nil {
		next.Proceed()
	}
}

// refuseLocked takes all out of the line but a restart and a close. It refuses the tools and returns the Runs, which the caller
// stops; among them is the one that has its turn but no slot.
func (s *Session) refuseLocked(end *End) (stop []Run) {
	for _, t := range s.line {
		switch {
		case t.first:
		case t.run != nil:
			stop = append(stop, t.run)
		default:
			t.refuseLocked(executor.FieldErrorf(executor.Conflict, "session", "%s: %s", s.ID, end.Message))
		}
	}
	s.line = slices.DeleteFunc(s.line, func(t *Turn) bool { return !t.first })
	if t := s.current; t != nil && t.run != nil && !t.running {
		stop = append(stop, t.run)
	}
	return stop
}

func (t *Turn) refuseLocked(err error) {
	t.refused = err
	close(t.granted)
}

// interruptLocked tells a tool that has the turn to end. It returns the Run that has it, which the caller stops.
func (s *Session) interruptLocked(cause error) (stop []Run) {
	switch t := s.current; {
	case t == nil || t.first:
	case t.run == nil:
		t.stop(cause)
	default:
		return []Run{t.run}
	}
	return nil
}

// take waits for a turn in s for a tool. work ends with ctx, and when the tool is told to stop. release gives the turn back.
func (s *Session) take(ctx context.Context) (work context.Context, release func(), err error) {
	r := s.registry
	work, stop := context.WithCancelCause(ctx)
	t := &Turn{session: s, stop: stop, granted: make(chan struct{}), ready: true}
	r.mu.Lock()
	err = s.refusalLocked()
	full := err == nil && s.fullLocked()
	if err != nil || full {
		r.mu.Unlock()
		stop(nil)
		if full {
			err = r.options.Full(Full)
		}
		return nil, nil, err
	}
	s.line = append(s.line, t)
	r.unlock(nil, nil, s.advanceLocked())
	if err := t.await(ctx); err != nil {
		stop(nil)
		return nil, nil, err
	}
	return work, func() {
		stop(nil)
		r.mu.Lock()
		s.usedLocked()
		r.unlock(nil, nil, t.leaveLocked())
	}, nil
}

// await returns when t is granted, or says why it is not.
func (t *Turn) await(ctx context.Context) error {
	r := t.session.registry
	select {
	case <-t.granted:
		return t.refused
	case <-ctx.Done():
	case <-r.options.Base.Done():
		ctx = r.options.Base
	}
	r.mu.Lock()
	r.unlock(nil, nil, t.leaveLocked())
	return executor.Errorf(executor.Unavailable, "wait for the session: %w", context.Cause(ctx))
}

// firstLocked puts a Turn before all others of s.
func (s *Session) firstLocked(stop context.CancelCauseFunc) *Turn {
	t := &Turn{session: s, stop: stop, granted: make(chan struct{}), first: true, ready: true}
	s.line = slices.Insert(s.line, 0, t)
	return t
}
