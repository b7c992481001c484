package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/network"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// probePatience bounds a probe.
const probePatience = 20 * time.Second

// ProbeCommand is the command of a runner that ProbeBox and ProbeNetwork start.
const ProbeCommand = "box-probe"

// ProbeBox returns why this process cannot start runners whose programs are in a box, or nil. program and args are those of a
// runner. The programs have uid and gid; 0 means those of this process. ProbeBox makes a box and runs a program in it. The error
// names the part that fails.
func ProbeBox(program string, args []string, uid, gid int) error {
	return runProbe("box", program, args, strconv.Itoa(uid), strconv.Itoa(gid))
}

// ProbeNetwork returns why runners that this process starts cannot give programs a network namespace with a way out, or nil.
// program and args are as in ProbeBox.
func ProbeNetwork(program string, args []string) error {
	return runProbe("way out", program, args, probeOfNetwork)
}

// probeOfNetwork is the argument of the command with which ProbeNetwork starts it.
const probeOfNetwork = "network"

// runProbe runs the command of probes. what begins the error.
func runProbe(what, program string, args []string, command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = slices.Concat(args, []string{ProbeCommand}, command)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", time.Second
	cmd.SysProcAttr = BoxAttributes()
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return fmt.Errorf("%s: %s", what, cmp.Or(strings.TrimSpace(said.String()), err.Error()))
	case os.Geteuid() != 0:
		return fmt.Errorf("%s: user namespace: %w", what, err)
	default:
		return fmt.Errorf("%s: mount namespace: %w", what, err)
	}
}

// BoxUser is the uid and gid of a runner in a user namespace, and so of its programs. It is not 0, because programs take uid 0 for
// rights that they do not have.
const BoxUser = 1000

// BoxAttributes returns the attributes with which this process starts a runner that can make a box: in a mount namespace of its
// own, and without root also in a user namespace, in which the runner has all capabilities.
func BoxAttributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		attr.Unshareflags = syscall.CLONE_NEWNS // package syscall makes the mounts private, so that they do not reach the host
		return attr
	}
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: BoxUser, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: BoxUser, HostID: os.Getegid(), Size: 1}}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) { // every kernel that can make a box has these
		attr.AmbientCaps = append(attr.AmbientCaps, c) // a user other than 0 loses all others when it executes the runner
	}
	return attr
}

// ProbeMain is the command that ProbeBox and ProbeNetwork start. command is the argv of a box's init. ProbeMain returns the exit code.
func ProbeMain(args, command []string) int {
	if err := probe(args, command); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, strings.TrimPrefix(err.Error(), "box: "))
		return 1
	}
	return 0
}

func probe(args, command []string) (err error) {
	if len(args) == 1 && args[0] == probeOfNetwork {
		return network.Probe()
	}
	if len(args) != 2 {
		return errors.New("the probe must have a uid and a gid")
	}
	uid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	// Mounted on in this mount namespace only.
	b := &Sandbox{Command: command}
	if err := b.Open(protocol.Config{WorkRoot: os.TempDir(), UID: uid, GID: gid, Tmpfs: true, Box: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	f, err := MakeFolder(b.Config, b.Disk, 1<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Remove()) }()
	path, err := f.LookUp("true", f.Path, []string{"PATH=/usr/bin:/bin"})
	if err != nil {
		return err
	}
	got := b.Spawner(false).Start(Job{Path: path, Argv: []string{"true"}, Dir: f.Path, UID: uid, GID: gid, Group: &Group{}})
	if got.Err != nil {
		return fmt.Errorf("run a program: %w", got.Err)
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(got.PID, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("run a program: it ends with %#x", status)
	}
	return err
}

// Layer is an optional part of a box, which a kernel may lack.
type Layer struct {
	Name string // landlock or seccomp
	// Version is that of the kernel's interface, where there are several.
	Version int
	// Missing tells why the layer is not in force. It is empty if the layer is.
	Missing string
}

// Layers returns the optional layers of a box, and whether they are in force on this machine.
func Layers() []Layer {
	landlock, seccomp := Layer{Name: "landlock"}, Layer{Name: "seccomp"}
	version, err := landlockVersion()
	switch landlock.Version = version; {
	case err != nil:
		landlock.Missing = err.Error()
	case version < landlockLeast:
		landlock.Missing = fmt.Sprintf("version %d of the kernel's interface would keep programs from renaming files", version)
	}
	if err := seccompMissing(); err != nil {
		seccomp.Missing = err.Error()
	}
	return []Layer{landlock, seccomp}
}
