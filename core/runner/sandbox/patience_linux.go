package sandbox

import (
	"bytes"
	"os"
	"time"
)

// KillPatience bounds how long kills are repeated. A process that is alive then hangs in the kernel. A killed process needs a processor to
// end, so time in which it waits for one does not count (Patience).
const KillPatience = 10 * time.Second

// Patience tells processes that hang in the kernel from those that have got no processor yet, as on a busy machine.
type Patience struct {
	looked time.Time
	// waited is how long each process had waited for a processor at that time; nil before the first look.
	waited map[int]time.Duration
}

// NewPatience returns a Patience for processes that are killed now.
func NewPatience() *Patience { return &Patience{looked: time.Now()} }

// Left is the time until Over looks again.
func (p *Patience) Left() time.Duration { return max(time.Until(p.looked.Add(KillPatience/2)), 0) }

// Over reports whether KillPatience is over and none of the processes that pids lists has waited for a processor most of the time since the last look. It is
// cheap until then, and false where nothing is left.
func (p *Patience) Over(pids func() []int) bool {
	if p.Left() > 0 {
		return false
	}
	return p.over(pids(), time.Now(), waitedForProcessor)
}

func (p *Patience) over(pids []int, now time.Time, waited func(pid int) time.Duration) bool {
	since, before := now.Sub(p.looked), p.waited
	p.looked, p.waited = now, map[int]time.Duration{}
	starved := false
	for _, pid := range pids {
		w := waited(pid)
		p.waited[pid] = w
		had, known := before[pid]
		starved = starved || known && w-had >= since/2
	}
	return before != nil && !starved
}

// waitedForProcessor returns how long that thread of a process has been able to run without a processor that has waited longest. It is 0 where the
// kernel does not tell.
func waitedForProcessor(pid int) (longest time.Duration) {
	threads, _ := os.ReadDir(procfs(pid) + "/task") // a process that is gone has none
	for _, t := range threads {
		raw, _ := readGroup(procfs(pid)+"/task/"+t.Name(), "schedstat")
		if f := bytes.Fields(raw); len(f) > 1 {
			longest = max(longest, time.Duration(parseNumber(f[1])))
		}
	}
	return longest
}
