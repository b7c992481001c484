package fake

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// pendingBytes bounds the output that is kept between two Executions.
const pendingBytes = 256 << 10

// session is a Session's sandbox: its files, its interpreter and the background work of its code. It belongs to the world, not
// to the Backend. With Attach it outlives the Backend.
type session struct {
	world  *world
	caps   executor.Capabilities
	id     string
	spec   executor.Spec
	limits executor.Limits
	python string
	tree   *tree
	vars   *names
	// seen are the files after the last Execution that asked for changes; nil: none has. Only the current run uses it.
	seen map[string]*file

	mu           sync.Mutex
	requirements []string
	current      *run
	// opened reports whether Started of current was emitted, so that output may follow.
	opened bool
	cells  int
	// pending is the output that was written while no Execution ran.
	pending []executor.Output
	held    int
	dead    bool
	closed  bool
	// life ends when the interpreter ends.
	life       context.Context
	end        context.CancelCauseFunc
	background sync.WaitGroup
}

// names are the variables of an interpreter.
type names struct {
	mu     sync.Mutex
	values map[string]string
}

func newNames() *names { return &names{values: map[string]string{}} }

func (n *names) set(name, value string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.values[name] = value
}

func (n *names) get(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	value, ok := n.values[name]
	return value, ok
}

func (n *names) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.values)
}

func newSession(b *Backend, s executor.Session, requirements []string) *session {
	job := executor.Job{Spec: s.Spec}
	made := &session{
		world: b.world, caps: b.caps, id: s.ID, spec: s.Spec.Clone(), limits: s.Limits, requirements: requirements,
		python: (&run{backend: b, job: job}).version(), tree: newTree(), vars: newNames(),
	}
	made.life, made.end = context.WithCancelCause(context.Background())
	return made
}

func (s *session) handle() []byte { return []byte("fake-session:" + s.id) }

func (s *session) described() executor.OpenedSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := executor.OpenedSession{PythonVersion: s.python, Requirements: slices.Clone(s.requirements)}
	if s.caps.Attach {
		opened.Handle = s.handle()
	}
	return opened
}

// enter makes r the current run of s. Codes: not_found (s was closed), conflict (another run is current).
func (s *session) enter(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errNoSession(s.id)
	case s.current != nil:
		return executor.Errorf(executor.Conflict, "session %s runs %s", s.id, s.current.job.ID)
	}
	s.current, r.session, r.tree = r, s, s.tree
	return nil
}

func (s *session) leave(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == r {
		s.current, s.opened = nil, false
	}
}

func (s *session) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// load prepares the program of r in s.
func (s *session) load(r *run) (*process, *executor.Failure) {
	spec := r.job.Spec
	s.mu.Lock()
	p := &process{
		run: r, vars: s.vars, python: s.python, requirements: slices.Clone(s.requirements), separate: len(spec.Command) > 0,
		env: environment(s.spec.Env),
	}
	dead := s.dead
	if !p.separate {
		s.cells++
	}
	p.argv0 = "<cell " + strconv.Itoa(s.cells) + ">"
	s.mu.Unlock()
	if dead && !p.separate {
		return nil, failure(executor.PhaseStart, executor.Unavailable, "the interpreter of session %s is not running", s.id)
	}
	s.tree.settle()
	if p.separate {
		p.vars, p.args = newNames(), slices.Clone(spec.Args)
		if fail := p.command(spec.Command); fail != nil {
			return nil, fail
		}
	} else {
		var wants bool
		if p.text, wants = consoleCell(s.spec.Language, spec.Code); wants {
			p.text = "display " + executor.IncompleteType + " {}"
		}
	}
	return p, r.connect(p)
}

// open emits the pending output to r. Later output of background work in s then goes to r too.
func (s *session) open(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.writing.Lock()
	r.earlier = true
	for _, out := range s.pending {
		r.writePiece(r.killed.Done(), out.Stream, out.Data)
	}
	r.earlier = false
	r.writing.Unlock()
	s.pending, s.held, s.opened = nil, 0, true
}

// say writes output of background work in s.
func (s *session) say(stream executor.Stream, data []byte) {
	s.mu.Lock()
	r := s.current
	if !s.opened {
		r = nil
	}
	s.mu.Unlock()
	if r != nil && r.write(r.killed.Done(), stream, data) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held+len(data) <= pendingBytes {
		s.pending = append(s.pending, executor.Output{Stream: stream, Data: data})
		s.held += len(data)
	}
}

// settle sets the SessionState of r's Result, by what the end of r's program did to the interpreter.
func (s *session) settle(r *run, e end) executor.SessionState {
	s.mu.Lock()
	s.opened = false
	s.mu.Unlock()
	if len(r.job.Spec.Command) > 0 {
		return executor.SessionStateKept
	}
	r.mu.Lock()
	stopped, oom := r.reason != "", r.oom
	r.mu.Unlock()
	switch {
	case stopped && !oom && e.signal == "SIGKILL":
		s.renew()
		return executor.SessionStateRestarted
	case oom, e.signal != "" && !stopped:
		s.die()
		return executor.SessionStateLost
	}
	return executor.SessionStateKept
}

// die ends the interpreter and everything that it has started.
func (s *session) die() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	s.end(errKilled)
	s.background.Wait()
	s.vars.clear()
}

// renew starts a new interpreter.
func (s *session) renew() {
	s.die()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.dead, s.pending, s.held = false, nil, 0
}

// stop kills the current run and waits for its end.
func (s *session) stop() {
	s.mu.Lock()
	r := s.current
	s.mu.Unlock()
	if r != nil {
		r.kill()
		<-r.ended
	}
}

func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.die()
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if s.world.sessions[s.id] == s {
		delete(s.world.sessions, s.id)
	}
}

// later runs f in the background. f may outlive the Execution that has started it, until the interpreter ends.
func (s *session) later(f func(life <-chan struct{})) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	life := s.life.Done()
	s.background.Go(func() { f(life) })
}

func (w *world) allSessions() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.sessions))
}

func errNoSession(id string) error {
	return executor.Errorf(executor.NotFound, "session %s is not here", id)
}

// session returns a Session that this Backend holds.
func (b *Backend) session(id string) (*session, error) {
	if err := b.isDown(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	held := b.held[id]
	b.mu.Unlock()
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	s := b.world.sessions[id]
	if s == nil || !held {
		return nil, errNoSession(id)
	}
	return s, nil
}
