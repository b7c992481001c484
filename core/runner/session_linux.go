package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// session is the sandbox that outlives an Execution: a folder, control groups, and an interpreter in them.
type session struct {
	agent  *agent
	start  SessionStart
	driver drivers.Driver
	folder *folder
	root   *os.Root
	making sync.Mutex // held while folders for a file are made or taken back
	// group binds everything in the session together; each process tree has one of its own below it.
	group  *group
	reaper *orphanage
	// turn is the right to use the interpreter: one token.
	turn chan struct{}
	// seen belongs to who has the turn.
	seen seenFiles

	mu     sync.Mutex
	env    map[string]string
	paths  []string
	interp *interpreter // nil: it died and was not restarted
	busy   *execution   // what runs in it
	ending error        // why what runs is to be killed: a restart or the end
	cells  int64
	closed bool
}

var (
	errRestarting = errors.New("the session is restarted")
	errClosing    = errors.New("the session is closed")
)

// openSession makes the sandbox and starts the interpreter. ctx bounds it.
func (a *agent) openSession(ctx context.Context, start SessionStart) (err error) {
	a.life.Lock()
	defer a.life.Unlock()
	driver, err := drivers.For(start.Language, start.Interpreter)
	if err != nil {
		return executor.FieldErrorf(executor.Unimplemented, "language", "%v", err)
	}
	a.mu.Lock()
	before, running := a.current, a.running
	open := a.session != nil
	a.mu.Unlock()
	if open || running {
		return executor.Errorf(executor.Conflict, "the runner has a session, or an Execution, already")
	}
	if start.Network && a.cfg.InNetworkNamespace {
		return executor.FieldErrorf(executor.Unimplemented, "network", "this runner has none")
	}
	s := &session{agent: a, start: start, driver: driver, env: maps.Clone(start.Env), turn: make(chan struct{}, 1), group: &group{}}
	if err := s.makePlace(before); err != nil {
		return errors.Join(err, s.remove())
	}
	s.reaper = newOrphanage(a)
	if err := s.startInterpreter(ctx); err != nil {
		return errors.Join(err, s.end())
	}
	s.turn <- struct{}{}
	a.mu.Lock()
	a.session = s
	a.mu.Unlock()
	return nil
}

// makePlace makes the folder and the groups, or takes what the Execution before has prepared.
func (s *session) makePlace(before *execution) (err error) {
	cfg, limits := s.agent.cfg, s.start.Limits
	var ready *ahead
	if before != nil {
		<-before.cleaned
		ready = before.takeNext()
	}
	if s.folder, err = ready.takeFolder(limits); err == nil && s.folder == nil {
		s.folder, err = makeFolder(cfg, s.agent.disk, limits.DiskBytes)
	}
	if err == nil {
		err = s.folder.reach(Start{Path: s.start.Path, Reach: s.start.Reach})
	}
	if g := ready.takeGroup(limits); g != nil {
		s.group = g
	} else if err == nil {
		s.group, err = makeGroup(cfg.Cgroups, s.agent.groupName(), limits)
	}
	if err = errors.Join(err, ready.remove()); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if s.root, err = os.OpenRoot(s.folder.path); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// place makes the groups of one process tree in the session.
func (s *session) place() (*group, error) {
	g, err := makeGroup(s.group.Cgroups, s.agent.groupName(), executor.Limits{})
	g.home = s.agent.cfg.Cgroups // where the forking thread lives, not the session's own
	if inside := s.agent.inside; inside != nil && inside.seen.memory != "" {
		w := inside.seen
		w.begin()
		g.kills = &w
	}
	return g, err
}

// environ is what the interpreter sees.
func (s *session) environ() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	env := map[string]string{}
	maps.Copy(env, s.env)
	maps.Copy(env, s.driver.Env) // without it there is no session
	return environment(Start{Path: s.start.Path, Env: env}, s.folder)
}

// now returns the interpreter; nil: it died.
func (s *session) now() *interpreter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interp
}

// take waits for the turn.
func (s *session) take(stop ...<-chan struct{}) error {
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
		return errCancelled
	case <-second:
		return errCancelled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.turn <- struct{}{}
		return errClosing
	}
	return nil
}

func (s *session) give() { s.turn <- struct{}{} }

