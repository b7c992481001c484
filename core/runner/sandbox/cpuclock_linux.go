package sandbox

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The pauses between two looks of a CPUClock: between two looks at processes that work, and the longest between two at processes that do
// not. A look takes at most a share of the time.
const (
	shortestCPULook = 5 * time.Millisecond
	longestCPULook  = 100 * time.Millisecond
	cpuLookShare    = 20
)

// CPUClock measures the CPU time of an Execution against a limit.
//
// Programs cannot reach the limit sooner than all processors together can use what is left of it, so the next look comes then. Near the
// limit looks follow each other after shortestCPULook, and after longer pauses while nothing works. So a program that works is stopped at
// most shortestCPULook on each processor after the limit, and one that has slept near it at most longestCPULook. The looks need no more of
// the machine than a share of their time. What they see late counts all the same: the CPU time of the Result decides.
type CPUClock struct {
	limit time.Duration
	used  func() time.Duration
	last  time.Duration
	pause time.Duration
}

// NewCPUClock returns a clock of what used returns. It is nil without a limit.
func NewCPUClock(limit time.Duration, used func() time.Duration) *CPUClock {
	if limit <= 0 {
		return nil
	}
	return &CPUClock{limit: limit, used: used}
}

// First returns when to look first, and nil for a nil clock.
func (c *CPUClock) First() <-chan time.Time {
	if c == nil {
		return nil
	}
	return time.After(c.limit / time.Duration(runtime.NumCPU()))
}

// Look returns when to look again, or nil when more than the limit was used.
func (c *CPUClock) Look() <-chan time.Time {
	began := time.Now()
	used := c.used()
	if used > c.limit {
		c.last = used
		return nil
	}
	if used-c.last > time.Millisecond {
		c.pause = shortestCPULook
	} else {
		c.pause = min(max(2*c.pause, shortestCPULook), longestCPULook)
	}
	c.last = used
	return time.After(max((c.limit-used)/time.Duration(runtime.NumCPU()), c.pause, cpuLookShare*time.Since(began)))
}

// Over returns the CPU time in the end, and whether that is more than the limit. used is what is known of it without c, and negative if
// nothing is. Looks may have seen more where no control group counts. c may be nil.
func (c *CPUClock) Over(used time.Duration) (time.Duration, bool) {
	if c == nil {
		return used, false
	}
	if c.last > 0 {
		used = max(used, c.last)
	}
	return used, used > c.limit
}

// CPUTree measures the CPU time of processes where no control group does: those that live, and those that were waited for.
type CPUTree struct {
	// Ended returns the CPU time of the processes that the runner or the init of a box has waited for.
	Ended func() time.Duration
	// Roots lists the living processes from which all others descend.
	Roots func() []int

	seen, lost time.Duration
}

// Used returns the CPU time of all processes, in steps of a few 10 ms. It never falls. Processes that nobody waits for, because their parent
// ignores SIGCHLD, are counted as far as looks have seen them.
func (t *CPUTree) Used() time.Duration {
	const looks = 3 // a process that ends during a look may be in neither part of the sum
	var most time.Duration
	for range looks {
		if most = max(most, t.look()); most+t.lost >= t.seen {
			t.seen = most + t.lost
			return t.seen
		}
	}
	t.lost = t.seen - most
	return t.seen
}

// look adds up once. Those that have ended come first, and parents before children. So what ends meanwhile may be missing, and nothing is
// counted twice.
func (t *CPUTree) look() time.Duration {
	sum := t.Ended()
	known := map[int]bool{}
	for queue := t.Roots(); len(queue) > 0 && len(known) < 1<<16; queue = queue[1:] {
		pid := queue[0]
		if known[pid] {
			continue
		}
		known[pid] = true
		sum += processTime(pid)
		queue = append(queue, ChildrenOf(pid)...)
	}
	return sum
}

// processTime returns the CPU time of a process and of the children that it has waited for; 0 if it is gone.
func processTime(pid int) time.Duration {
	f, _ := readStat(procfs(pid))
	if len(f) <= statChildrenSystem {
		return 0
	}
	// The clock of another process (clock_getcpuclockid) is exact. gVisor has none.
	var own unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|2), &own) //nolint:gosec // a process number
	used := time.Duration(own.Nano())
	if err != nil {
		used = ticks(f[statUser]) + ticks(f[statSystem])
	}
	return used + ticks(f[statChildrenUser]) + ticks(f[statChildrenSystem])
}

// ticks returns a number of USER_HZ, which is 100 on every Linux.
func ticks(field []byte) time.Duration {
	return time.Duration(parseNumber(field)) * (time.Second / 100)
}

// Tree measures the program that r waits for.
func (r *Reaper) Tree() *CPUTree {
	return &CPUTree{
		Ended: func() time.Duration {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.CPU + max(r.box.orphanTime()-r.orphans, 0)
		},
		Roots: func() []int {
			switch {
			case r.box == nil:
				return ChildrenOf(os.Getpid())
			case r.pid == noProcess: // the first process of the box is its parent
				return r.box.orphans()
			}
			return append([]int{r.pid}, r.box.orphans()...)
		},
	}
}
