package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/sysmon"
)

// onThread runs f on an operating system thread that ends with it, so that f may change the thread.
func onThread(f func() error) error {
	done := make(chan error)
	go changing(func() { done <- f() })
	return <-done
}

// changing runs f on a locked thread that is not the process's first one, and never unlocks it. Go ends such a thread with the
// goroutine. The first thread must not be changed: /proc/self shows it, and Go never ends it.
//
// The thread gets the kernel's usual timer slack and time slice, because programs inherit them (see core/sysmon).
func changing(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 50_000, 0, 0, 0) // it cannot fail
		sysmon.UsualSlice()
		f()
		return
	}
	done := make(chan struct{})
	go func() { // on another thread, for this goroutine holds the first
		defer close(done)
		changing(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// ProbeNetworkNamespace returns why this process cannot make network namespaces, or nil.
func ProbeNetworkNamespace() error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		return loopbackUp()
	})
}

// ProbeTmpfs returns why this process cannot mount a tmpfs in a mount namespace of its own, or nil.
func ProbeTmpfs() error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("private mounts: %w", err)
		}
		// /proc exists everywhere, and only this thread sees the mount.
		if err := unix.Mount("tmpfs", "/proc", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,nr_inodes=16"); err != nil {
			return fmt.Errorf("mount a tmpfs: %w", err)
		}
		return nil
	})
}

// ProbeSetuid returns why this process cannot start programs as uid, or nil.
func ProbeSetuid(uid, gid int) error {
	return probeStart("setuid", &syscall.SysProcAttr{
		//nolint:gosec // ids come from the configuration
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}},
	})
}

// ProbeUserNamespace returns why an unprivileged process cannot start a child in user, mount and network namespaces of its own,
// or nil.
func ProbeUserNamespace() error {
	return probeStart("user namespace", &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
}

// probeStart starts a program that does nothing. The answer is whether it starts, not how it ends.
func probeStart(what string, attr *syscall.SysProcAttr) error {
	path, err := exec.LookPath("true")
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	cmd := exec.Command(path) //nolint:gosec // true(1)
	cmd.Env = []string{}
	cmd.SysProcAttr = attr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
