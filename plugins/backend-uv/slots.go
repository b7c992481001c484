package uvbackend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/runner/binary"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// idleTime is how long the oldest idle slot is kept if more than slots.keep slots are idle.
const idleTime = time.Minute

// keptSlots is the number of idle runners that a server keeps ready. A single call keeps one.
const keptSlots = 3

// forkSlots is the number of idle runners up to which a program without a fork server gets a runner more. Beyond it, the program
// takes the runner that has not been used for the longest time, and the fork server there ends.
const forkSlots = 8

// slots manages the resident runners. It starts a runner when one is needed and keeps it for further jobs. A runner has one job at
// a time.
type slots struct {
	claim   *workClaim
	how     mechanisms
	ids     *uidPool // nil if programs run as the plugin's user
	parent  sandbox.Cgroups
	program program
	keep    int
	// reach lists the folders of this backend that programs use. See runner.Config.
	reach []string
	// private reports whether programs with a network have a namespace of their own, from which they reach open, too.
	private bool
	open    []string
	log     *slog.Logger
	notes   slog.Level // of the runners' notes

	// first is closed when the slot of warmFirst is idle, or could not be started. nil: there is no such slot.
	first chan struct{}
	// starts carries functions that fork to the thread of starter.
	starts chan func()
	// closed is closed when close has given all slots back.
	closed chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex
	isClosed bool
	number   int
	idle     []*slot // most recently used last
	adding   bool    // a slot is being started because of forkSlots
	all      map[*slot]struct{}

	started, died atomic.Int64
}

func newSlots(claim *workClaim, how mechanisms, parent sandbox.Cgroups, ids *uidPool, keep int, reach []string, kept string, log *slog.Logger) (*slots, error) {
	p := &slots{
		claim: claim, how: how, parent: parent, ids: ids, keep: keep, reach: reach, log: log,
		starts: make(chan func()), closed: make(chan struct{}), all: map[*slot]struct{}{},
	}
	var err error
	if p.program, err = runnerProgram(kept); err != nil {
		return nil, err
	}
	p.wg.Go(p.starter)
	return p, nil
}

// runnerProgram returns the embedded runner, or else the runner command of this program. kept is a folder in which later starts find
// the runner; empty: none.
func runnerProgram(kept string) (program, error) {
	open := binary.Open
	if stamp := buildStamp(); kept != "" && stamp != "" {
		open = func() (*os.File, bool) { return binary.OpenKept(kept, stamp) }
	}
	f, ok := open()
	if !ok {
		return program{path: "/proc/self/exe", args: []string{os.Args[0], "runner"}}, nil
	}
	// Descriptor 3 of the child becomes the socket before exec, so the program's descriptor must have another number.
	high, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 64)
	f.Close()
	if err != nil {
		return program{}, fmt.Errorf("embedded runner: %w", err)
	}
	file := os.NewFile(uintptr(high), "runner")
	return program{path: fmt.Sprintf("/proc/self/fd/%d", high), args: []string{"python-executor-runner"}, file: file}, nil
}

// buildStamp returns a hash that changes with this program's file and with the boot, or "".
func buildStamp() string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &st); err != nil || boot() == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Append(nil, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), boot()))
	return hex.EncodeToString(sum[:16])
}

// starter forks all runners on one thread, which lives until the backend is closed. The kernel ends a runner when the thread that
// forked the runner ends.
func (p *slots) starter() {
	runtime.LockOSThread() // and never unlock: the thread ends with this goroutine
	for {
		select {
		case start := <-p.starts:
			start()
		case <-p.closed:
			// close has given its slots back. make gives a slot back that is finished after that.
			return
		}
	}
}

