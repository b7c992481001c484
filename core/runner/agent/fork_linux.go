package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// forkKey is what programs of one fork server have in common.
type forkKey struct {
	fork, interpreter, entrypoint, path, preimport string
	network, learn                                 bool
}

// serves reports whether the programs of start trust a server of k. Other programs must not meet its processes.
func (k forkKey) serves(start protocol.Start) bool {
	return k.fork == start.Fork && k.path == start.Path && (len(start.Interpreter) == 0 || k.interpreter == start.Interpreter[0])
}

// forkable returns the key of programs like p, and reports whether a fork may run them.
func (x *execution) forkable(p *sandbox.Program) (forkKey, bool) {
	s := x.start
	if s.Fork == "" || x.agent.Box == nil || s.Directory != "" || len(s.Command) > 0 || len(s.Interpreter) != 1 {
		return forkKey{}, false
	}
	return forkKey{s.Fork, p.Path, p.Argv[1], s.Path, strings.Join(s.Preimport, " "), s.Network, s.PreimportLearned}, true
}

// leaveForkServer ends a fork server that does not serve x, before anything of x is in the sandbox. The server may have written to the
// folder that is prepared.
func (x *execution) leaveForkServer() error {
	f := &x.agent.forks
	if f.server == nil || f.server.key.serves(x.start) {
		return nil
	}
	f.close()
	return x.prepared.RemoveFolder()
}

// refillFork asks the fork server for the copy for a next program. Nothing of x's program is left. It reports whether there is a
// server. It comes before the next folder is prepared, because a server that ends here must not have written to that folder.
func (x *execution) refillFork() bool {
	x.agent.EndFork.Store(nil)
	f := &x.agent.forks
	if f.server == nil {
		return false
	}
	if x.forkOf != nil {
		if key, ok := x.forkable(x.forkOf); ok && key != f.server.key {
			f.close()
			return false
		}
	}
	if sandbox.IsClosed(f.server.over) || f.outdated() {
		f.close()
		return false
	}
	f.server.refill()
	return true
}

// startForkServer starts a fork server for next programs that are like that of x. It does not wait for it. An interpreter in a private
// folder has none: it is there only while a program runs.
func (x *execution) startForkServer() {
	f := &x.agent.forks
	if x.forkOf == nil || f.server != nil {
		return
	}
	key, ok := x.forkable(x.forkOf)
	if !ok || !f.permits(key) || x.agent.Disk.Hides(filepath.Dir(key.interpreter)) {
		return
	}
	env, err := sandbox.Environment(protocol.Start{Path: x.start.Path, Caches: x.start.Caches}, x.folder)
	if err != nil {
		x.agent.Logf("fork server: %v", err)
		return
	}
	f.server = newForkServer(x.agent, key, zygote.Config{
		Interpreter: key.interpreter, Entrypoint: key.entrypoint, Dir: x.forkOf.Dir, Env: env, Preimport: x.start.Preimport,
		Learned: f.wanted(key), Learn: key.learn,
	})
}

// fork makes the copy that waits the program p. The Reaper is nil if there is none, or if only a new interpreter runs p as it must be
// run. After an error p has begun and was killed, so it must not run again.
func (x *execution) fork(p *sandbox.Program, job sandbox.Job) (got sandbox.Spawned, r *sandbox.Reaper, err error) {
	x.forkOf = p
	key, ok := x.forkable(p)
	s := x.agent.forks.server
	if !ok || s == nil || s.key != key || !sandbox.IsClosed(s.started) {
		return got, nil, nil
	}
	request := zygote.Request{Argv: p.Argv, Env: p.Env, Files: [3]int(job.Files)}
	f, usual := &x.agent.forks, slices.Equal(p.Env, s.config.Env)
	if s.zygote.Refuses(request) != "" {
		f.learn(key, nil, usual)
		return got, nil, nil
	}
	c := s.take()
	if c == nil {
		return got, nil, nil
	}
	got = sandbox.Spawned{PID: c.PID(), PIDFD: c.pidfd, At: time.Now()}
	if err = x.begin(s, c, request, job); err == nil {
		f.learn(key, c.Imports(), usual)
		return got, x.reapFork(s, c), nil
	}
	defer c.close()
	if refused, ok := errors.AsType[*zygote.RefusedError](err); ok {
		f.learn(key, nil, !refused.Clash)
		return got, nil, nil
	}
	x.agent.Logf("%v", err)
	s.fail(err) // the copy must not begin later
	s.end()
	if !c.Begun() {
		err = nil
	}
	return got, nil, err
}

// begin gives a copy its limits and the program. It returns an error unless the copy has both.
func (x *execution) begin(s *forkServer, c *forkCopy, r zygote.Request, job sandbox.Job) error {
	if !sandbox.IsAlive(c.pidfd) {
		return errors.New("fork server: the copy has ended")
	}
	var err error
	if r.Groups, err = x.agent.Admit(c.PID(), job); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), forkTakePatience)
	defer cancel()
	if err := c.Run(ctx, r); err != nil {
		return err
	}
	// A process that exits leaves its groups before it has ended.
	n, ok := s.group.Threads()
	if stays := ok && n > 1 || !job.Group.Has(c.PID()) && !sandbox.IsExiting(c.PID()); stays && sandbox.IsAlive(c.pidfd) {
		return fmt.Errorf("fork server: the copy %d is not in the control groups of its program", c.PID())
	}
	return nil
}

// reapFork returns a Reaper of a copy that runs.
func (x *execution) reapFork(s *forkServer, c *forkCopy) *sandbox.Reaper {
	x.forkBase, x.forkResident = c.base, c.resident
	watched := 0
	if c.resident > 0 && x.group.Measures() {
		watched = c.PID()
	}
	r := sandbox.NewForkReaper(x.agent.Sandbox, s.box, x.group, watched)
	end := func() error {
		if len(x.group.Cgroups) > 0 {
			x.group.KillOnce() // also where the server does not answer
		}
		ctx, cancel := context.WithTimeout(context.Background(), forkPatience)
		defer cancel()
		err := s.zygote.Empty(ctx)
		if err == nil {
			err = s.box.Emptied(x.group)
		}
		if err != nil && !sandbox.IsClosed(s.over) {
			x.agent.Notef("%v", err)
			s.fail(err)
			s.end()
		}
		return nil
	}
	x.agent.EndFork.Store(&end)
	x.agent.Go(func() {
		exit, err := c.Wait(context.Background())
		end := sandbox.Exit{Status: exit.Status, At: time.Now(), MaxRSS: exit.MaxRSS}
		if err != nil { // nobody else waits for its copies
			s.fail(err)
			s.end()
			end.Status, end.Lost = syscall.WaitStatus(unix.SIGKILL), s.err
		}
		if early := r.ForkEnded(end, exit.CPU); early && err != nil {
			x.agent.Notef("%v", err) // else it is in the Result
		}
	})
	return r
}
