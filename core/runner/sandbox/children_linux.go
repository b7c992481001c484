package sandbox

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Children waits for all children of the runner while a session is open: the interpreter, Commands, and what they leave. It
// takes the place of a Reaper.
type Children struct {
	sandbox *Sandbox

	empty chan struct{}
	nudge chan struct{}

	mu      sync.Mutex
	waiting map[int]*Reaper
	closing bool
	used    time.Duration // of all that were waited for
}

func NewChildren(b *Sandbox) *Children {
	o := &Children{sandbox: b, empty: make(chan struct{}), nudge: make(chan struct{}, 1), waiting: map[int]*Reaper{}}
	b.Go(o.loop)
	return o
}

// Spawn starts a program. It knows the program before that can end.
func (o *Children) Spawn(s *Spawner, job Job) (Spawned, *Reaper) {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := s.Start(job)
	if got.Err != nil {
		return got, nil
	}
	r := &Reaper{Main: make(chan Exit, 1), Empty: make(chan struct{})}
	o.waiting[got.PID] = r
	return got, r
}

// Adopt waits for a child of the runner that was started before. It returns nil if the child is not there any more.
func (o *Children) Adopt(pid int) *Reaper {
	o.mu.Lock()
	defer o.mu.Unlock()
	if syscall.Kill(pid, 0) != nil {
		return nil
	}
	r := &Reaper{Main: make(chan Exit, 1), Empty: make(chan struct{})}
	o.waiting[pid] = r
	return r
}

func (o *Children) loop() {
	changed := ChildEnded()
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

// reap waits for all processes that have ended. It reports whether none is left and none will come.
func (o *Children) reap() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		pid, end, cpu, err := waitAny()
		if err != nil {
			return o.closing
		}
		if pid <= 0 {
			return o.closing && o.sandbox.Box != nil && len(o.sandbox.Children()) == 0
		}
		if o.sandbox.Box.isInit(pid) {
			o.sandbox.Box.reaped.Store(true)
			continue
		}
		o.used += cpu
		if r := o.waiting[pid]; r != nil {
			delete(o.waiting, pid)
			r.Main <- end
		}
	}
}

// Tree measures the programs but those that are spared, and what ends meanwhile.
func (o *Children) Tree(spared map[int]bool) *CPUTree {
	return &CPUTree{
		Ended: func() time.Duration {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.used + o.sandbox.Box.orphanTime()
		},
		Roots: func() []int {
			return slices.DeleteFunc(o.sandbox.Children(), func(pid int) bool { return spared[pid] })
		},
	}
}

// Close kills all processes and ends the waiting.
func (o *Children) Close(g *Group) error {
	o.mu.Lock()
	o.closing = true
	o.mu.Unlock()
	return o.sandbox.KillUntil(g, o.empty, o.look)
}

func (o *Children) look() {
	select {
	case o.nudge <- struct{}{}:
	default:
	}
}

// waitAny waits for a child that has ended, and returns the CPU time of the child. The number is 0 if no child has ended. The
// error is ECHILD. A child that stops, because it has made this process its tracer (PTRACE_TRACEME), is killed: nobody would continue it.
func waitAny() (pid int, end Exit, cpu time.Duration, err error) {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err = syscall.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, &ru)
		if err == nil && pid > 0 && ws.Stopped() {
			_ = unix.Kill(pid, unix.SIGKILL) // ESRCH: it has been killed meanwhile
			continue
		}
		if !errors.Is(err, unix.EINTR) {
			return pid, Exit{Status: ws, At: time.Now(), MaxRSS: ru.Maxrss << 10}, time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), err
		}
	}
}
