package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// Spawner is an operating system thread that starts programs and never ends. The parent-death signal of a program is tied to
// the thread that forked it. Its namespaces and no_new_privs are that thread's.
type Spawner struct {
	jobs  chan Job
	ready chan struct{}
	// The following belong to the thread: the group that it is in, nil for the slot's, and the files through which it goes back
	// there.
	in   *Group
	home []int
	err  error // after ready: why it cannot start anything
}

type Job struct {
	Path   string
	Argv   []string
	Env    []string
	Dir    string
	Files  []int // descriptors that become 0, 1, 2 and so on
	UID    int
	GID    int
	OwnUID bool
	Group  *Group
	Limits executor.Limits
	Inside *Container // nil: it is not in one
	reply  chan Spawned
	// Watched asks for a descriptor of the process.
	Watched bool
	// boxed reports that the thread is in a box.
	boxed bool
	// only makes the thread enter or leave Group and start nothing.
	only spawnStep
}

// spawnStep is a part of a start that can be done by itself.
type spawnStep int

const (
	startAll spawnStep = iota
	// enterOnly is the part that can be done before the program is known.
	enterOnly
	leaveOnly
)

type Spawned struct {
	PID int
	// PIDFD is a descriptor of the process, which the receiver closes. It is negative if there is none.
	PIDFD int
	At    time.Time // just before the fork
	Err   error
	// Ours reports that Err is about the runner, not about the program's file.
	Ours bool
}

// newSpawner starts the thread. Without network it has a network namespace that has only loopback.
func newSpawner(b *Sandbox, network bool) *Spawner {
	s := &Spawner{jobs: make(chan Job), ready: make(chan struct{})}
	go changing(func() { s.loop(b, network) })
	return s
}

func (s *Spawner) loop(b *Sandbox, network bool) {
	s.err = s.prepareThread(b, network)
	close(s.ready)
	for job := range s.jobs {
		job.boxed = b.Box != nil
		got := Spawned{Err: s.err, Ours: true}
		switch {
		case got.Err != nil || job.only == leaveOnly:
		case job.only == enterOnly:
			got.Err = s.enter(job.Group)
		default:
			got = s.spawn(job)
		}
		if job.only == leaveOnly {
			s.leave(job.Group)
		}
		job.reply <- got
		if job.only == startAll {
			s.leave(job.Group)
			job.Group.lower(job.Limits)
		}
	}
}

// enter moves the thread, and so what it forks, into g. It also gives it shared memory, semaphores and message queues of its
// own, because they outlive their makers and neither the next program nor the host may find them. Where that is not allowed,
// they stay.
func (s *Spawner) enter(g *Group) error {
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

// leave moves the thread back to the slot's groups if it is in g. If that fails, the removal of g shows it.
func (s *Spawner) leave(g *Group) {
	if s.in != g {
		return
	}
	s.in = nil
	for _, fd := range s.home {
		_ = writeControl(fd, "0")
	}
}

// Start starts a program and returns its process number.
func (s *Spawner) Start(job Job) Spawned {
	job.reply = make(chan Spawned, 1)
	s.jobs <- job
	got := <-job.reply
	if job.only == startAll {
		job.Group.waiting = nil // it leaves by itself
	}
	return got
}

func (s *Spawner) prepareThread(b *Sandbox, network bool) (err error) {
	if s.home, err = openTasks(b.Config.Cgroups); err != nil {
		return err
	}
	inner := !initialUserNamespace() // read before the thread has another /proc
	_ = hasCgroupNamespaces()        // likewise
	if network && b.Config.PrivateNetwork {
		if err := b.ownNetwork(); err != nil {
			return err
		}
	}
	switch {
	case b.Box != nil:
		if !network { // one of the two makes the box
			b.Box.start()
		}
		if err := b.Box.enter(network); err != nil {
			return err
		}
	case !network:
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if b.Box != nil || os.Getuid() == 0 && (os.Getpid() == 1 || inner) {
		dropCapabilities()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := emptySession(); err != nil {
		return err
	}
	if b.Box != nil {
		if err := restrictByLandlock(); err != nil {
			return err
		}
	}
	sameUser := os.Getuid() != 0 || inner // else the program is another user than the runner
	if b.Box != nil {
		return installBoxSeccomp(sameUser, b.Box.last)
	}
	installSeccomp(sameUser)
	return nil
}

// emptySession gives this thread, and what it forks, an empty session keyring. A container's runtime may refuse it, having made
// one, and a kernel may have no keyrings.
func emptySession() error {
	// The name must be nil: an empty name is an error.
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	return sessionError(err)
}

// sessionError returns why programs would share a keyring with the server's user, or nil.
func sessionError(err error) error {
	switch {
	case err == nil, errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS):
		return nil
	case errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("session keyring: uid %d has too many keys: raise kernel.keys.maxkeys and kernel.keys.maxbytes: %w", os.Getuid(), err)
	default:
		return fmt.Errorf("session keyring: %w", err)
	}
}

// dropCapabilities makes what this thread forks start without capabilities, although it is root in a user namespace or in a
// container. Such a root could trace the runner. The thread keeps its own.
func dropCapabilities() {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	const noRoot, noRootLocked = 1 << 0, 1 << 1
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, noRoot|noRootLocked, 0, 0, 0)
	// A runner that is not uid 0 in its user namespace has its capabilities as ambient ones, which a program would get.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) == nil {
		data[0].Inheritable, data[1].Inheritable = 0, 0
		_ = unix.Capset(&header, &data[0])
	}
}

