package networktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable names the role of a test binary that Run has started.
const variable = "PYEXEC_NETWORK_TEST"

// Role returns the role that Run has given this process, or "".
func Role() string { return os.Getenv(variable) }

// Run runs this test binary with its arguments again, in a role, and returns its exit code.
func Run(role string, how *syscall.SysProcAttr) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+role)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, how
	how.Pdeathsig = syscall.SIGKILL
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return 1
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EINVAL):
		// needtest needs a test.
		fmt.Printf("SKIPPED, all tests of the network as %s: no namespaces: %v\n", role, err)
		if strings.Contains(os.Getenv("PYEXEC_TEST_REQUIRE"), "root") {
			return 1
		}
		return 0
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// InWorld makes a process root in a network namespace that becomes the host's.
func InWorld() *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	}
	how := AsUser()
	how.Cloneflags |= unix.CLONE_NEWNET
	return how
}

// AsUser makes a process root in a user namespace. Outside of it the process is an ordinary user, without rights in the
// namespaces of its parent.
func AsUser() *syscall.SysProcAttr {
	uid, gid := os.Getuid(), os.Getgid()
	how := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
	if uid == 0 {
		const nobody = 65534
		uid, gid = nobody, nobody
		how.Credential = &syscall.Credential{}
	}
	how.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
	how.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	how.GidMappingsEnableSetgroups = uid != os.Getuid()
	return how
}
