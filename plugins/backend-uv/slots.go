package uvbackend

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/binary"
)

// idleTime is how long a slot beyond the kept ones waits for work.
const idleTime = time.Minute

// keptSlots is how many runners a server keeps ready.
const keptSlots = 3

var errClosed = executor.Errorf(executor.Unavailable, "the backend is closed")

// slots are the resident runners: made when they are needed, kept for a while, never shared.
type slots struct {
	claim   *workClaim
	how     mechanisms
	ids     *uidPool // nil: programs run as we do
	parent  runner.Cgroups
	program program
	keep    int
	// reach lists our folders that programs need, wherever they lie.
	reach []string
	log   *slog.Logger

	// starts carries forks to the one thread that makes them.
	starts chan func()
	closed chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex
	isClosed bool
	number   int
	idle     []*slot // most recently used last
	all      map[*slot]struct{}

	started, died atomic.Int64
}

func newSlots(claim *workClaim, how mechanisms, parent runner.Cgroups, ids *uidPool, keep int, reach []string, log *slog.Logger) (*slots, error) {
	p := &slots{
		claim: claim, how: how, parent: parent, ids: ids, keep: keep, reach: reach, log: log,
		starts: make(chan func()), closed: make(chan struct{}), all: map[*slot]struct{}{},
	}
	var err error
	if p.program, err = runnerProgram(); err != nil {
		return nil, err
	}
	p.wg.Go(p.starter)
	return p, nil
}

// runnerProgram is the embedded runner, else this program's own command. mechanisms.attributes gives it the mount namespace
// that it would else make by executing itself again.
func runnerProgram() (program, error) {
	f, ok := binary.Open()
	if !ok {
		return program{path: "/proc/self/exe", args: []string{os.Args[0], "runner", "--own-mounts", "--fd", "3"}}, nil
	}
	// In the child descriptor 3 becomes the socket before the program is executed, so it must not be that one.
	high, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 64)
	f.Close()
	if err != nil {
		return program{}, fmt.Errorf("embedded runner: %w", err)
	}
	file := os.NewFile(uintptr(high), "runner")
	return program{path: fmt.Sprintf("/proc/self/fd/%d", high), args: []string{"python-executor-runner", "--own-mounts", "--fd", "3"}, file: file}, nil
}

// starter is the thread that forks every runner. It lives as long as the backend, because a runner dies with it.
func (p *slots) starter() {
	runtime.LockOSThread() // and never unlock: the thread ends with this goroutine
	for {
		select {
		case start := <-p.starts:
			start()
		case <-p.closed:
			// Everyone who had a start accepted has been waited for; slots end before this thread does.
			return
		}
	}
}

// take returns a slot that nobody else has: an idle one, else a fresh one. Codes: exhausted (no uid is free), unavailable.
func (p *slots) take(ctx context.Context, network bool) (s *slot, fresh bool, err error) {
	for {
		s, n, err := p.pop(network)
		switch {
		case err != nil:
			return nil, false, err
		case s == nil:
			s, err = p.make(ctx, n, network, p.programUID)
			return s, true, err
		case s.alive():
			return s, false, nil
		}
		p.buryLater(s, "an idle runner died")
	}
}

// pop takes an idle slot, or the number of a new one.
func (p *slots) pop(network bool) (*slot, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return nil, 0, errClosed
	}
	if i := p.next(network); i >= 0 {
		s := p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
		if s.idle != nil {
			s.idle.Stop()
		}
		return s, 0, nil
	}
	p.number++
	p.wg.Add(1) // for make
	return nil, p.number, nil
}

// next is the idle slot to use: not the one that was used last, if there is another, because its runner may still be
// clearing up; and not an older one, so that those may end. -1: none.
func (p *slots) next(network bool) int {
	found := -1
	for i := len(p.idle) - 1; i >= 0; i-- {
		if p.idle[i].network != network && p.how.User {
			continue
		}
		if found >= 0 {
			return i
		}
		found = i
	}
	return found
}

// make starts slot number n and watches it.
func (p *slots) make(ctx context.Context, n int, network bool, claim func() (*uidClaim, error)) (*slot, error) {
	defer p.wg.Done()
	s, err := p.newSlot(ctx, n, network, claim)
	if err != nil {
		return nil, err
	}
	p.started.Add(1)
	p.mu.Lock()
	closed := p.isClosed
	if !closed {
		p.all[s] = struct{}{}
		p.wg.Go(func() { p.watch(s) })
	}
	p.mu.Unlock()
	if closed {
		s.give()
		return nil, errClosed
	}
	return s, nil
}

// watch gives a slot back when its runner is gone, unless somebody has it: then put does.
func (p *slots) watch(s *slot) {
	<-s.exited
	p.mu.Lock()
	i := slices.Index(p.idle, s)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		p.bury(s, "an idle runner died")
	}
}

// put gives a slot back for the next job.
func (p *slots) put(s *slot) {
	if !s.alive() {
		p.buryLater(s, "a runner died at work")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return // close has it in all
	}
	p.idle = append(p.idle, s)
	if len(p.idle) > p.keep {
		oldest := p.idle[0]
		oldest.idle = time.AfterFunc(idleTime, func() { p.shrink(oldest) })
	}
}

// shrink gives a slot back that has been idle for long.
func (p *slots) shrink(s *slot) {
	p.mu.Lock()
	i := slices.Index(p.idle, s)
	if p.isClosed || i < 0 || len(p.idle) <= p.keep {
		p.mu.Unlock()
		return
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	p.wg.Add(1)
	p.mu.Unlock()
	defer p.wg.Done()
	p.drop(s)
}

// drop gives a slot back for good.
func (p *slots) drop(s *slot) {
	s.give()
	p.mu.Lock()
	delete(p.all, s)
	p.mu.Unlock()
}

// bury drops a slot whose runner is gone, and logs what and the reason. A runner that this process has ended has none.
func (p *slots) bury(s *slot, what string) {
	p.died.Add(1)
	reason := s.reason()
	p.drop(s)
	if reason != nil {
		p.log.Warn(what, "folder", s.dir, "reason", reason, "exit", s.cmd.ProcessState.String(), "stderr", s.stderr.lines())
	}
}

// buryLater is bury that nobody waits for but close.
func (p *slots) buryLater(s *slot, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return
	}
	p.wg.Go(func() { p.bury(s, what) })
}

// warm starts n slots in the background.
func (p *slots) warm(ctx context.Context, n int) {
	network := !p.how.offByDefault()
	for range n {
		p.wg.Go(func() {
			s, _, err := p.take(ctx, network)
			if err != nil {
				p.log.Warn("no runner could be started ahead", "error", err)
				return
			}
			p.put(s)
		})
	}
}

// counts are the slots that there are, and those that work.
func (p *slots) counts() (all, busy int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all), len(p.all) - len(p.idle)
}

// close ends every runner and gives everything back. Idempotent.
func (p *slots) close() {
	p.mu.Lock()
	if p.isClosed {
		p.mu.Unlock()
		return
	}
	p.isClosed = true
	p.idle = nil
	var wg sync.WaitGroup
	for s := range p.all {
		wg.Go(s.give)
	}
	p.mu.Unlock()
	wg.Wait()
	close(p.closed)
	p.wg.Wait()
	if p.program.file != nil {
		p.program.file.Close()
	}
	if p.ids != nil {
		p.ids.close()
	}
	if err := p.parent.Remove(); err != nil {
		p.log.Warn("control groups not removed", "error", err)
	}
	p.claim.release()
}
