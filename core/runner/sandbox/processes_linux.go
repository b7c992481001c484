package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit is the end of the main process.
type Exit struct {
	Status syscall.WaitStatus
	At     time.Time
	// MaxRSS is the peak of the resident memory of the process and of those that it has waited for, in bytes; 0 if unknown.
	MaxRSS int64
	// Alone reports whether no other process was left at that moment.
	Alone bool
	// Early reports that the process was still giving back its memory. Nothing of the program can run any more. Reaper.Empty tells when the
	// process has ended.
	Early bool
	// Lost is why nobody knows how the process has ended; Status is a guess then.
	Lost error
}

// Reaper waits for the main process and for all its orphans, since the runner is a subreaper. It ends when no process is left.
// The ancestors of a living descendant are alive up to a child of the runner, so "no children" means none.
type Reaper struct {
	pid   int
	Main  chan Exit
	Empty chan struct{}
	// CPU is the time of all processes that were waited for. It is valid once Empty is closed.
	CPU time.Duration

	mu   sync.Mutex
	over bool // empty is closed
	// forked is the end of a main process that another process has waited for, until reap takes it.
	forked *Exit
	// copy is the process that a copy is, if its exit may be seen early; early reports that it was.
	copy  int
	early bool
	// box is nil outside of one. In a box ended reports that the main process has been waited for, and orphans is the CPU time
	// of the orphans before.
	box     *Box
	outer   *Box   // the box whose root folder box uses, if that is another one
	group   *Group // of the program, if box is of a fork server, which may not tell the truth
	ended   bool
	orphans time.Duration
}

func NewReaper(b *Sandbox, pid int) *Reaper {
	r := &Reaper{pid: pid, Main: make(chan Exit, 1), Empty: make(chan struct{}), box: b.Box}
	if len(b.Config.Cgroups) == 0 { // else the groups tell
		r.orphans = b.Box.orphanTime()
	}
	b.Go(r.loop)
	return r
}

// ChildEnded receives when children of the runner may have ended. A thread that waits in wait4 instead would keep its place in
// Go's scheduler for milliseconds, and the scheduler's monitor awake for as long.
var ChildEnded = sync.OnceValue(func() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	return c
})

func (r *Reaper) loop() {
	changed := ChildEnded() // before the first look, so that nothing is missed
	for !r.reap() {
		select {
		case <-changed:
		case <-r.Empty:
		}
	}
}

// reap waits for all processes that have ended, and reports whether none is left.
func (r *Reaper) reap() (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.forked
	r.forked = nil
	for !r.over {
		pid, end, cpu, err := waitAny()
		if err == nil && pid > 0 {
			if r.outer.isInit(pid) {
				r.outer.reaped.Store(true)
				continue
			}
			if r.box.isInit(pid) {
				r.box.reaped.Store(true)
				continue
			}
			if r.box == nil || pid == r.pid { // else it is a fork server, because init has the orphans of a box
				r.CPU += cpu
			}
			if pid == r.pid {
				first, r.ended = &end, true
			}
			continue
		}
		none := err != nil && (r.pid != noProcess || r.ended)
		if r.box != nil && r.ended { // then init has what is left: the orphans of a process come to it before the process can be waited for
			none = r.box.isEmpty() && !r.group.populated()
		}
		if first != nil && !r.early {
			first.Alone = none
			r.Main <- *first
		}
		if !none {
			return false
		}
		r.CPU += max(r.box.orphanTime()-r.orphans, 0) // a box that has ended tells nothing
		r.over = true
		close(r.Empty)
	}
	return true
}

// Look looks for processes that have ended.
func (r *Reaper) Look() { r.reap() }

// RepeatKill calls kill until it finds no process. It returns the processes that kill found last. There are some if processes are left when
// Patience is over.
func RepeatKill(kill func() (found []int)) []int {
	patience := NewPatience()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		found := kill()
		if len(found) == 0 || patience.Over(func() []int { return found }) {
			return found
		}
		time.Sleep(pause)
	}
}

// KillAll kills the processes of g, and whatever else descends from this process.
func (b *Sandbox) KillAll(g *Group) {
	if end := b.EndFork.Load(); end != nil {
		if err := (*end)(); err != nil {
			b.Logf("%v", err) // the caller sees that processes are left
		}
		return
	}
	if b.Box != nil {
		if IsClosed(b.Box.Over) {
			return // the kernel kills what is left
		}
		if err := b.Box.end(); err != nil {
			b.Logf("%v", err) // the caller sees that processes are left
		}
		return
	}
	if g.Everything {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all at once but ourselves, PID 1: nothing forks faster
		return
	}
	if len(g.Cgroups) > 0 {
		g.KillOnce()
	}
	for _, pid := range b.Descendants() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
}

// KillUntil repeats KillAll until empty is closed. look makes the owner of empty look again, because no signal tells the runner
// of the end of a child of the box's init. KillUntil fails if processes are left when Patience is over.
func (b *Sandbox) KillUntil(g *Group, empty <-chan struct{}, look func()) error {
	patience := NewPatience()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		b.KillAll(g)
		look()
		timer := time.NewTimer(pause)
		select {
		case <-empty:
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if patience.Over(b.Descendants) {
			return fmt.Errorf("processes do not die: %v", b.Descendants())
		}
	}
}

// Children lists the programs that have no living parent among programs: the runner's children, and those of the box's init.
func (b *Sandbox) Children() []int {
	own := ChildrenOf(os.Getpid())
	if b.Box == nil {
		return own
	}
	return append(slices.DeleteFunc(own, b.Box.isInit), b.Box.orphans()...)
}

// Descendants lists the processes that descend from programs, and the programs, parents first.
func (b *Sandbox) Descendants() []int {
	return withDescendants(b.Children())
}

// withDescendants appends the processes that descend from found, parents first.
func withDescendants(found []int) []int {
	for n := 0; n < len(found) && len(found) < 1<<16; n++ {
		found = append(found, ChildrenOf(found[n])...)
	}
	return found
}

// listsChildren reports whether the kernel lists the children of processes.
var listsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// ChildrenOf lists the children of all threads of pid.
func ChildrenOf(pid int) []int {
	if !listsChildren() {
		return childrenByParent(pid)
	}
	lists, err := filepath.Glob(procfs(pid) + "/task/*/children")
	if err != nil {
		return nil
	}
	var found []int
	for _, list := range lists {
		found = append(found, listedChildren(list)...)
	}
	return found
}

// listedChildren reads a children file of procfs.
func listedChildren(file string) (found []int) {
	raw, err := os.ReadFile(file) //nolint:gosec // a path of procfs
	if err != nil {
		return nil
	}
	for f := range bytes.FieldsSeq(raw) {
		if child, err := strconv.Atoi(string(f)); err == nil {
			found = append(found, child)
		}
	}
	return found
}

// childrenByParent lists the processes that call pid their parent.
func childrenByParent(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if ReadProcess(child).Parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// statusBytes reads values of /proc/PID/status that are given in kB, as bytes. They are 0 if unknown.
func statusBytes(pid int, keys ...string) []int64 {
	values := make([]int64, len(keys))
	raw, err := os.ReadFile(procfs(pid) + "/status") //nolint:gosec // a path of procfs
	if err != nil {
		return values
	}
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		for i, key := range keys {
			if len(f) == 3 && string(f[0]) == key+":" {
				if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
					values[i] = n << 10
				}
			}
		}
	}
	return values
}

// IsClosed reports whether c is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func SignalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}
