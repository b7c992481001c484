package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// startPatience bounds how long an interpreter may take until it is ready.
const startPatience = 60 * time.Second

// Interpreter is a process with a driver in it.
type Interpreter struct {
	session *Session
	PID     int
	Group   *sandbox.Group
	control *os.File
	Outputs [2]*OutputStream
	process *sandbox.Reaper
	loaded  bool // the driver's code was sent

	// Exited is closed when the process has ended. End tells how.
	Exited chan struct{}
	End    sandbox.Exit
	// Broken is closed when the driver can no longer be heard. Why tells the reason.
	Broken chan struct{}
	Why    error

	mu      sync.Mutex
	last    int64 // number of the last operation
	hears   chan drivers.Answer
	leaves  chan struct{}
	dropped int64 // Displays that came between two cells
}

// StartInterpreter starts an interpreter and waits until its driver is ready.
func (s *Session) StartInterpreter(ctx context.Context) error {
	i := s.adoptWaiting()
	if i != nil && i.greet(ctx) != nil {
		i.stop()
		i = nil
	}
	if i == nil {
		var err error
		if i, err = s.spawnInterpreter(); err != nil {
			return err
		}
		if err := i.greet(ctx); err != nil {
			i.stop()
			return err
		}
	}
	s.mu.Lock()
	s.interp = i
	s.mu.Unlock()
	return nil
}

// StopInterpreter kills the interpreter and all that it has left. The caller has the turn, or nobody can get it.
func (s *Session) StopInterpreter() {
	s.mu.Lock()
	i := s.interp
	s.interp = nil
	s.mu.Unlock()
	if i != nil {
		i.stop()
	}
}

func newInterpreter() *Interpreter {
	return &Interpreter{Group: &sandbox.Group{}, Exited: make(chan struct{}), Broken: make(chan struct{})}
}

func (s *Session) spawnInterpreter() (_ *Interpreter, err error) {
	cfg := s.sandbox.Config
	i := newInterpreter()
	i.session = s
	defer func() {
		if err != nil {
			i.release()
		}
	}()
	env, err := s.environ()
	if err != nil {
		return nil, refused(err)
	}
	argv := slices.Concat(s.Start.Interpreter, s.Driver.Command)
	path, err := s.Folder.LookUp(argv[0], s.Folder.Path, env)
	if err != nil {
		return nil, refused(err)
	}
	if i.Group, err = s.NewGroup(); err != nil {
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
	job := s.job(i.Group)
	job.Path, job.Argv, job.Env, job.Dir, job.Files = path, argv, env, s.Folder.Path, theirs
	got, r := s.Reaper.Spawn(s.sandbox.Spawner(s.Start.Network), job)
	if got.Err != nil && got.Ours {
		return nil, fmt.Errorf("start the interpreter: %w", got.Err)
	} else if got.Err != nil {
		return nil, refused(s.Folder.StartFailure(&sandbox.Program{Path: path, Argv: argv, Dir: s.Folder.Path}, cfg.UID, got.Err))
	}
	i.PID, i.process = got.PID, r
	i.follow()
	return i, nil
}

// PeakResident returns the peak of the resident memory of the process since its start, in bytes; 0 if unknown.
func (i *Interpreter) PeakResident() int64 {
	if sandbox.IsClosed(i.Exited) {
		return i.End.MaxRSS
	}
	return sandbox.PeakResident(i.PID)
}

// follow begins to read what a process says, and to wait for its end.
func (i *Interpreter) follow() {
	b := i.session.sandbox
	b.Go(func() {
		i.End = <-i.process.Main
		close(i.Exited)
	})
	for _, t := range i.Outputs {
		b.Go(t.run)
	}
	b.Go(i.listen)
}

// refused turns an Execution's Failure into an error.
func refused(err error) error {
	var f *sandbox.Failure
	if errors.As(err, &f) {
		code := f.Code
		if code == executor.NotFound {
			code = executor.Invalid // not_found is a session that is not there
		}
		return executor.Errorf(code, "start the interpreter: %s", f.Message)
	}
	return err
}

// connect makes the interpreter's descriptors. theirs are 0, 1, 2 and the control channel.
func (i *Interpreter) connect(cfg protocol.Config) (theirs []int, err error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pipes: %w", err)
	}
	theirs = append(theirs, null)
	for n, stream := range []executor.Stream{executor.Stdout, executor.Stderr} {
		fds, err := sandbox.ProgramPipe(cfg)
		if err != nil {
			return theirs, fmt.Errorf("pipes: %w", err)
		}
		theirs = append(theirs, fds[1])
		err = unix.SetNonblock(fds[0], true)
		i.Outputs[n] = newOutputStream(stream, os.NewFile(uintptr(fds[0]), "pipe")) //nolint:gosec // a descriptor
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

// greet sends the driver its code and waits until it is ready. Output that comes before is dropped.
func (i *Interpreter) greet(ctx context.Context) error {
	s := i.session
	s.mu.Lock()
	paths := slices.Clone(s.paths)
	s.mu.Unlock()
	first, err := s.Driver.Encode(drivers.Operation{
		Op: "start", Paths: paths, Preload: s.Start.Preload, MaxData: executor.MaxDisplayData, MaxDisplays: executor.MaxDisplays,
	})
	if err != nil {
		return executor.Errorf(executor.Internal, "start: %w", err)
	}
	answers, leave := i.Hear()
	defer leave()
	if !i.loaded {
		first = slices.Concat(s.Driver.First, first)
	}
	i.Write(first)
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			if a.Op != "ready" {
				continue
			}
			for _, t := range i.Outputs {
				t.forget()
			}
			return nil
		case <-i.Exited:
			return i.unready("it ended: " + describeEnd(i.End.Status))
		case <-i.Broken:
			select { // usually because the interpreter ends
			case <-i.Exited:
				return i.unready("it ended: " + describeEnd(i.End.Status))
			case <-time.After(time.Second):
			}
			return i.unready(i.Why.Error())
		case <-timer.C:
			return i.unready(fmt.Sprintf("nothing was heard from it within %s", startPatience))
		case <-ctx.Done():
			return executor.Errorf(executor.Unavailable, "start the interpreter: %w", context.Cause(ctx))
		}
	}
}

