package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// startPatience bounds how long an interpreter takes to be ready.
const startPatience = 60 * time.Second

// interpreter is one process with a driver in it.
type interpreter struct {
	session *session
	pid     int
	group   *group
	control *os.File
	taps    [2]*tap
	process *reaper

	// exited is closed when the process is gone; end says how.
	exited chan struct{}
	end    ended
	// broken is closed when nothing can be heard from the driver any more.
	broken chan struct{}
	why    error

	mu      sync.Mutex
	last    int64 // number of the last operation
	hears   chan drivers.Answer
	leaves  chan struct{}
	dropped int64 // displays that came when nobody ran
}

// startInterpreter starts one and waits until its driver is ready.
func (s *session) startInterpreter(ctx context.Context) error {
	i, err := s.spawnInterpreter()
	if err != nil {
		return err
	}
	if err := i.greet(ctx); err != nil {
		i.stop()
		return err
	}
	s.mu.Lock()
	s.interp = i
	s.mu.Unlock()
	return nil
}

// stopInterpreter kills the interpreter and all that it left running. The caller has the turn, or nobody can.
func (s *session) stopInterpreter() {
	s.mu.Lock()
	i := s.interp
	s.interp = nil
	s.mu.Unlock()
	if i != nil {
		i.stop()
	}
}

func (s *session) spawnInterpreter() (_ *interpreter, err error) {
	cfg := s.agent.cfg
	i := &interpreter{session: s, group: &group{}, exited: make(chan struct{}), broken: make(chan struct{})}
	defer func() {
		if err != nil {
			i.release()
		}
	}()
	env, err := s.environ()
	if err != nil {
		return nil, refused(err)
	}
	argv := slices.Concat(s.start.Interpreter, s.driver.Command)
	path, err := lookUp(argv[0], s.folder.path, env)
	if err != nil {
		return nil, refused(err)
	}
	if i.group, err = s.place(); err != nil {
		return nil, err
	}
	theirs, err := i.connect(cfg)
	defer func() {
		for _, fd := range theirs {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return nil, err
	}
	files := make([]uintptr, len(theirs))
	for n, fd := range theirs {
		files[n] = uintptr(fd) //nolint:gosec // a descriptor
	}
	got, r := s.reaper.spawn(s.agent.spawner(s.start.Network), spawnJob{
		path: path, argv: argv, env: env, dir: s.folder.path, files: files,
		uid: cfg.UID, gid: cfg.GID, ownUID: cfg.OwnUID, group: i.group, limits: s.start.Limits, inside: s.agent.inside,
	})
	if got.err != nil && got.ours {
		return nil, fmt.Errorf("start the interpreter: %w", got.err)
	} else if got.err != nil {
		return nil, refused(startFailure(&program{path: path, argv: argv, dir: s.folder.path}, cfg.UID, got.err))
	}
	i.pid, i.process = got.pid, r
	s.agent.goGuarded(func() {
		i.end = <-r.main
		close(i.exited)
	})
	for _, t := range i.taps {
		s.agent.goGuarded(t.run)
	}
	s.agent.goGuarded(i.listen)
	return i, nil
}

// refused turns what an Execution would report as its Failure into an error.
func refused(err error) error {
	var f *failure
	if errors.As(err, &f) {
		code := f.Code
		if code == executor.NotFound {
			code = executor.Invalid // not_found is a session that is not there
		}
		return executor.Errorf(code, "start the interpreter: %s", f.Message)
	}
	return err
}

// connect makes the interpreter's descriptors; theirs are 0, 1, 2 and the control channel.
func (i *interpreter) connect(cfg Config) (theirs []int, err error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pipes: %w", err)
	}
	theirs = append(theirs, null)
	for n, stream := range []executor.Stream{executor.Stdout, executor.Stderr} {
		fds, err := programPipe(cfg)
		if err != nil {
			return theirs, fmt.Errorf("pipes: %w", err)
		}
		theirs = append(theirs, fds[1])
		err = unix.SetNonblock(fds[0], true)
		i.taps[n] = newTap(stream, os.NewFile(uintptr(fds[0]), "pipe")) //nolint:gosec // a descriptor
		if err != nil {
			return theirs, fmt.Errorf("pipes: %w", err)
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return theirs, fmt.Errorf("control channel: %w", err)
	}
	theirs = append(theirs, fds[1])
	err = unix.SetNonblock(fds[0], true)
	i.control = os.NewFile(uintptr(fds[0]), "control") //nolint:gosec // a descriptor
	return theirs, err
}

// greet gives the driver its text and waits until it is ready. What was printed until then is nobody's.
func (i *interpreter) greet(ctx context.Context) error {
	s := i.session
	s.mu.Lock()
	paths := slices.Clone(s.paths)
	s.mu.Unlock()
	first, err := s.driver.Encode(drivers.Operation{
		Op: "start", Paths: paths, Preload: s.start.Preload, MaxData: executor.MaxDisplayData, MaxDisplays: executor.MaxDisplays,
	})
	if err != nil {
		return executor.Errorf(executor.Internal, "start: %w", err)
	}
	answers, leave := i.hear()
	defer leave()
	i.write(slices.Concat(s.driver.First, first))
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			if a.Op != "ready" {
				continue
			}
			for _, t := range i.taps {
				t.forget()
			}
			return nil
		case <-i.exited:
			return i.unready("it ended: " + describeEnd(i.end.status))
		case <-i.broken:
			select { // mostly because it ends
			case <-i.exited:
				return i.unready("it ended: " + describeEnd(i.end.status))
			case <-time.After(time.Second):
			}
			return i.unready(i.why.Error())
		case <-timer.C:
			return i.unready(fmt.Sprintf("nothing was heard from it within %s", startPatience))
		case <-ctx.Done():
			return executor.Errorf(executor.Unavailable, "start the interpreter: %w", context.Cause(ctx))
		}
	}
}

