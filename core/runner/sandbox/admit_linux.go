package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// Admit puts a process of a box that waits, and that is no child of the runner, into the groups of job, and gives it the limits.
func (b *Sandbox) Admit(pid int, job Job) error {
	var err error
	for _, fd := range job.Group.tasks {
		err = errors.Join(err, writeControl(fd, strconv.Itoa(pid)))
	}
	if job.Group.fd != nil {
		err = errors.Join(err, job.Group.adopt(pid))
	}
	if err != nil {
		return fmt.Errorf("enter control group: %w", err)
	}
	job.Group.LeavePrepared(nil) // no thread starts anything there
	job.Group.lower(job.Limits)
	hardenLimits(pid, job)
	return nil
}

// NewForkReaper is NewReaper for a program that is a child of the first process of in, which waits for it. The caller calls
// ForkEnded.
func NewForkReaper(b *Sandbox, in *Box) *Reaper {
	r := &Reaper{pid: noProcess, Main: make(chan Exit, 1), Empty: make(chan struct{}), box: in, outer: b.Box}
	if len(b.Config.Cgroups) == 0 { // else the groups tell
		r.orphans = in.orphanTime()
	}
	b.Go(r.loop)
	return r
}

const noProcess = -1

// ForkEnded tells r of the end of its main process. cpu is the time of the process.
func (r *Reaper) ForkEnded(status syscall.WaitStatus, cpu time.Duration) {
	r.mu.Lock()
	r.forked, r.ended = &Exit{Status: status, At: time.Now()}, true
	r.CPU += cpu
	r.mu.Unlock()
	r.reap()
}
