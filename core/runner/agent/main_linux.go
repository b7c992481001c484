package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// The exit codes of Main.
const (
	ExitBroken  = 1 // the protocol or the runner itself broke
	exitUsage   = 2
	ExitSilence = 3 // Config.Silence went by without a host
	// ExitDeadline means that Start.Deadline has passed, or that no Hello came in time.
	ExitDeadline = 4
)

// OwnMounts is the argument that says that the process already has a mount namespace of its own.
const OwnMounts = "--own-mounts"

// initCommand is the command of a box's init, which only a runner starts.
const initCommand = "init"

// Main is the runner's command: `runner --fd N` serves one end of a socketpair (3 by default), `runner --stdio` serves its
// standard input and output. args are what follows the command's name. Main returns the exit code.
//
// Where it may, the runner first takes a mount namespace of its own and executes itself once more: mounts are per thread, and a
// Go program has one thread only at exec. A host that has given it one passes --own-mounts.
func Main(args []string) int { return MainWith(args, Clock) }

// MainWith is Main with another Alarm.
func MainWith(args []string, alarm Alarm) int {
	init := append(slices.Clone(os.Args[:len(os.Args)-len(args)]), initCommand)
	switch {
	case len(args) > 0 && args[0] == initCommand:
		return sandbox.InitMain(args[1:])
	case len(args) > 0 && args[0] == sandbox.ProbeCommand:
		return sandbox.ProbeMain(args[1:], init)
	}
	fd, stdio, err := parseArgs(args)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "runner:", err)
		return exitUsage
	}
	if !slices.Contains(args, OwnMounts) {
		takeMounts(fd)
	}
	conn, err := open(fd, stdio)
	var inside *sandbox.Container
	if err == nil {
		inside, err = sandbox.EnterContainer()
	}
	if err == nil {
		err = settle(inside)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "runner:", err)
		return ExitBroken
	}
	a := newAgent(inside)
	a.Command, a.alarm = init, alarm
	defer a.Guard()
	switch {
	case inside != nil && inside.GVisor:
		sandbox.CatchSignals()
	case inside != nil:
		sandbox.ChildEnded()
		swallowPipeSignals()
		sandbox.IgnoreSignals()
	default:
		endOnSignal(a)
	}
	if stdio {
		a.setDeadline(helloPatience)
	}
	if err := a.serve(conn, conn); err != nil {
		a.Logf("%v", err)
		return ExitBroken
	}
	return 0
}

func parseArgs(args []string) (fd int, stdio bool, err error) {
	fd = 3
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch arg {
		case "--stdio":
			stdio = true
		case "--fd":
			if len(args) == 0 {
				return 0, false, errors.New("--fd: must have a number")
			}
			if fd, err = strconv.Atoi(args[0]); err != nil || fd < 3 {
				return 0, false, fmt.Errorf("--fd: must be a descriptor above 2 (got %q)", args[0])
			}
			args = args[1:]
		case OwnMounts:
		default:
			return 0, false, fmt.Errorf("unknown argument %q (--fd N or --stdio)", arg)
		}
	}
	return fd, stdio, nil
}

// takeMounts executes this program again in a mount namespace of its own. It returns where that is not allowed. The kernel then
// refuses Config.Tmpfs. fd is the descriptor of the connection, or 0.
func takeMounts(fd int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Unshare(unix.CLONE_NEWNS) != nil {
		return
	}
	// Private mounts are seen nowhere else and end with the runner.
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil {
		return
	}
	if fd > 2 { // a program that is its own runner has marked all descriptors that it got to be closed by an exec
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}
	_ = syscall.Exec("/proc/self/exe", append(slices.Clone(os.Args), OwnMounts), os.Environ()) //nolint:gosec // ourselves
}

// settle gives this process the properties that programs must find in their parent. inside is nil outside of a container.
func settle(inside *sandbox.Container) error {
	// PID 1 gets the orphans anyway, and gVisor has no other subreapers.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && inside == nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	if inside == nil {
		usualOOMScore("/proc/self/oom_score_adj") // before this process cannot open its own files in /proc any more
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	unix.Umask(0o022)
	closeAtExec()
	return errors.Join(
		syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{}),
		limitFiles(inside != nil),
	)
}

// The descriptors of a program: as many as a login session has, and at most maxFiles.
const (
	usualFiles = 1024
	maxFiles   = 65536
)

// limitFiles sets the limits of descriptors of this process and of programs. The kernel counts the descriptors that all processes of a
// user have in flight over sockets, and refuses to send more when they are above the sender's own limit. Programs of an ordinary user's
// server have the server's user. So their limit is a quarter of what the host has, and what they have in flight never keeps the host from
// passing a descriptor.
func limitFiles(inContainer bool) error {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	hard := min(maxFiles, old.Max)
	if !inContainer {
		hard = min(hard, max(old.Max/4, usualFiles))
	}
	// syscall.Setrlimit keeps Go from giving programs the limit that Go itself was started with.
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: min(usualFiles, hard), Max: hard})
}

// usualOOMScore takes away the protection that a server may have from its service manager (OOMScoreAdjust=). Programs would inherit it: the
// kernel would kill the host's processes before them, and with -1000 it could not end a program whose memory is full.
func usualOOMScore(name string) {
	raw, err := os.ReadFile(name)
	if n, convErr := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && convErr == nil && n < 0 {
		_ = os.WriteFile(name, []byte("0"), 0) // the file exists, and anybody may raise a score
	}
}

// closeAtExec keeps descriptors that were inherited from programs.
func closeAtExec() {
	if unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// endOnSignal ends the runner and its program on SIGTERM. The host judges signals that a terminal sends to a whole group. They
// are caught and not ignored, because programs would inherit that.
func endOnSignal(a *agent) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXFSZ)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		a.end()
		os.Exit(0)
	}()
}

// swallowPipeSignals keeps a write to a standard error without a reader from ending the runner, as Go would.
func swallowPipeSignals() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stdioConn is standard input and standard output as one connection.
type stdioConn struct {
	io.Reader
	io.Writer
}

// open opens the connection to the host. Its descriptors close at exec, so programs never get it.
func open(fd int, stdio bool) (io.ReadWriter, error) {
	if stdio {
		in, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("standard output: %w", err)
		}
		return stdioConn{os.NewFile(uintptr(in), "stdin"), os.NewFile(uintptr(out), "stdout")}, nil //nolint:gosec // descriptors
	}
	f := os.NewFile(uintptr(fd), "host") //nolint:gosec // a descriptor
	conn, err := net.FileConn(f)         // a duplicate, closed at exec
	err = errors.Join(err, f.Close())
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if u, ok := conn.(*net.UnixConn); ok {
		// With these buffers a chunk of a Workspace fits at once. Without them the connection is only slower.
		_ = u.SetWriteBuffer(1 << 20)
		_ = u.SetReadBuffer(1 << 20)
	}
	return conn, nil
}
