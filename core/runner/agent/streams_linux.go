package agent

import (
	"sync/atomic"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// streams carry the standard streams of a program while it runs.
type streams struct {
	execution *execution
	pipes     *sandbox.Pipes
	outs      [2]*output.Pump
	fed       chan struct{} // closed when nothing is written to the program's standard input any more
}

// carry begins to feed a program and to read its output. The output begins with notice on stderr. ended, if not nil, is called
// when both output streams have ended.
func (x *execution) carry(pipes *sandbox.Pipes, notice string, ended func()) *streams {
	s := &streams{execution: x, pipes: pipes, fed: make(chan struct{}), outs: [2]*output.Pump{
		output.NewPump(executor.Stdout, pipes.Stdout, x.box, x.start.Limits.OutputBytes),
		output.NewPump(executor.Stderr, pipes.Stderr, x.box, x.start.Limits.OutputBytes),
	}}
	s.outs[1].Before = notice
	var closed atomic.Int32
	for _, o := range s.outs {
		o.Ended = func() {
			if closed.Add(1) == int32(len(s.outs)) && ended != nil { //nolint:gosec // two
				ended()
			}
		}
		x.agent.Go(o.Run)
	}
	x.agent.Go(func() {
		defer close(s.fed)
		if pipes.Stdin != nil {
			output.Feed(x.stdin, pipes.Stdin)
		}
	})
	return s
}

// finish waits for the rest of the output and counts it. No process of the program is alive.
func (s *streams) finish() {
	x := s.execution
	x.stdin.Abort(protocol.ErrStopped)
	if s.pipes.Stdin != nil {
		_ = s.pipes.Stdin.Close() // Feed may have closed it
	}
	<-s.fed
	for _, o := range s.outs {
		o.Drain()
	}
	x.countOutput(s.outs[0].Tally, s.outs[1].Tally)
}

func (x *execution) countOutput(stdout, stderr output.Tally) {
	x.res.StdoutBytes, x.res.StdoutTruncated = stdout.Total, stdout.Truncated
	x.res.StderrBytes, x.res.StderrTruncated = stderr.Total, stderr.Truncated
}

// job returns what a Spawner needs to start p.
func (x *execution) job(p *sandbox.Program, pipes *sandbox.Pipes, limits executor.Limits) sandbox.Job {
	cfg := x.agent.Config
	return sandbox.Job{
		Path: p.Path, Argv: p.Argv, Env: p.Env, Dir: p.Dir, Files: pipes.Theirs,
		UID: cfg.UID, GID: cfg.GID, OwnUID: cfg.OwnUID, Group: x.group, Limits: limits, Inside: x.agent.Inside,
	}
}

// startError returns why p was not started, after it has closed the pipes. It returns nil if p was started.
func (x *execution) startError(p *sandbox.Program, pipes *sandbox.Pipes, got sandbox.Spawned) error {
	pipes.CloseTheirs()
	if got.Err == nil {
		return nil
	}
	pipes.Close()
	if err := x.agent.Box.Broken(); err != nil {
		x.agent.die(err) // not the program's failure, so there is no Result
	}
	if got.Ours {
		return sandbox.Failed(executor.Internal, executor.PhaseStart, "start: %v", got.Err)
	}
	return x.folder.StartFailure(p, x.agent.Config.UID, got.Err)
}