// unready returns why the interpreter did not start, with the last that it has printed.
func (i *Interpreter) unready(why string) error {
	for _, t := range i.Outputs {
		t.Drain()
	}
	said := i.Outputs[1].tail(2000)
	if said != "" {
		why += ": " + said
	}
	if i.Group.OOMKills() > 0 {
		// SessionFits knows the interpreter's needs, but not those of the modules that it imports.
		limit := i.session.Start.Limits.MemoryBytes >> 20
		return executor.FieldErrorf(executor.Invalid, "config.memory_mb", "must be more than %d for the interpreter to start; try %d", limit, 2*limit)
	}
	return executor.Errorf(executor.Unavailable, "the interpreter does not start: %s", why)
}

func describeEnd(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return sandbox.SignalName(ws.Signal())
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}

// Kill kills the interpreter and all that descends from it, once, and returns them. No Command runs then.
func (i *Interpreter) Kill() []int {
	if len(i.Group.Cgroups) > 0 {
		return i.Group.KillOnce()
	}
	all := i.session.sandbox.Descendants()
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
	return all
}

// stop kills until nothing of the interpreter is left, and gives everything back.
func (i *Interpreter) stop() {
	left := sandbox.RepeatKill(func() []int {
		found := i.Kill()
		if len(found) == 0 && !sandbox.IsClosed(i.Exited) {
			found = []int{i.PID}
		}
		return found
	})
	if len(left) > 0 {
		i.session.sandbox.Die(fmt.Errorf("the interpreter of %s does not die", i.session.Start.SessionID))
	}
	i.release()
}

// release closes the runner's ends and removes the control groups. The process has ended, or was never started.
func (i *Interpreter) release() {
	i.closeFiles()
	if err := i.Group.Remove(); err != nil {
		i.session.sandbox.Logf("clean up: %v", err)
	}
}

// closeFiles closes the runner's ends. Idempotent.
func (i *Interpreter) closeFiles() {
	if i.control != nil {
		_ = i.control.Close() // listen ends
	}
	for _, t := range i.Outputs {
		if t != nil {
			t.close()
		}
	}
}

// clockTick is the unit of start times in procfs (USER_HZ, which is 100 on every Linux).
const clockTick = 10 * time.Millisecond

// startTicks returns t as procfs gives the start time of a process, rounded down.
func startTicks(t time.Time) int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return int64((time.Duration(now.Nano()) - time.Since(t)) / clockTick)
}

// ResetPeak begins the peak anew, where the kernel can. Otherwise the peak is the highest since the interpreter started.
func (i *Interpreter) ResetPeak() {
	if i.Group.Memory != "" {
		i.Group.ResetPeak()
		return
	}
	_ = os.WriteFile("/proc/"+strconv.Itoa(i.PID)+"/clear_refs", []byte("5"), 0o600) // it may be gone already
}
