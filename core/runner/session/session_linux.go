package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// Session is a folder, control groups, and an interpreter in them, which outlive an Execution.
type Session struct {
	sandbox *sandbox.Sandbox
	Start   protocol.SessionStart
	Driver  drivers.Driver
	Folder  *sandbox.Folder
	root    *os.Root
	making  sync.Mutex // held while folders for a file are made or taken back
	waiting *Waiting   // until the first interpreter starts; nil: a new one is the first
	// group limits all of the session. Each process tree has a group of its own below it.
	group  *sandbox.Group
	Bound  *sandbox.MemoryBound // nil: the kernel's limit of group does it
	Reaper *sandbox.Children
	// turn holds one token: the right to use the interpreter.
	turn chan struct{}
	// seen belongs to the holder of the turn.
	seen seenFiles

	mu     sync.Mutex
	env    map[string]string
	paths  []string
	interp *Interpreter // nil: it died and was not restarted
	busy   func()       // ends what runs in it at once; nil: nothing runs
	ending error        // why what runs is to be killed: a restart or the end
	cells  int64
	closed bool
}

var (
	ErrRestarting = errors.New("the session is restarted")
	ErrClosing    = errors.New("the session is closed")
)

// Open opens a session: its folder, its control groups and its interpreter. It takes of ready what fits. waiting is the first interpreter,
// or nil. ctx bounds the start.
func Open(ctx context.Context, b *sandbox.Sandbox, start protocol.SessionStart, ready *sandbox.Prepared, waiting *Waiting) (*Session, error) {
	driver, err := drivers.For(start.Language, start.Interpreter)
	if err != nil {
		return nil, errors.Join(executor.FieldErrorf(executor.Unimplemented, "language", "%v", err), ready.Remove())
	}
	s := &Session{
		sandbox: b, Start: start, Driver: driver, waiting: waiting, env: maps.Clone(start.Env), turn: make(chan struct{}, 1), group: &sandbox.Group{},
	}
	if err := s.makePlace(ready); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	s.Reaper = sandbox.NewChildren(b)
	if err := s.StartInterpreter(ctx); err != nil {
		return nil, errors.Join(err, s.end())
	}
	s.turn <- struct{}{}
	return s, nil
}

// makePlace makes the folder and the control groups, or takes those of ready.
func (s *Session) makePlace(ready *sandbox.Prepared) (err error) {
	cfg, limits := s.sandbox.Config, s.Start.Limits
	s.Folder, s.group, err = s.sandbox.MakePlace(ready, protocol.Start{Path: s.Start.Path, Reach: s.Start.Reach, Caches: s.Start.Caches, Limits: limits})
	if err = errors.Join(err, ready.Remove()); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if s.root, err = s.Folder.Open(); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	g := s.group
	if inside := s.sandbox.Inside; inside != nil && len(cfg.Cgroups) == 0 {
		g = inside.Group()
	}
	s.Bound = s.sandbox.Bound(g, s.Folder, limits)
	return nil
}

// NewGroup makes the control groups of one process tree.
func (s *Session) NewGroup() (*sandbox.Group, error) {
	g, err := sandbox.MakeGroup(s.group.Cgroups, s.sandbox.GroupName(), executor.Limits{})
	g.Bound, g.BoundBefore = s.Bound, s.Bound.Killed()
	if inside := s.sandbox.Inside; inside != nil && inside.Seen.Memory != "" {
		w := inside.Seen
		w.Begin()
		g.Kills = &w
	}
	return g, err
}

// MeterCPU measures the CPU time of what is in g from now on: a Command, or the interpreter and all that it has started. spared are the
// processes that are no part of it where g does not count.
func (s *Session) MeterCPU(g *sandbox.Group, spared map[int]bool) func() time.Duration {
	total := s.Reaper.Tree(spared).Used
	switch inside := s.sandbox.Inside; {
	case g.Counts():
		total = g.CPUTime
	case inside != nil && inside.Seen.Counts() && spared == nil:
		w := inside.Seen
		w.Begin()
		total = w.CPUTime
	}
	before := max(total(), 0)
	return func() time.Duration { return max(total()-before, 0) }
}

