package runner

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// spawner is one operating system thread that starts every program, and never ends: the parent-death signal of a program
// is tied to the thread that forked it, and its namespaces and no_new_privs are that thread's.
type spawner struct {
	jobs  chan spawnJob
	ready chan struct{}
	// Of the thread alone: the group that it is in, nil for the slot's, and the files through which it goes back there.
	in   *group
	home []int
	err  error // after ready: why it cannot start anything
}

type spawnJob struct {
	path   string
	argv   []string
	env    []string
	dir    string
	files  []uintptr
	uid    int
	gid    int
	ownUID bool
	group  *group
	limits executor.Limits
	inside *container // nil: it is not in one
	reply  chan spawned
	// watched: a descriptor of the process is wanted.
	watched bool
	// only: nothing is started, the thread enters group, or leaves it.
	only spawnStep
}

// spawnStep is a part of a start that is made by itself.
type spawnStep int

const (
	startAll spawnStep = iota
	// enterOnly is what can be done before anybody asks for a program.
	enterOnly
	leaveOnly
)

type spawned struct {
	pid int
	// pidfd is of the process, the receiver's to close; negative: there is none.
	pidfd int
	at    time.Time // just before the fork
	err   error
	// ours: err is about our own machinery, not about the program's file.
	ours bool
}

// newSpawner starts the thread. emptyNetwork gives it a network namespace of its own, with loopback up.
func newSpawner(emptyNetwork bool) *spawner {
	s := &spawner{jobs: make(chan spawnJob), ready: make(chan struct{})}
	go changing(func() { s.loop(emptyNetwork) })
	return s
}

func (s *spawner) loop(emptyNetwork bool) {
	s.err = prepareThread(emptyNetwork)
	close(s.ready)
	for job := range s.jobs {
		got := spawned{err: s.err, ours: true}
		switch {
		case got.err != nil || job.only == leaveOnly:
		case job.only == enterOnly:
			got.err = s.enter(job.group)
		default:
			got = s.spawn(job)
		}
		if job.only == leaveOnly {
			s.leave(job.group)
		}
		job.reply <- got
		if job.only == startAll {
			s.leave(job.group)
			job.group.lower(job.limits)
		}
	}
}

// enter moves the thread, and so what it forks, into g, and gives it shared memory, semaphores and message queues of its
// own: they outlive their makers, and neither the next program nor the host is to meet them. Where we may not, they stay
// as what is left in /tmp does.
func (s *spawner) enter(g *group) error {
	if s.in == g {
		return nil
	}
	if s.in != nil {
		s.leave(s.in)
	}
	s.in = g
	if err := g.enter(); err != nil {
		return err
	}
	_ = unix.Unshare(unix.CLONE_NEWIPC)
	return nil
}

// leave moves the thread back to the slot's groups if it is in g. Failing to leave shows when g is removed.
func (s *spawner) leave(g *group) {
	if s.in != g {
		return
	}
	s.in = nil
	if s.home == nil && g.entered {
		s.home, _ = openTasks(g.home)
	}
	for _, fd := range s.home {
		_ = writeControl(fd, "0")
	}
}

// enterAhead and leaveAhead are enter and leave of a group whose program is not known yet.
func (s *spawner) enterAhead(g *group) error { return s.start(spawnJob{group: g, only: enterOnly}).err }
func (s *spawner) leaveAhead(g *group)       { s.start(spawnJob{group: g, only: leaveOnly}) }

// start starts a program and returns its process number.
func (s *spawner) start(job spawnJob) spawned {
	job.reply = make(chan spawned, 1)
	s.jobs <- job
	got := <-job.reply
	if job.only == startAll {
		job.group.ahead = nil // it leaves by itself
	}
	return got
}

func prepareThread(emptyNetwork bool) error {
	if emptyNetwork {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 && (os.Getpid() == 1 || !initialUserNamespace()) {
		dropCapabilities()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// An empty one, in the place of the one that the server's user has. A container's runtime may refuse it, having made one.
	_, _ = unix.KeyctlJoinSessionKeyring("")
	shield(os.Getuid() != 0 || !initialUserNamespace()) // else the program is another user than the runner
	return nil
}

// dropCapabilities makes what this thread forks start without any, although it is root in a user namespace or in a container:
// such a root could otherwise trace the runner. The thread keeps its own. What the kernel refuses leaves the program no more
// than it had.
func dropCapabilities() {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	const noRoot, noRootLocked = 1 << 0, 1 << 1
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, noRoot|noRootLocked, 0, 0, 0)
}

// initialUserNamespace reports whether we are in the machine's own user namespace.
func initialUserNamespace() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	f := strings.Fields(string(raw))
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}

