package agent

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/session"
)

// runCommand runs the Command of x as a process of its own in the session.
func (x *execution) runCommand(s *session.Session) error {
	start := x.start
	start.Env, start.Path, start.Caches, start.Directory = s.VariablesOfCommands(), s.Start.Path, s.Start.Caches, ""
	p, err := sandbox.Resolve(start, s.Folder, x.agent.Config, archive.PythonFiles{})
	if err != nil {
		return err
	}
	g, err := s.NewGroup()
	x.group = g
	defer func() {
		if err := g.Remove(); err != nil {
			x.agent.Logf("clean up: %v", err)
		}
	}()
	if err != nil {
		return err
	}
	pipes, err := sandbox.MakePipes(x.agent.Config, x.start.Stdin)
	if err != nil {
		return err
	}
	x.spared = map[int]bool{}
	for _, pid := range x.agent.Children() {
		x.spared[pid] = true
	}
	used := s.MeterCPU(g, x.spared)
	cpu := sandbox.NewCPUClock(x.start.Limits.CPUTime, used)
	got, r := s.Reaper.Spawn(x.agent.Spawner(s.Start.Network), x.job(p, pipes, s.Start.Limits))
	if err := x.startError(p, pipes, got); err != nil {
		return err
	}
	x.setPID(got.PID, -1)
	x.agent.started(x, protocol.Started{Started: executor.Started{PID: got.PID, Start: executor.StartExec}})
	carried := x.carry(pipes, "", nil)
	look := sandbox.NewSampler(g, got.PID, got.At, x.start.SampleInterval)
	s.Bound.Soon()
	end, reason := x.supervise(got.At, r, look, cpu)
	x.setPID(0, -1)
	x.res.Wall, x.res.PeakResidentBytes = end.At.Sub(got.At), end.MaxRSS
	x.killCommand()
	carried.finish()
	x.res.Phases.Run = time.Since(got.At)
	x.verdict(end, reason, g.OOMKills() > 0, s.Bound.Full())
	x.account(end, r, look)
	x.res.CPU = used()
	x.nameClock(cpu)
	return nil
}

// killPrograms kills what x has started. Of a Command in a session that is its own tree, without the interpreter. The main
// process is killed first, with its process group. Otherwise a shell could see its child die, or fail to fork, and end by
// itself; the Result would then have its exit code instead of the signal.
func (x *execution) killPrograms() {
	x.signal(unix.SIGKILL)
	if x.spared == nil {
		x.agent.KillAll(x.group)
		return
	}
	x.killTree()
}

// killTree kills the processes of a Command once and returns them.
func (x *execution) killTree() []int {
	if len(x.group.Cgroups) > 0 {
		return x.group.KillOnce()
	}
	// Processes that a Command leaves become children of the runner, or of the box's init. So do those that the interpreter's
	// background processes leave meanwhile. They cannot be told apart and are killed, too.
	var queue []int
	for _, pid := range x.agent.Children() {
		if !x.spared[pid] {
			queue = append(queue, pid)
		}
	}
	for n := 0; n < len(queue) && n < 1<<16; n++ {
		queue = append(queue, sandbox.ChildrenOf(queue[n])...)
	}
	for _, pid := range queue {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be gone already
	}
	return queue
}

// killCommand kills until no process of a Command is left.
func (x *execution) killCommand() {
	if len(sandbox.RepeatKill(x.killTree)) > 0 {
		x.agent.die(fmt.Errorf("the program of %s does not die", x.start.ExecutionID))
	}
}