// take returns a slot for the caller alone: an idle slot, or else a new one. fresh reports whether the slot is new. The caller
// returns the slot with put. fork is that of forkOf. Codes: exhausted (no uid is free), unavailable.
func (p *slots) take(ctx context.Context, network bool, fork string) (s *slot, fresh bool, err error) {
	if p.first != nil {
		select {
		case <-p.first:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
	return p.takeNow(ctx, network, fork)
}

// takeNow is take without waiting for the slot of warmFirst.
func (p *slots) takeNow(ctx context.Context, network bool, fork string) (s *slot, fresh bool, err error) {
	for {
		s, n, err := p.pop(network, fork)
		switch {
		case err != nil:
			return nil, false, err
		case s == nil:
			if s, err = p.make(ctx, n, slotKind{network: network, private: p.private}, p.programUID); s != nil {
				s.fork = fork
			}
			return s, true, err
		case s.alive():
			s.fork = fork
			return s, false, nil
		}
		p.buryLater(s, "an idle runner died")
	}
}

// pop takes an idle slot. If there is none, pop returns the number of a new slot, and the caller must call make.
func (p *slots) pop(network bool, fork string) (*slot, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return nil, 0, backend.ErrClosed
	}
	if i := p.next(network, fork); i >= 0 {
		s := p.idle[i]
		if s.fork != "" && s.fork != fork {
			p.addLocked()
		}
		p.idle = slices.Delete(p.idle, i, i+1)
		if s.idle != nil {
			s.idle.Stop()
			s.idle = nil
		}
		return s, 0, nil
	}
	p.number++
	p.wg.Add(1) // make calls Done
	return nil, p.number, nil
}

// next returns the index of the idle slot to use, or -1. Of the slots without a fork server for other programs it prefers the one that
// was used last but one, because the runner of the last one may still be clearing up. Older slots stay idle, so that they can end. If
// all slots have fork servers for other programs, next returns the oldest one.
func (p *slots) next(network bool, fork string) int {
	found, oldest := -1, -1
	for i := len(p.idle) - 1; i >= 0; i-- {
		s := p.idle[i]
		if s.network != network && p.how.User && !p.how.Box {
			continue
		}
		oldest = i
		if s.fork != "" && s.fork != fork {
			continue
		}
		if found >= 0 {
			return i
		}
		found = i
	}
	if found < 0 {
		return oldest
	}
	return found
}

// addLocked starts a slot in the background if there are fewer than forkSlots idle ones, and none is being started. The caller holds
// the lock, and is about to take a slot whose fork server is for other programs. A single call adds none. A job within Capacity must find
// a uid.
func (p *slots) addLocked() {
	scarce := p.ids != nil && len(p.all)+forkSlots > p.ids.uids.count()
	if p.keep < keptSlots || p.adding || scarce || len(p.idle) >= forkSlots {
		return
	}
	p.adding = true
	p.number++
	number := p.number
	p.wg.Add(1) // make calls Done
	p.wg.Go(func() {
		s, err := p.make(context.Background(), number, slotKind{network: !p.how.offByDefault(), private: p.private}, p.programUID)
		p.mu.Lock()
		p.adding = false
		p.mu.Unlock()
		if err != nil {
			p.log.Debug("no further runner could be started", "error", err)
			return
		}
		p.put(s)
	})
}

// make starts slot number n and watches its runner. pop or builder has added make to p.wg.
func (p *slots) make(ctx context.Context, n int, k slotKind, claim func() (*uidClaim, error)) (*slot, error) {
	defer p.wg.Done()
	s, err := p.newSlot(ctx, n, k, claim)
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
		return nil, backend.ErrClosed
	}
	return s, nil
}

// watch waits for the end of a slot's runner and gives the slot back if it is idle. If a job has the slot, put gives it back.
func (p *slots) watch(s *slot) {
	<-s.exited
	p.mu.Lock()
	i := slices.Index(p.idle, s)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.limitLocked()
	}
	p.mu.Unlock()
	if i >= 0 {
		p.bury(s, "an idle runner died")
	}
}

// put makes a slot available for the next job. If the slot's runner has ended, put gives the slot back.
func (p *slots) put(s *slot) {
	if !s.alive() {
		p.buryLater(s, "a runner died during a job")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return // close gives it back
	}
	p.idle = append(p.idle, s)
	p.limitLocked()
}

// limitLocked gives the oldest idle slot idleTime if there are more than keep. The caller holds the lock.
func (p *slots) limitLocked() {
	if p.isClosed || len(p.idle) <= p.keep || p.idle[0].idle != nil {
		return
	}
	oldest := p.idle[0]
	oldest.idle = time.AfterFunc(idleTime, func() { p.shrink(oldest) })
}

// shrink gives a slot back that has been idle for idleTime, if more than keep slots are idle.
func (p *slots) shrink(s *slot) {
	p.mu.Lock()
	s.idle = nil // the timer has fired
	i := slices.Index(p.idle, s)
	if p.isClosed || i < 0 || len(p.idle) <= p.keep {
		p.limitLocked()
		p.mu.Unlock()
		return
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	p.limitLocked()
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

// bury drops a slot whose runner has ended. It logs the message what with the reason, unless this process ended the runner.
func (p *slots) bury(s *slot, what string) {
	p.died.Add(1)
	reason := s.reason()
	p.drop(s)
	if reason != nil {
		p.log.Warn(what, "folder", s.dir, "reason", reason, "exit", s.cmd.ProcessState.String(), "stderr", s.stderr.lines())
	}
}

// buryLater runs bury in the background. close waits for it.
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
	for range n {
		p.wg.Go(func() { p.warmOne(ctx) })
	}
}

// warmFirst starts a slot in the background, for which every take waits. It must be called before the first take. A second slot that
// starts at the same time would delay both.
func (p *slots) warmFirst(ctx context.Context) {
	p.first = make(chan struct{})
	p.wg.Go(func() {
		defer close(p.first)
		p.warmOne(ctx)
	})
}

func (p *slots) warmOne(ctx context.Context) {
	s, _, err := p.takeNow(ctx, !p.how.offByDefault(), "")
	if err != nil {
		p.log.Warn("no runner could be started in advance", "error", err)
		return
	}
	p.put(s)
}

// counts returns the number of slots, and the number of those that have a job.
func (p *slots) counts() (all, busy int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all), len(p.all) - len(p.idle)
}

// close ends every runner and gives back all that the slots use. It is idempotent.
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
