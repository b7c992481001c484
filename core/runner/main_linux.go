package runner

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
	"syscall"

	"golang.org/x/sys/unix"
)

// The exit statuses of Main.
const (
	exitBroken  = 1 // the protocol or the runner itself broke
	exitUsage   = 2
	exitSilence = 3 // Config.Silence went by without a host
	// exitDeadline: Config.Deadline or Start.Deadline has passed.
	exitDeadline = 4
)

// ownMounts marks that the process already has a mount namespace of its own.
const ownMounts = "--own-mounts"

// Main is the runner's whole program: `runner --fd N` serves one end of a socketpair (3 by default), `runner --stdio`
// serves its standard input and output. args are what follows the command's name. It returns the exit status.
//
// Where it may, it first gives itself a mount namespace of its own, by executing itself once more: mounts are per thread,
// and only at exec is a Go program one thread. A host that has done so already passes --own-mounts.
func Main(args []string) int {
	fd, stdio, err := parseArgs(args)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "runner:", err)
		return exitUsage
	}
	if !slices.Contains(args, ownMounts) {
		takeMounts()
	}
	conn, err := open(fd, stdio)
	var inside *container
	if err == nil {
		inside, err = enterContainer()
	}
	if err == nil {
		err = settle(inside)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "runner:", err)
		return exitBroken
	}
	a := &agent{inside: inside}
	defer a.guard()
	switch {
	case inside != nil && inside.gvisor:
		catchSignals()
	case inside != nil:
		childEnded()
		swallowPipeSignals()
		ignoreSignals()
	default:
		endOnSignal(a)
	}
	if stdio {
		a.awaitHello()
	}
	if err := a.serve(conn, conn); err != nil {
		a.logf("%v", err)
		return exitBroken
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
				return 0, false, errors.New("--fd needs a number")
			}
			if fd, err = strconv.Atoi(args[0]); err != nil || fd < 3 {
				return 0, false, fmt.Errorf("--fd: %q is not a descriptor above 2", args[0])
			}
			args = args[1:]
		case ownMounts:
		default:
			return 0, false, fmt.Errorf("unknown argument %q (--fd N or --stdio)", arg)
		}
	}
	return fd, stdio, nil
}

// takeMounts executes this program again in a mount namespace of its own. Where that is not allowed it returns, and
// Config.Tmpfs is then refused by the kernel.
func takeMounts() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Unshare(unix.CLONE_NEWNS) != nil {
		return
	}
	// Private, so that a work folder shows up nowhere else and dies with us.
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil {
		return
	}
	_ = syscall.Exec("/proc/self/exe", append(slices.Clone(os.Args), ownMounts), os.Environ()) //nolint:gosec // ourselves
}

// settle makes this process what programs must find above them. inside is nil outside of a container.
func settle(inside *container) error {
	// PID 1 gets the orphans in any case, and gVisor has no other subreapers.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && inside == nil {
		return fmt.Errorf("subreaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	unix.Umask(0o022)
	closeAtExec()
	limit := func(resource int, soft, hard uint64) error {
		var old syscall.Rlimit
		if err := syscall.Getrlimit(resource, &old); err != nil {
			return err
		}
		hard = min(hard, old.Max)
		// syscall's own, because it keeps Go from giving programs the limit that Go was started with.
		return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(soft, hard), Max: hard})
	}
	return errors.Join(
		limit(unix.RLIMIT_CORE, 0, 0),
		limit(unix.RLIMIT_NOFILE, 1024, 65536),
	)
}

// closeAtExec keeps descriptors that somebody left open for us from programs.
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

// endOnSignal ends the runner, and the program with it, when somebody stops it from outside. Signals that a terminal
// sends to a whole group are for the host to judge. They are caught, not ignored: programs would inherit that.
func endOnSignal(a *agent) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXFSZ)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		(&silence{agent: a}).end()
		os.Exit(0)
	}()
}

// swallowPipeSignals keeps a write to a standard error that nobody has any more from ending us: Go does that itself.
func swallowPipeSignals() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stdioConn is standard input and output as one connection.
type stdioConn struct {
	io.Reader
	io.Writer
}

// open takes the connection. Programs never get it: its descriptors close at exec.
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
		// So that a chunk of a Workspace fits at once. What the kernel does not give costs only speed.
		_ = u.SetWriteBuffer(1 << 20)
		_ = u.SetReadBuffer(1 << 20)
	}
	return conn, nil
}
