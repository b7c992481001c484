package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/sysmon"
)

// StartForkInit starts p as the first process of further namespaces with the root folder of the box. p has the rights, the user and the
// filter of programs. With withNetwork p shares the network of programs that have one. files become its descriptors. It starts in the
// control groups g. The result tells of the processes in those namespaces, and is no box otherwise.
func (b *Sandbox) StartForkInit(p *Program, withNetwork bool, files []uintptr, g *Group) (*Box, error) {
	f := &Box{dir: b.Box.dir, made: make(chan struct{}), Over: make(chan struct{})}
	args := []string{b.Box.dir, strconv.Itoa(b.Config.UID), strconv.Itoa(b.Config.GID), strconv.FormatBool(withNetwork), p.Dir, p.Path}
	flags := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if !withNetwork {
		flags |= unix.CLONE_NEWNET
	}
	started := make(chan error)
	go changing(func() { // the parent-death signal is tied to the thread
		if withNetwork {
			if err := b.enterNetwork(); err != nil {
				started <- err
				return
			}
		}
		pidfd := -1
		attr := &syscall.ProcAttr{
			Dir: "/", Env: p.Env, Files: files,
			Sys: &syscall.SysProcAttr{Cloneflags: flags, Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd},
		}
		pid, err := b.forkInto(g, attr.Sys, func() (int, error) {
			return syscall.ForkExec("/proc/self/exe", slices.Concat(b.Command, args, p.Argv), attr)
		})
		f.pid = pid
		if err == nil && pidfd < 0 {
			err = errors.New("this kernel has no descriptors of processes")
		}
		if err == nil {
			f.process = os.NewFile(uintptr(pidfd), p.Path) //nolint:gosec // a descriptor
		}
		started <- err
		if err == nil {
			waitEnd(pidfd)
			close(f.Over)
		}
	})
	err := <-started
	close(f.made)
	if err == nil && listsChildren() {
		f.children, err = os.Open(procfs(f.pid) + "/task/" + strconv.Itoa(f.pid) + "/children")
	}
	if err == nil {
		f.times, err = os.Open(procfs(f.pid) + "/stat")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Path, err), f.CloseFork())
	}
	return f, nil
}

// CloseFork ends what StartForkInit has started, and all processes in its namespaces.
func (b *Box) CloseFork() error {
	var err error
	if b.process != nil {
		b.Destroy()
		<-b.Over
		if _, e := syscall.Wait4(b.pid, nil, 0, nil); e != nil && !errors.Is(e, unix.ECHILD) { // a Reaper may have waited for it
			err = e
		}
	}
	for _, f := range []*os.File{b.children, b.times, b.process} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// PID returns the number of the first process.
func (b *Box) PID() int { return b.pid }

// waitEnd waits for the end of a process.
func waitEnd(pidfd int) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// forkInitMain makes this process the program of StartForkInit. It returns only if that fails.
func forkInitMain(args []string) error {
	runtime.LockOSThread()
	sysmon.UsualSlice() // main has shortened it, and programs inherit it
	uid, errUID := strconv.Atoi(args[1])
	gid, errGID := strconv.Atoi(args[2])
	if err := errors.Join(errUID, errGID); err != nil {
		return err
	}
	if err := enterRoot(args[0]); err != nil {
		return err
	}
	if args[3] != "true" { // else it is there already
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	unix.Umask(0o022)
	_ = unix.Unshare(unix.CLONE_NEWCGROUP) // or /proc/self/cgroup names the groups of the host; a kernel may lack such namespaces
	dropCapabilities()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := errors.Join(emptySession(), restrictByLandlock()); err != nil {
		return err
	}
	if uid != 0 { // else this is a user namespace, whose only user programs are
		if err := becomeUser(uid, gid); err != nil {
			return err
		}
	}
	if err := installBoxSeccomp(true, 1); err != nil {
		return err
	}
	if err := unix.Chdir(args[4]); err != nil {
		return fmt.Errorf("chdir: %w", err)
	}
	return syscall.Exec(args[5], args[6:], os.Environ())
}

// becomeUser gives this thread the ids of programs, without other groups.
func becomeUser(uid, gid int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return fmt.Errorf("gid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("uid: %w", errno)
	}
	return nil
}
