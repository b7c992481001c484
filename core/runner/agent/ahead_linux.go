package agent

import (
	"cmp"
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/session"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// ahead is the interpreter of Config.Ahead. No other process but the runner is in the container before it is taken or dropped.
type ahead struct {
	agent  *agent
	cancel context.CancelFunc
	ready  chan struct{} // closed when slot is there, or nil for good
	slot   *zygote.Slot
	// waiting is in the place of slot where Config.Ahead.Session says so. It is valid once ready is closed.
	waiting *session.Waiting
}

// startAhead starts the interpreter of Config.Ahead in the background.
func (a *agent) startAhead() {
	if a.Config.Ahead == nil || a.Inside == nil || a.Inside.GVisor {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forkStartPatience)
	h := &ahead{agent: a, cancel: cancel, ready: make(chan struct{})}
	a.ahead.Store(h)
	a.Go(func() {
		defer cancel()
		defer close(h.ready)
		if err := h.start(ctx); err != nil {
			if !errors.Is(err, context.Canceled) {
				a.Notef("no interpreter waits: %v", err)
			}
			h.kill()
		}
	})
}

func (h *ahead) start(ctx context.Context) (err error) {
	cfg := h.agent.Config
	if cfg.Ahead.Session {
		h.waiting, err = session.Wait(h.agent.Sandbox, *cfg.Ahead)
		return err
	}
	folder := &sandbox.Folder{Path: cfg.WorkRoot, Temp: cmp.Or(cfg.Temp, "/tmp")}
	env, err := sandbox.Environment(protocol.Start{Path: cfg.Ahead.Path}, folder)
	if err != nil {
		return err
	}
	h.slot, err = zygote.Start(ctx, zygote.Config{
		Interpreter: cfg.Ahead.Interpreter, Entrypoint: sandbox.MainFile, Dir: folder.Path, Env: env,
		Launch: func(c zygote.Command) (zygote.Process, error) {
			job := sandbox.Job{
				Path: c.Path, Argv: c.Argv, Env: c.Env, Dir: c.Dir, UID: cfg.UID, GID: cfg.GID, OwnUID: cfg.OwnUID,
				Group: &sandbox.Group{Everything: true}, Inside: h.agent.Inside,
			}
			for _, f := range c.Files {
				job.Files = append(job.Files, int(f.Fd()))
			}
			got := h.agent.Spawner(true).Start(job)
			return aheadProcess{h, got.PID}, got.Err
		},
	})
	return err
}

// kill kills and waits for all processes but the runner. It reports whether a program may have begun. h may be nil.
func (h *ahead) kill() (begun bool) {
	if h == nil {
		return false
	}
	if h.slot != nil {
		defer h.slot.Close()
	}
	h.waiting.Close()
	left := sandbox.RepeatKill(func() []int {
		h.agent.KillAll(&sandbox.Group{Everything: true})
		for {
			pid, err := syscall.Wait4(-1, nil, unix.WALL|unix.WNOHANG, nil)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return nil // there is no child
			case pid == 0:
				if alive := h.agent.Descendants(); len(alive) > 0 {
					return alive
				} // else it has just ended
			}
		}
	})
	if len(left) > 0 {
		h.agent.Logf("a process that is not of a program does not die")
		return true
	}
	return h.slot != nil && h.slot.Begun()
}

// aheadProcess is a zygote.Process. The caller of zygote.Start kills and waits.
type aheadProcess struct {
	*ahead
	pid int
}

// Kill implements zygote.Process.
func (p aheadProcess) Kill() error { return syscall.Kill(p.pid, syscall.SIGKILL) }

// Wait implements zygote.Process.
func (p aheadProcess) Wait() error {
	p.kill()
	return nil
}

// aheadFor takes the interpreter that waits for a session like start, or returns nil. Any other interpreter that waits is ended.
func (a *agent) aheadFor(start protocol.SessionStart) *ahead {
	h := a.ahead.Load()
	if h != nil && a.Config.Ahead.Session {
		<-h.ready
		if h.waiting != nil && h.waiting.Fits(start) {
			a.ahead.Store(nil)
			return h
		}
	}
	a.dropAhead()
	return nil
}

func (h *ahead) forSession() *session.Waiting {
	if h == nil {
		return nil
	}
	return h.waiting
}

// dropAhead ends the interpreter that waits, if there is one.
func (a *agent) dropAhead() {
	if h := a.ahead.Swap(nil); h != nil {
		h.cancel()
		<-h.ready
		h.kill()
	}
}

// takeWaiting makes a waiting copy or interpreter the program p. The Reaper is nil if there is none. After an error p may have begun and
// was killed, so it must not run again.
func (x *execution) takeWaiting(p *sandbox.Program, job sandbox.Job) (sandbox.Spawned, *sandbox.Reaper, error) {
	if x.agent.Inside == nil {
		return x.fork(p, job)
	}
	got, ok, err := x.useAhead(p, job)
	if !ok {
		return got, nil, err
	}
	return got, sandbox.NewReaper(x.agent.Sandbox, got.PID), nil
}

// useAhead makes the interpreter that waits the program p. It reports false if there is none, or if only a new interpreter runs p as it
// must be run. No process but the runner is left then. After an error p has begun and was killed, so it must not run again.
func (x *execution) useAhead(p *sandbox.Program, job sandbox.Job) (got sandbox.Spawned, ok bool, err error) {
	h := x.agent.ahead.Swap(nil)
	if h == nil {
		return got, false, nil
	}
	if x.fitsAhead(p) {
		select { // its start has begun before that of another could begin
		case <-h.ready:
		case <-x.cancelled:
		case <-time.After(forkPatience):
		}
		if sandbox.IsClosed(h.ready) && h.slot != nil {
			if got, err = x.beginAhead(h.slot, p, job); err == nil {
				return got, true, nil
			}
			if _, refused := errors.AsType[*zygote.RefusedError](err); refused {
				err = nil
			} else {
				x.agent.Notef("the interpreter that waits is not used: %v", err)
			}
		}
	}
	h.cancel()
	<-h.ready
	if !h.kill() {
		err = nil
	}
	return got, false, err
}

// aheadMemory is the least Limits.MemoryBytes with which the interpreter that waits may run a program. It needs a little more than another.
const aheadMemory = 32 << 20

// fitsAhead reports whether the interpreter that waits is the one that p asks for.
func (x *execution) fitsAhead(p *sandbox.Program) bool {
	cfg, s := x.agent.Config.Ahead, x.start
	return s.Directory == "" && len(s.Command) == 0 && len(s.Interpreter) == 1 && p.Path == cfg.Interpreter && s.Path == cfg.Path &&
		(s.Limits.MemoryBytes == 0 || s.Limits.MemoryBytes >= aheadMemory)
}

// beginAhead makes slot, a child of the runner, the program p.
func (x *execution) beginAhead(slot *zygote.Slot, p *sandbox.Program, job sandbox.Job) (sandbox.Spawned, error) {
	got := sandbox.Spawned{PID: slot.PID(), PIDFD: -1}
	groups, err := x.agent.Admit(got.PID, job)
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), forkTakePatience)
	defer cancel()
	got.At = time.Now()
	if err := slot.Run(ctx, zygote.Request{Argv: p.Argv, Env: p.Env, Files: [3]int(job.Files), Groups: groups}); err != nil {
		return got, err
	}
	if got.PIDFD, err = unix.PidfdOpen(got.PID, 0); err != nil {
		got.PIDFD = -1 // the end is seen a little later
	}
	return got, nil
}
