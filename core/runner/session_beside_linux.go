package runner

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// runBeside runs x's Command as a process of its own in the session's sandbox.
func (x *execution) runBeside(s *session) error {
	cfg := x.agent.cfg
	start := x.start
	s.mu.Lock()
	start.Env, start.Path, start.Directory = s.env, s.start.Path, ""
	s.mu.Unlock()
	p, err := resolve(start, s.folder, cfg, "")
	if err != nil {
		return err
	}
	g, err := s.place()
	x.group = g
	defer func() {
		if err := g.remove(); err != nil {
			x.agent.logf("clean up: %v", err)
		}
	}()
	if err != nil {
		return err
	}
	io, err := makePipes(x.agent.cfg, x.start.Stdin)
	if err != nil {
		return err
	}
	files := make([]uintptr, len(io.theirs))
	for i, fd := range io.theirs {
		files[i] = uintptr(fd) //nolint:gosec // a descriptor
	}
	x.spared = map[int]bool{}
	for _, pid := range children(unix.Getpid()) {
		x.spared[pid] = true
	}
	got, r := s.reaper.spawn(x.agent.spawner(s.start.Network), spawnJob{
		path: p.path, argv: p.argv, env: p.env, dir: p.dir, files: files,
		uid: cfg.UID, gid: cfg.GID, ownUID: cfg.OwnUID, group: g, limits: s.start.Limits, inside: x.agent.inside,
	})
	io.closeTheirs()
	if got.err != nil {
		io.close()
		if got.ours {
			return failed(executor.Internal, executor.PhaseStart, "start: %v", got.err)
		}
		return startFailure(p, cfg.UID, got.err)
	}
	x.setPID(got.pid)
	x.agent.started(x, startedFrame{Started: executor.Started{PID: got.pid, Start: executor.StartExec}})
	outs := []*pump{
		newPump(executor.Stdout, io.stdout, x.box, x.start.Limits.OutputBytes),
		newPump(executor.Stderr, io.stderr, x.box, x.start.Limits.OutputBytes),
	}
	for _, o := range outs {
		x.agent.goGuarded(o.run)
	}
	fed := make(chan struct{})
	x.agent.goGuarded(func() {
		defer close(fed)
		if io.stdin != nil {
			feed(x.stdin, io.stdin)
		}
	})
	look := newSampler(g, got.pid, got.at, x.start.SampleInterval)
	go func() {
		select {
		case <-x.forcedNow:
			x.killPrograms()
		case <-fed:
		}
	}()
	end, reason := x.supervise(got.pid, got.at, r, look)
	x.setPID(0)
	x.res.Wall = end.at.Sub(got.at)
	x.killBeside()
	x.stdin.abort(errStopped)
	if io.stdin != nil {
		_ = io.stdin.Close() // feed may have closed it
	}
	<-fed
	for _, o := range outs {
		o.drain()
	}
	x.res.Phases.Run = time.Since(got.at)
	x.res.StdoutBytes, x.res.StdoutTruncated = outs[0].total, outs[0].truncated
	x.res.StderrBytes, x.res.StderrTruncated = outs[1].total, outs[1].truncated
	x.verdict(end, reason)
	x.account(r, look)
	if len(g.Cgroups) == 0 {
		x.res.CPU = -1
	}
	return nil
}

// killPrograms kills what x has started: of a Command in a session its own tree, which the interpreter is not in. Its main
// process goes first, with its process group: a shell that sees a child killed, or cannot fork any more, ends by itself,
// and its exit code would be told instead of the signal.
func (x *execution) killPrograms() {
	x.signal(unix.SIGKILL)
	if x.spared == nil {
		killAll(x.group)
		return
	}
	x.killTree()
}

// killTree kills once and returns how many there were.
func (x *execution) killTree() int {
	if len(x.group.Cgroups) > 0 {
		return x.group.killOnce()
	}
	// What a Command leaves is the runner's child. So is what the interpreter's own background processes leave meanwhile,
	// which cannot be told apart: it goes, too.
	var queue []int
	for _, pid := range children(unix.Getpid()) {
		if !x.spared[pid] {
			queue = append(queue, pid)
		}
	}
	for n := 0; n < len(queue) && n < 1<<16; n++ {
		queue = append(queue, children(queue[n])...)
	}
	for _, pid := range queue {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be gone already
	}
	return len(queue)
}

// killBeside kills until nothing of a Command is left.
func (x *execution) killBeside() {
	deadline := time.Now().Add(killPatience)
	for pause := 100 * time.Microsecond; x.killTree() > 0; pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			x.agent.die(fmt.Errorf("the program of %s does not die", x.start.ExecutionID))
		}
		time.Sleep(pause)
	}
}