// takeByForce kills what runs, which then gives the turn.
func (s *session) takeByForce(why error) error {
	s.mu.Lock()
	s.ending = why
	x, i := s.busy, s.interp
	s.mu.Unlock()
	if x != nil {
		x.cancel()
		x.force()
		if i != nil && x.isCell() {
			i.kill()
		}
	}
	err := s.take()
	s.mu.Lock()
	s.ending = nil
	s.mu.Unlock()
	return err
}

// occupy notes that x runs; it fails when the session is being restarted or closed.
func (s *session) occupy(x *execution) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != nil {
		return s.ending
	}
	s.busy = x
	return nil
}

func (s *session) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = nil
}

func (s *session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending != nil
}

// restart starts the interpreter anew, on request.
func (s *session) restart(ctx context.Context, wipe bool) error {
	if err := s.takeByForce(errRestarting); err != nil {
		return executor.Errorf(executor.NotFound, "%w", err)
	}
	defer s.give()
	s.stopInterpreter()
	if wipe {
		if err := s.folder.wipe(); err != nil {
			return fmt.Errorf("wipe: %w", err)
		}
	}
	return s.startInterpreter(ctx)
}

// close ends the session for good.
func (s *session) close() error {
	err := s.takeByForce(errClosing)
	if errors.Is(err, errClosing) {
		return nil // somebody else did
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.give()
	return s.end()
}

// end kills everything and gives everything back.
func (s *session) end() error {
	s.stopInterpreter()
	err := s.reaper.close(s.group)
	if err != nil {
		s.agent.die(err) // the next Execution would share the place with it
	}
	return errors.Join(err, s.remove())
}

func (s *session) remove() error {
	var err error
	if s.root != nil {
		err = s.root.Close()
	}
	if s.folder != nil {
		err = errors.Join(err, s.folder.remove()) // before the groups: a tmpfs counts in them
	}
	return errors.Join(err, s.group.remove())
}

// endSession ends the session at hand, or the one that is being opened, if there is one.
func (a *agent) endSession() {
	a.calls.forget() // what is at work is about that one, too
	a.life.Lock()
	defer a.life.Unlock()
	a.mu.Lock()
	s := a.session
	a.session = nil
	a.mu.Unlock()
	if s == nil {
		return
	}
	if err := s.close(); err != nil {
		a.logf("end of the session: %v", err)
	}
}

// sessionNow returns the session at hand; nil without one.
func (a *agent) sessionNow() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session
}

// orphanage waits for every child of the runner while a session is open: the interpreter, Commands, and what they leave
// behind. It takes the place of an Execution's reaper.
type orphanage struct {
	agent *agent
	empty chan struct{}
	nudge chan struct{}

	mu      sync.Mutex
	waiting map[int]*reaper
	closing bool
}

func newOrphanage(a *agent) *orphanage {
	o := &orphanage{agent: a, empty: make(chan struct{}), nudge: make(chan struct{}, 1), waiting: map[int]*reaper{}}
	a.goGuarded(o.loop)
	return o
}

// spawn starts a program and waits for it from its first moment on.
func (o *orphanage) spawn(s *spawner, job spawnJob) (spawned, *reaper) {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := s.start(job)
	if got.err != nil {
		return got, nil
	}
	r := &reaper{main: make(chan ended, 1), empty: make(chan struct{})}
	o.waiting[got.pid] = r
	return got, r
}

func (o *orphanage) loop() {
	changed := childEnded()
	for {
		if o.reap() {
			close(o.empty)
			return
		}
		select {
		case <-changed:
		case <-o.nudge:
		}
	}
}

// reap takes all that has ended; true: nothing is left, and nothing will come.
func (o *orphanage) reap() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		pid, end, err := waitAny()
		if err != nil {
			return o.closing // ECHILD
		}
		if pid <= 0 {
			return false
		}
		if r := o.waiting[pid]; r != nil {
			delete(o.waiting, pid)
			r.main <- end
		}
	}
}

// close kills everything and ends the waiting.
func (o *orphanage) close(g *group) error {
	o.mu.Lock()
	o.closing = true
	o.mu.Unlock()
	select {
	case o.nudge <- struct{}{}:
	default:
	}
	return killUntil(g, o.empty)
}

// waitAny takes one child that has ended: no process number means that none has.
func waitAny() (int, ended, error) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return pid, ended{status: ws, at: time.Now()}, err
		}
	}
}

// isClosed reports whether c is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