// loopbackUp brings lo up in the calling thread's network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// spawn forks and executes on the calling thread.
func (s *spawner) spawn(job spawnJob) spawned {
	if err := s.enter(job.group); err != nil {
		return spawned{err: err, ours: true}
	}
	pidfd := -1
	attr := &syscall.ProcAttr{Dir: job.dir, Env: job.env, Files: job.files, Sys: &syscall.SysProcAttr{
		Setsid:    true,
		Pdeathsig: syscall.SIGKILL,
	}}
	if job.watched {
		attr.Sys.PidFD = &pidfd
	}
	if job.uid != 0 {
		//nolint:gosec // ids come from the host's configuration
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(job.uid), Gid: uint32(job.gid), Groups: []uint32{}}
	}
	if job.group.fd != nil {
		attr.Sys.UseCgroupFD = true
		attr.Sys.CgroupFD = int(job.group.fd.Fd())
	}
	restore := lendLimits(job)
	restoreScore := job.inside.lendOOMScore()
	ours, at := false, time.Now()
	pid, err := syscall.ForkExec(job.path, job.argv, attr)
	if attr.Sys.UseCgroupFD && (errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)) {
		attr.Sys.UseCgroupFD = false
		if pid, err = syscall.ForkExec(job.path, job.argv, attr); err == nil {
			err, ours = job.group.adopt(pid), true
		}
	}
	restoreScore()
	restore()
	if err != nil {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		if pidfd >= 0 {
			_ = unix.Close(pidfd)
		}
		return spawned{err: err, ours: ours}
	}
	hardenLimits(pid, job)
	return spawned{pid: pid, pidfd: pidfd, at: at}
}

// lendLimits sets the resource limits that a program must have from its first instruction on the runner itself, because
// Go cannot set them between fork and exec. They bind nothing here: the runner writes no file meanwhile, and as root it
// may exceed RLIMIT_NPROC.
func lendLimits(job spawnJob) (restore func()) {
	var undo []func()
	lend := func(resource int, value int64) {
		var old unix.Rlimit
		if unix.Getrlimit(resource, &old) != nil {
			return
		}
		soft := unix.Rlimit{Cur: min(uint64(value), old.Max), Max: old.Max} //nolint:gosec // limits are positive
		if unix.Prlimit(0, resource, &soft, nil) == nil {
			undo = append(undo, func() { _ = unix.Prlimit(0, resource, &old, nil) })
		}
	}
	if job.limits.DiskBytes > 0 {
		lend(unix.RLIMIT_FSIZE, job.limits.DiskBytes)
	}
	if job.countsByUID() {
		lend(unix.RLIMIT_NPROC, job.limits.PIDs)
	}
	return func() {
		for _, u := range undo {
			u()
		}
	}
}

// countsByUID: processes are limited by RLIMIT_NPROC, because no control group does and nobody else has this uid.
func (j spawnJob) countsByUID() bool {
	return j.group.pids == "" && j.ownUID && j.uid != 0 && j.limits.PIDs > 0
}

// hardenLimits makes the limits of a program that has just been started hard, and adds those that cannot be lent. Errors
// only mean that it has ended already.
func hardenLimits(pid int, job spawnJob) {
	set := func(resource int, value int64) {
		var old unix.Rlimit
		if unix.Getrlimit(resource, &old) != nil { // the program's hard limit is ours
			return
		}
		v := min(uint64(value), old.Max) //nolint:gosec // limits are positive
		limit := &unix.Rlimit{Cur: v, Max: v}
		if err := unix.Prlimit(pid, resource, limit, nil); errors.Is(err, unix.EPERM) && job.uid != 0 {
			asOwner(job.uid, job.gid, func() { _ = unix.Prlimit(pid, resource, limit, nil) })
		}
	}
	if job.limits.DiskBytes > 0 {
		set(unix.RLIMIT_FSIZE, job.limits.DiskBytes)
	}
	if job.countsByUID() {
		set(unix.RLIMIT_NPROC, job.limits.PIDs)
	}
	if job.group.memory == "" && job.limits.MemoryBytes > 0 && !job.inside.boundsMemory() {
		// Address space is not memory, so some slack; but it is all there is without a control group.
		set(unix.RLIMIT_AS, job.limits.MemoryBytes+addressSpaceSlack)
	}
}

// asOwner runs f with the program's real uid and gid on this thread alone. A root without CAP_SYS_RESOURCE (a container's)
// may set limits of nobody else's processes. For these microseconds the program could signal this thread and so end the
// runner, and itself with it.
func asOwner(uid, gid int, f func()) {
	const keep = ^uintptr(0)
	//nolint:gosec // ids are positive
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), keep, keep); errno == 0 {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), keep, keep); errno == 0 {
			f()
			_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, 0, keep, keep)
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SETRESGID, 0, keep, keep)
	}
}

// addressSpaceSlack is what an interpreter maps without using it (shared libraries, locale files, thread stacks).
const addressSpaceSlack = 256 << 20
