package sandbox

import (
	"fmt"
	"time"
)

// Admit gives a process of a box that waits, and that is no child of the runner, the limits of job. It returns the files through which
// the process has to enter the v1 groups itself: moving another process takes a lock for which the kernel waits milliseconds.
func (b *Sandbox) Admit(pid int, job Job) (enter []int, err error) {
	g := job.Group
	if g.fd != nil && g.needsV2() {
		if err := g.adopt(pid); err != nil {
			return nil, fmt.Errorf("enter control group: %w", err)
		}
	}
	g.LeavePrepared(nil) // no thread starts anything there
	g.lower(job.Limits)
	hardenLimits(pid, job)
	return g.tasks, nil
}

// needsV2 reports whether the v2 group limits or measures what is in it. Otherwise the v1 groups do both.
func (g *Group) needsV2() bool {
	return g.v2 || g.cpu != "" || g.pids == g.Cgroups[unified] || g.Cgroups["cpuacct"] == ""
}

// NewForkReaper is NewReaper for a program in g that is a child of the first process of in, which waits for it. The caller calls
// ForkEnded. The exit of the process pid is seen early. pid is 0 if that is not wanted.
func NewForkReaper(b *Sandbox, in *Box, g *Group, pid int) *Reaper {
	r := &Reaper{pid: noProcess, copy: pid, Main: make(chan Exit, 1), Empty: make(chan struct{}), box: in, outer: b.Box, group: g}
	if len(b.Config.Cgroups) == 0 { // else the groups tell
		r.orphans = in.orphanTime()
	}
	b.Go(r.loop)
	return r
}

const noProcess = -1

// ForkEnded tells r of the end of its main process. cpu is the time of the process. early reports that Main has been told before.
func (r *Reaper) ForkEnded(end Exit, cpu time.Duration) (early bool) {
	r.mu.Lock()
	early = r.early
	r.forked, r.ended = &end, true
	r.CPU += cpu
	r.orphans += cpu // the first process of the box has waited for it too
	r.mu.Unlock()
	r.reap()
	return early
}
