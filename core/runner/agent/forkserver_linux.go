package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// The bounds of a fork server: of its start, of the answer that a copy has its program, of its other answers, of the wait for a copy that
// is being made, and of its life. A program whose copy does not answer in time is lost.
const (
	forkStartPatience = 20 * time.Second
	forkTakePatience  = 10 * time.Second
	forkPatience      = 2 * time.Second
	forkWait          = 250 * time.Millisecond
	maxForks          = 1000
	maxForkAge        = 30 * time.Minute
	maxForkIdle       = 10 * time.Minute
)

// What a server and the copy that waits may use for themselves: CPU time between two programs, and memory of programs that have ended, which
// descriptors of the server keep. The time between two looks doubles.
const (
	maxForkCPU    = 500 * time.Millisecond
	firstForkLook = time.Second
	lastForkLook  = 10 * time.Second
	maxForkHeld   = 64 << 20
)

// How long no server is started for a key after a start that has failed, and after the failure of a server that has worked or whose first
// copy was late, as on a busy machine.
const (
	forkStartPause = 5 * time.Minute
	forkPause      = 10 * time.Second
	maxRefusedKeys = 64
)

// forks has the fork server of a runner, and what is known of former ones. It belongs to one goroutine at a time.
type forks struct {
	// server is nil if there is none. It may have ended by itself.
	server *forkServer
	// refused says until when no server is started for a key.
	refused map[forkKey]time.Time
	// unused reports that the last server has ended and no program was a fork of it.
	unused bool
	before forkKey // of the last program
	// learned is what is known of the imports of programs, by key.
	learned map[forkKey]*learning
}

// close ends the server, and reports whether there was one.
func (f *forks) close() bool {
	s := f.server
	if s == nil {
		return false
	}
	f.server = nil
	s.end()
	f.unused = !s.used
	if s.err != nil && f.bar(s) {
		return true // the next server may work
	}
	if s.err != nil {
		if f.refused == nil || len(f.refused) >= maxRefusedKeys {
			f.refused = map[forkKey]time.Time{}
		}
		pause := forkStartPause
		if s.used || sandbox.IsClosed(s.started) && errors.Is(s.err, context.DeadlineExceeded) {
			pause = forkPause
		}
		f.refused[s.key] = time.Now().Add(pause)
	}
	return true
}

// permits reports whether a server may be started for programs like one of key that has ended. After a server that was started in vain,
// the next one needs two programs of its key.
func (f *forks) permits(key forkKey) bool {
	repeated := f.before == key
	f.before = key
	return time.Now().After(f.refused[key]) && (repeated || !f.unused)
}

// forkServer is a fork server in namespaces of its own. It may run code of packages, so nothing here depends on what it says: its end is
// that of its process, and the kernel tells which processes there are.
type forkServer struct {
	agent  *agent
	key    forkKey
	config zygote.Config
	cancel context.CancelCauseFunc
	// started is closed when zygote can be used, and over when nothing of the server is left.
	started, over chan struct{}
	// copies gives the copy that waits. wanted asks for the next one.
	copies chan *forkCopy
	wanted chan struct{}

	// The following two belong to the goroutine of the execution. taken reports that the copy of the last refill was taken.
	taken, used bool
	held        int64 // bytes that programs have left

	// The following belong to the goroutine of run, and to others once started is closed.
	zygote *zygote.Zygote
	queues *sandbox.Queues
	group  *sandbox.Group

	mu     sync.Mutex
	box    *sandbox.Box // its namespaces; nil before they are there
	ending bool
	err    error // why it ended. It is read after over
}

// errEnded ends what a fork server is doing.
var errEnded = errors.New("the fork server is ended")

// forkCopy is a copy that waits.
type forkCopy struct {
	*zygote.Slot
	pidfd int
	base  int64 // the peak of the memory that the server and its copies had, in bytes; 0 if unknown
	// resident is the memory that the copy has before its program, in bytes. It is 0 where the runner may not read how the copy ends.
	resident int64
}

func (c *forkCopy) close() {
	c.Close()
	_ = unix.Close(c.pidfd) // nothing was written
}

// newForkServer starts a server in the background.
func newForkServer(a *agent, key forkKey, config zygote.Config) *forkServer {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &forkServer{
		agent: a, key: key, config: config, cancel: cancel, started: make(chan struct{}), over: make(chan struct{}),
		copies: make(chan *forkCopy), wanted: make(chan struct{}, 1),
	}
	s.config.Launch = s.launch
	a.Go(func() { s.run(ctx) })
	return s
}

func (s *forkServer) run(ctx context.Context) {
	defer close(s.over)
	err := s.serve(ctx)
	if ctx.Err() != nil {
		err = nil // it was ended
	}
	if err != nil {
		s.agent.Notef("%v", err)
		s.fail(err)
	}
	if err := s.clean(); err != nil {
		s.agent.Logf("end of the fork server: %v", err)
	}
}

// serve starts the server and makes copies until its life is over.
func (s *forkServer) serve(ctx context.Context) error {
	if err := s.start(ctx); errors.Is(err, zygote.ErrMoved) {
		return nil // the next program was quicker than the start, and its folder has taken the place
	} else if err != nil {
		return err
	}
	close(s.started)
	age := time.NewTimer(maxForkAge)
	defer age.Stop()
	for range maxForks {
		c, err := s.copy(ctx)
		if err != nil {
			return err
		}
		if next, err := s.give(ctx, c, age.C); err != nil || !next {
			return err
		}
	}
	return nil
}