// unready explains with the interpreter's own last words.
func (i *interpreter) unready(why string) error {
	for _, t := range i.taps {
		t.drain()
	}
	said := i.taps[1].tail(2000)
	if said != "" {
		why += ": " + said
	}
	if i.group.oomKills() > 0 {
		// SessionFits knows what an interpreter needs, but not what its start-up imports.
		limit := i.session.start.Limits.MemoryBytes >> 20
		return executor.FieldErrorf(executor.Invalid, "config.memory_mb", "must be more than %d: the interpreter needs more to come up; %d may do", limit, 2*limit)
	}
	return executor.Errorf(executor.Unavailable, "the interpreter does not come up: %s", why)
}

func describeEnd(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return signalName(ws.Signal())
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}

// kill kills the interpreter and all that descends from it. exited follows.
func (i *interpreter) kill() {
	if len(i.group.Cgroups) > 0 {
		i.group.killOnce()
		return
	}
	for _, pid := range descendants() { // no Command runs when an interpreter is killed
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
}

// stop kills until nothing of it is left, and gives everything back.
func (i *interpreter) stop() {
	i.killAll()
	i.release()
}

func (i *interpreter) killAll() {
	deadline := time.Now().Add(killPatience)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		var left int
		if len(i.group.Cgroups) > 0 {
			left = i.group.killOnce()
		} else {
			i.kill()
			left = len(descendants())
		}
		timer := time.NewTimer(pause)
		select {
		case <-i.exited:
			if left == 0 {
				timer.Stop()
				return
			}
			<-timer.C
		case <-timer.C:
		}
		if time.Now().After(deadline) {
			i.session.agent.die(fmt.Errorf("the interpreter of %s does not die", i.session.start.SessionID))
		}
	}
}

// release closes our ends and removes the groups. The process is gone, or was never there.
func (i *interpreter) release() {
	if i.control != nil {
		_ = i.control.Close() // listen ends
	}
	for _, t := range i.taps {
		if t != nil {
			t.close()
		}
	}
	if err := i.group.remove(); err != nil {
		i.session.agent.logf("clean up: %v", err)
	}
}