// environ returns the interpreter's environment.
func (s *Session) environ() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	env := map[string]string{}
	maps.Copy(env, s.env)
	maps.Copy(env, s.Driver.Env) // without it there is no session
	return sandbox.Environment(protocol.Start{Path: s.Start.Path, Env: env, Caches: s.Start.Caches}, s.Folder)
}

// VariablesOfCommands returns the environment variables that every Command has.
func (s *Session) VariablesOfCommands() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}

// NextCell returns the number of the next cell.
func (s *Session) NextCell() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells++
	return s.cells
}

// Now returns the interpreter, or nil if it has ended.
func (s *Session) Now() *Interpreter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interp
}

// Take waits for the turn. It fails when one of stop is closed first, or when the session is closed.
func (s *Session) Take(stop ...<-chan struct{}) error {
	var first, second <-chan struct{}
	if len(stop) > 0 {
		first = stop[0]
	}
	if len(stop) > 1 {
		second = stop[1]
	}
	select {
	case <-s.turn:
	case <-first:
		return protocol.ErrCancelled
	case <-second:
		return protocol.ErrCancelled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.turn <- struct{}{}
		return ErrClosing
	}
	return nil
}

func (s *Session) Give() { s.turn <- struct{}{} }

// takeByForce kills what runs and takes the turn.
func (s *Session) takeByForce(why error) error {
	s.mu.Lock()
	s.ending = why
	kill := s.busy
	s.mu.Unlock()
	if kill != nil {
		kill()
	}
	err := s.Take()
	s.mu.Lock()
	s.ending = nil
	s.mu.Unlock()
	return err
}

// Occupy notes that an Execution runs, which kill ends at once. It fails while the session is restarted or closed.
func (s *Session) Occupy(kill func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != nil {
		return s.ending
	}
	s.busy = kill
	return nil
}

func (s *Session) Vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = nil
}

func (s *Session) IsEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending != nil
}

// Restart starts the interpreter anew, because the host asks for it.
func (s *Session) Restart(ctx context.Context, wipe bool) error {
	if err := s.takeByForce(ErrRestarting); err != nil {
		return executor.Errorf(executor.NotFound, "%w", err)
	}
	defer s.Give()
	s.StopInterpreter()
	if wipe {
		if err := s.Folder.Wipe(); err != nil {
			return fmt.Errorf("wipe: %w", err)
		}
	}
	return s.StartInterpreter(ctx)
}

// Close ends the session.
func (s *Session) Close() error {
	err := s.takeByForce(ErrClosing)
	if errors.Is(err, ErrClosing) {
		return nil // another caller has closed it
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Give()
	return s.end()
}

// end kills all processes and removes all files and control groups.
func (s *Session) end() error {
	s.StopInterpreter()
	err := s.Reaper.Close(s.group)
	if err != nil {
		s.sandbox.Die(err) // the next Execution would share the place with it
	}
	return errors.Join(err, s.remove())
}

func (s *Session) remove() error {
	s.Bound.End()
	s.sandbox.ForgetConnections()
	var err error
	if s.root != nil {
		err = s.root.Close()
	}
	if s.Folder != nil {
		err = errors.Join(err, s.Folder.Remove()) // before the groups: a tmpfs counts in them
	}
	return errors.Join(err, s.group.Remove())
}

// Request is a host's request about the session that is served.
type Request struct {
	protocol.SessionCall
	Out    *protocol.Writer
	Ctx    context.Context
	Stop   context.CancelCauseFunc
	Body   *protocol.Inbox  // of a file that is written
	Credit *protocol.Credit // of a file that is read
}

var errStoppedCall = errors.New("the host has left")

// Abort ends the request. What still comes for it is dropped.
func (k *Request) Abort() {
	k.Stop(errStoppedCall)
	k.Body.Abort(errStoppedCall)
	k.Body.Swallow()
	k.Credit.Stop(errStoppedCall)
}
