package networktest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable names the role of a test binary that Run has started.
const variable = "PYEXEC_NETWORK_TEST"

// Roles of processes that run tests in a world.
const (
	// AsRoot has all rights in the world, or those of root in a user namespace where the tests are not run by root.
	AsRoot = "inside as root"
	// AsOwner has all rights in a user namespace of its own, and in the world those of an ordinary user.
	AsOwner = "inside as the owner of a user namespace"
	// AsUser is an ordinary user. It needs root.
	AsUser = "inside as an ordinary user"
)

// Role returns the role of this process in a world, and "" outside.
func Role() string { return os.Getenv(variable) }

// Main must be called by a TestMain. In the process that Run has started it makes the world, runs the tests in it and exits.
func Main() {
	role, ok := strings.CutPrefix(Role(), "world for ")
	if !ok {
		return
	}
	end, err := makeWorld()
	if err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		os.Exit(1)
	}
	how := &syscall.SysProcAttr{}
	switch role {
	case AsOwner:
		how = asOwner()
	case AsUser:
		how.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	args := os.Args[1:]
	if role != AsRoot {
		args = slices.DeleteFunc(slices.Clone(args), isOutput)
	}
	exit := again(role, how, args, os.Stdout)
	end()
	os.Exit(exit)
}

// isOutput reports whether an argument names a file of go test, whose folder is closed to other users.
func isOutput(arg string) bool {
	return strings.HasPrefix(arg, "-test.testlogfile=") || strings.HasPrefix(arg, "-test.gocoverdir=")
}

// Run runs this test binary with args in a new world, in a role, and returns its exit code. What it prints goes to out.
func Run(role string, args []string, out io.Writer) int {
	return again("world for "+role, inWorld(), args, out)
}

func again(role string, how *syscall.SysProcAttr, args []string, out io.Writer) int {
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec // the arguments of a test
	cmd.Env = append(os.Environ(), variable+"="+role)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, os.Stderr, how
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
		fmt.Fprintf(out, "SKIPPED, all tests of the network as %s: no namespaces: %v\n", role, err)
		if strings.Contains(os.Getenv("PYEXEC_TEST_REQUIRE"), "root") {
			return 1
		}
		return 0
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// inWorld makes a process root in a network namespace that becomes the host's.
func inWorld() *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	}
	how := asOwner()
	how.Cloneflags |= unix.CLONE_NEWNET
	return how
}

// nobody is a user who owns nothing.
const nobody = 65534

// asOwner makes a process root in a user namespace. Outside of it the process is an ordinary user, without rights in the
// namespaces of its parent.
func asOwner() *syscall.SysProcAttr {
	uid, gid := os.Getuid(), os.Getgid()
	how := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
	if uid == 0 {
		uid, gid = nobody, nobody
		how.Credential = &syscall.Credential{}
	}
	how.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
	how.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	how.GidMappingsEnableSetgroups = uid != os.Getuid()
	return how
}
