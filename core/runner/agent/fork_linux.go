package agent

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// The bounds of a fork server: of its start, of what a copy takes, and of its life.
const (
	forkStartPatience = 20 * time.Second
	forkPatience      = 2 * time.Second
	maxForks          = 1000
	maxForkAge        = 30 * time.Minute
)

// forkServer is the fork server of a box, and the copy that waits for the next program. The zero value has none.
type forkServer struct {
	// key is what the server is for, also if it cannot be forked: then it is not started again.
	key    forkKey
	zygote *zygote.Zygote
	slot   *zygote.Slot
	box    *sandbox.Box // its namespaces
	queues *sandbox.Queues
	forks  int
	born   time.Time
}

// forkKey is what programs of one fork server have in common.
type forkKey struct {
	fork, interpreter, entrypoint, path string
	network                             bool
}

// close ends the server.
func (f *forkServer) close() {
	if f.zygote != nil {
		_ = f.zygote.Close() // never fails
	}
	_ = f.queues.Close() // read only
	*f = forkServer{}
}

// forkable returns the key of programs like p, and reports whether a fork may run them.
func (x *execution) forkable(p *sandbox.Program) (forkKey, bool) {
	s := x.start
	if s.Fork == "" || x.agent.Box == nil || s.Directory != "" || len(s.Command) > 0 || len(s.Interpreter) != 1 {
		return forkKey{}, false
	}
	return forkKey{s.Fork, p.Path, p.Argv[1], s.Path, s.Network}, true
}

// fork makes the copy that waits the program p. The Reaper is nil if there is none, or if only a new interpreter runs p as it must be
// run.
func (x *execution) fork(p *sandbox.Program, job sandbox.Job) (sandbox.Spawned, *sandbox.Reaper) {
	f := &x.agent.forks
	x.forkOf = p
	key, ok := x.forkable(p)
	if !ok || f.slot == nil || f.key != key {
		return sandbox.Spawned{}, nil
	}
	r := zygote.Request{Argv: p.Argv, Env: p.Env, Files: [3]int(job.Files)}
	if f.zygote.Refuses(r) != "" {
		return sandbox.Spawned{}, nil
	}
	slot := f.slot
	f.slot = nil
	got := sandbox.Spawned{PID: slot.PID(), PIDFD: -1}
	pidfd, err := unix.PidfdOpen(slot.PID(), 0)
	if err == nil {
		r.Groups, err = x.agent.Admit(slot.PID(), job)
	}
	if err == nil {
		got.At, got.PIDFD = time.Now(), pidfd
		ctx, cancel := context.WithTimeout(context.Background(), forkPatience)
		err = slot.Run(ctx, r)
		cancel()
	}
	var refused *zygote.RefusedError
	switch {
	case err == nil:
		return got, x.reapFork(slot)
	case errors.As(err, &refused):
	default:
		x.agent.Logf("%v", err)
		f.close() // the copy must not begin later
	}
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	return sandbox.Spawned{}, nil
}

// reapFork returns a Reaper of a copy that runs.
func (x *execution) reapFork(slot *zygote.Slot) *sandbox.Reaper {
	end := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), sandbox.KillPatience)
		defer cancel()
		return x.agent.forks.zygote.Empty(ctx)
	}
	x.agent.EndFork.Store(&end)
	r := sandbox.NewForkReaper(x.agent.Sandbox, x.agent.forks.box)
	x.agent.Go(func() {
		exit, err := slot.Wait(context.Background())
		if err != nil { // the server was killed, and nobody else waits for its copies
			exit.Status = syscall.WaitStatus(unix.SIGKILL)
		}
		x.forkPeak = exit.MaxRSS
		r.ForkEnded(exit.Status, exit.CPU)
	})
	return r
}

// prepareFork makes the copy for a next program that is like that of x. Nothing of x's program is left.
func (x *execution) prepareFork() error {
	f := &x.agent.forks
	x.agent.EndFork.Store(nil)
	if x.forkOf == nil {
		return nil
	}
	key, ok := x.forkable(x.forkOf)
	if !ok {
		return nil
	}
	if f.zygote != nil && (f.key != key || f.forks >= maxForks || time.Since(f.born) > maxForkAge || sandbox.IsClosed(f.zygote.Gone())) {
		f.close()
	}
	for {
		isNew := f.zygote == nil
		if isNew && f.key == key {
			return nil // it cannot be forked
		}
		if isNew {
			if err := x.startForkServer(key); err != nil {
				return err
			}
		}
		err := f.refill()
		if err == nil {
			return nil
		}
		f.close() // it may have been killed with the processes of x
		if isNew {
			return err
		}
	}
}

// refill makes the copy that waits, unless there is one.
func (f *forkServer) refill() error {
	if f.slot != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), forkPatience)
	defer cancel()
	err := errors.Join(f.zygote.Empty(ctx), f.queues.Remove())
	if err == nil {
		f.slot, err = f.zygote.Fork(ctx)
	}
	if err == nil {
		f.forks++
	}
	return err
}

func (x *execution) startForkServer(key forkKey) error {
	f := &x.agent.forks
	f.key, f.born = key, time.Now()
	env, err := sandbox.Environment(protocol.Start{Path: x.start.Path}, x.folder)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), forkStartPatience)
	defer cancel()
	launch := func(c zygote.Command) (zygote.Process, error) {
		var files []uintptr
		for _, file := range c.Files {
			files = append(files, file.Fd())
		}
		var err error
		f.box, err = x.agent.StartForkInit(&sandbox.Program{Path: c.Path, Argv: c.Argv, Env: c.Env, Dir: c.Dir}, key.network, files)
		return forkInit{f.box}, err
	}
	f.zygote, err = zygote.New(ctx, zygote.Config{
		Interpreter: key.interpreter, Entrypoint: key.entrypoint, Dir: x.forkOf.Dir, Env: env, Launch: launch,
	})
	if err != nil {
		f.zygote = nil
		return err
	}
	if f.queues, err = sandbox.QueuesOf(f.box.PID()); err != nil {
		_ = f.zygote.Close() // never fails
		f.zygote = nil
	}
	return err
}

// forkInit is the process of a fork server.
type forkInit struct{ *sandbox.Box }

// Kill implements zygote.Process.
func (p forkInit) Kill() error {
	p.Destroy()
	return nil
}

// Wait implements zygote.Process.
func (p forkInit) Wait() error {
	<-p.Over
	return p.CloseFork()
}