// initialUserNamespace reports whether this process is in the machine's own user namespace.
func initialUserNamespace() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	f := strings.Fields(string(raw))
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}

// loopbackUp brings up lo in the calling thread's network namespace.
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

// spawn forks and executes a program on the calling thread.
func (s *Spawner) spawn(job Job) Spawned {
	if err := s.enter(job.Group); err != nil {
		return Spawned{Err: err, Ours: true}
	}
	files := make([]uintptr, len(job.Files))
	for i, fd := range job.Files {
		files[i] = uintptr(fd) //nolint:gosec // a descriptor
	}
	pidfd := -1
	attr := &syscall.ProcAttr{Dir: job.Dir, Env: job.Env, Files: files, Sys: &syscall.SysProcAttr{
		Setsid: true,
	}}
	if job.boxed && hasCgroupNamespaces() {
		attr.Sys.Unshareflags = unix.CLONE_NEWCGROUP // or /proc/self/cgroup names the groups of the host
	}
	if !job.boxed { // Else init has that signal. The program's parent has another number than package syscall expects.
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	if job.Watched {
		attr.Sys.PidFD = &pidfd
	}
	if job.UID != 0 {
		//nolint:gosec // ids come from the host's configuration
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(job.UID), Gid: uint32(job.GID), Groups: []uint32{}}
	}
	if job.Group.fd != nil {
		attr.Sys.UseCgroupFD = true
		attr.Sys.CgroupFD = int(job.Group.fd.Fd())
	}
	restore := lendLimits(job)
	restoreScore := job.Inside.lendOOMScore()
	ours, at := false, time.Now()
	pid, err := syscall.ForkExec(job.Path, job.Argv, attr)
	if attr.Sys.UseCgroupFD && (errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)) {
		attr.Sys.UseCgroupFD = false
		if pid, err = syscall.ForkExec(job.Path, job.Argv, attr); err == nil {
			err, ours = job.Group.adopt(pid), true
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
		return Spawned{Err: err, Ours: ours}
	}
	hardenLimits(pid, job)
	return Spawned{PID: pid, PIDFD: pidfd, At: at}
}

// hasCgroupNamespaces reports whether the kernel has namespaces of control groups.
var hasCgroupNamespaces = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/ns/cgroup")
	return err == nil
})

// lendLimits sets resource limits that a program must have from its first instruction on the runner itself, because Go cannot
// set them between fork and exec. They do not bind the runner, which writes no file meanwhile, and as root may exceed
// RLIMIT_NPROC.
func lendLimits(job Job) (restore func()) {
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
	if job.Limits.DiskBytes > 0 {
		lend(unix.RLIMIT_FSIZE, job.Limits.DiskBytes)
	}
	if job.countsByUID() {
		lend(unix.RLIMIT_NPROC, job.Limits.PIDs)
	}
	return func() {
		for _, u := range undo {
			u()
		}
	}
}

// countsByUID reports whether RLIMIT_NPROC limits processes, because no control group does and no other process has this uid.
func (j Job) countsByUID() bool {
	return j.Group.pids == "" && j.OwnUID && j.UID != 0 && j.Limits.PIDs > 0
}

// hardenLimits makes the limits of a program that has just started hard, and adds those that cannot be lent. An error means
// that the program has ended already.
func hardenLimits(pid int, job Job) {
	set := func(resource int, value int64) {
		var old unix.Rlimit
		if unix.Getrlimit(resource, &old) != nil { // the program's hard limit is ours
			return
		}
		v := min(uint64(value), old.Max) //nolint:gosec // limits are positive
		limit := &unix.Rlimit{Cur: v, Max: v}
		if err := unix.Prlimit(pid, resource, limit, nil); errors.Is(err, unix.EPERM) && job.UID != 0 {
			asOwner(job.UID, job.GID, func() { _ = unix.Prlimit(pid, resource, limit, nil) })
		}
	}
	if job.Limits.DiskBytes > 0 {
		set(unix.RLIMIT_FSIZE, job.Limits.DiskBytes)
	}
	if job.countsByUID() {
		set(unix.RLIMIT_NPROC, job.Limits.PIDs)
	}
	if job.Group.Memory == "" && job.Limits.MemoryBytes > 0 && !job.Inside.boundsMemory() {
		// Address space is not memory, so the limit is higher. Without a control group there is nothing better.
		set(unix.RLIMIT_AS, job.Limits.MemoryBytes+addressSpaceSlack)
	}
}

// asOwner runs f with the program's real uid and gid on this thread. A root without CAP_SYS_RESOURCE, as in a container, may
// only set limits of its own uid's processes. For these microseconds the program could signal this thread, and so end the
// runner and itself.
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

// addressSpaceSlack is what an interpreter maps and does not use: shared libraries, locale files, thread stacks.
const addressSpaceSlack = 256 << 20