// give gives c to a program and returns when the next copy is wanted. next is false if there is to be none.
func (s *forkServer) give(ctx context.Context, c *forkCopy, old <-chan time.Time) (next bool, err error) {
	idle := time.NewTimer(maxForkIdle)
	defer idle.Stop()
	pause := firstForkLook
	look := time.NewTimer(pause)
	defer look.Stop()
	at, before, copies, over := time.Now(), s.group.CPUTime(), s.copies, idle.C
	for {
		select {
		case copies <- c:
			copies, over, old = nil, nil, nil
			continue
		case <-s.wanted:
			return true, s.rested(before, time.Since(at))
		case <-look.C:
			pause = min(2*pause, lastForkLook)
			look.Reset(pause)
			var worked time.Duration
			if copies == nil {
				worked = time.Since(at)
			}
			if err = s.rested(before, worked); err == nil {
				continue
			}
		case <-over:
		case <-old:
		case <-ctx.Done():
		}
		if copies != nil {
			c.close()
		}
		return false, err
	}
}

// rested returns an error if the server has used much CPU time since before. It needs some while a program runs, for its orphans.
func (s *forkServer) rested(before, program time.Duration) error {
	if used := s.group.CPUTime() - before; used > maxForkCPU+program/10 {
		return fmt.Errorf("fork server: it uses the processor for itself: %v", used.Round(time.Millisecond))
	}
	return nil
}

// start starts the process.
func (s *forkServer) start(ctx context.Context) (err error) {
	if s.group, err = s.agent.MakeForkGroup(); err != nil {
		return fmt.Errorf("fork server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, forkStartPatience)
	defer cancel()
	if s.zygote, err = zygote.New(ctx, s.config); err != nil {
		return err
	}
	s.queues, err = sandbox.QueuesOf(s.box.PID())
	return err
}

// launch implements zygote.Config.Launch.
func (s *forkServer) launch(c zygote.Command) (zygote.Process, error) {
	var files []uintptr
	for _, file := range c.Files {
		files = append(files, file.Fd())
	}
	box, err := s.agent.StartForkInit(&sandbox.Program{Path: c.Path, Argv: c.Argv, Env: c.Env, Dir: c.Dir}, s.key.network, files, s.group)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box = box
	if s.ending {
		box.Destroy()
	}
	return forkInit{box}, nil
}

// copy makes a copy that waits. Nothing of a program is left in the namespaces afterwards: the server and the copy are alone there.
func (s *forkServer) copy(ctx context.Context) (*forkCopy, error) {
	ctx, cancel := context.WithTimeout(ctx, forkPatience)
	defer cancel()
	slot, err := s.zygote.Next(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.queues.Remove(); err != nil {
		slot.Close()
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(slot.PID(), 0)
	if err != nil {
		slot.Close()
		return nil, fmt.Errorf("fork server: copy: %w", err)
	}
	c := &forkCopy{Slot: slot, pidfd: pidfd, base: s.group.MemoryPeak()}
	if size, traceable := sandbox.ResidentSize(slot.PID()); traceable {
		c.resident = size
	}
	err = s.box.Holds(slot.PID())
	if n, ok := s.group.Threads(); err == nil && ok && n != 2 {
		err = fmt.Errorf("fork server: it has %d threads where it and a copy have 2", n)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// take returns the copy that waits, or nil. It waits a moment for a copy that is being made.
func (s *forkServer) take() *forkCopy {
	timer := time.NewTimer(forkWait)
	defer timer.Stop()
	select {
	case c := <-s.copies:
		s.taken, s.used = true, true
		return c
	case <-s.over:
	case <-timer.C:
	}
	return nil
}

// keep notes that held bytes of a program's memory are left although its processes have ended.
func (s *forkServer) keep(held int64) {
	if s.held += held; s.held > maxForkHeld {
		err := fmt.Errorf("fork server: it keeps %d MiB of its programs", s.held>>20)
		s.agent.Notef("%v", err)
		s.fail(err)
	}
}

// refill asks for the next copy if the one before was taken. Nothing of its program is left, unless the server hides it.
func (s *forkServer) refill() {
	if s.taken {
		s.taken = false
		s.wanted <- struct{}{}
	}
}

// fail ends the server because of err.
func (s *forkServer) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.kill()
}

// kill kills the first process of the namespaces, and so all processes in them.
func (s *forkServer) kill() {
	s.cancel(errEnded)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if s.box != nil {
		s.box.Destroy()
	}
}

// end kills the server and returns when nothing of it is left. A runner whose server does not die ends.
func (s *forkServer) end() {
	s.kill()
	for patience := sandbox.NewPatience(); ; {
		timer := time.NewTimer(patience.Left())
		select {
		case <-s.over:
			timer.Stop()
			return
		case <-timer.C:
			if patience.Over(s.processes) {
				s.agent.die(errors.New("the fork server does not die"))
				return
			}
		}
	}
}

// processes lists the processes of the server's namespaces.
func (s *forkServer) processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.box == nil {
		return nil
	}
	return s.box.Processes()
}

// clean removes what is left of a server.
func (s *forkServer) clean() error {
	s.kill()
	if s.zygote != nil {
		_ = s.zygote.Close() // it waits for the process, and never fails
	}
	err := s.queues.Close()
	if s.group != nil {
		err = errors.Join(err, s.group.Remove())
	}
	return err
}

// forkInit is the process of a fork server.
type forkInit struct{ *sandbox.Box }

// Kill implements zygote.Process.
func (p forkInit) Kill() error {
	p.Destroy()
	return nil
}

// Wait implements zygote.Process.
func (p forkInit) Wait() error {
	<-p.Over
	return p.CloseFork()
}
