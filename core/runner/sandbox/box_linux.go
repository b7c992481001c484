package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

// The paths of a box that programs may write to.
const (
	workPath = "/work"
	tempPath = "/tmp"
)

// initPatience bounds how long a box may take until its init is ready.
const initPatience = 10 * time.Second

// Box is the namespaces of a runner's programs: pid, mounts, ipc, host name, and a network with only loopback. Its init is PID 1
// in it. A box lives as long as its runner. Programs are children of the runner; what they leave becomes a child of init.
type Box struct {
	dir  string   // the mount point of its tmpfs
	base *os.File // the folder that the tmpfs hides
	view *view
	// ownUID is Config.OwnUID.
	ownUID bool
	// shownMemory is the limit of memory that programs read about, in bytes; 0 is none.
	shownMemory int64
	// command starts this program's init.
	command []string

	// The following are set when made is closed. err tells why the box cannot be used.
	made chan struct{}
	err  error
	pid  int
	// process is a descriptor of init. It is nil if init did not start.
	process *os.File
	last    uint32 // the highest number of a thread of init, in the box
	// children lists init's children, in the numbers of the runner. times has the CPU time of those it has waited for.
	children, times *os.File

	// asking is held while init is asked.
	asking  sync.Mutex
	conn    net.Conn
	answers chan boxFrame
	// Over is closed when init has ended, and the box with it.
	Over chan struct{}
	// reaped reports that init has been waited for.
	reaped  atomic.Bool
	closing atomic.Bool
	// Close ends the box. No program runs. It may be called again.
	Close func() error
}

// newBox makes the root folder of a box. start makes the rest.
func newBox(cfg protocol.Config, command []string) (*Box, error) {
	dir, err := filepath.EvalSymlinks(cfg.WorkRoot)
	if err != nil {
		return nil, fmt.Errorf("work_root: %w", err)
	}
	base, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("work_root: %w", err)
	}
	v, err := makeBoxRoot(dir, cfg)
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	b := &Box{dir: dir, base: base, ownUID: cfg.OwnUID, view: v, command: command, made: make(chan struct{}), answers: make(chan boxFrame), Over: make(chan struct{})}
	b.Close = sync.OnceValue(b.close)
	return b, nil
}

// start starts init and waits until the box is made. The calling thread must live as long as the runner: the parent-death
// signal of init is tied to it.
func (b *Box) start() {
	b.err = b.startInit()
	close(b.made)
}

func (b *Box) startInit() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("box: socketpair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "init") //nolint:gosec // a descriptor
	b.conn, err = net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return fmt.Errorf("box: %w", errors.Join(err, unix.Close(fds[1])))
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("box: %w", errors.Join(err, unix.Close(fds[1])))
	}
	pidfd := -1
	b.pid, err = syscall.ForkExec("/proc/self/exe", append(b.command, b.dir), &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{null.Fd(), null.Fd(), 2, uintptr(fds[1])}, //nolint:gosec // descriptors
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
			Setsid:     true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd,
		},
	})
	_ = errors.Join(null.Close(), unix.Close(fds[1])) // nothing was written
	if err != nil {
		return fmt.Errorf("box: pid, mount, ipc, uts and network namespaces: %w", err)
	}
	if pidfd < 0 {
		return errors.New("box: this kernel has no descriptors of processes")
	}
	b.process = os.NewFile(uintptr(pidfd), "init") //nolint:gosec // a descriptor
	if err := b.conn.SetReadDeadline(time.Now().Add(initPatience)); err != nil {
		return fmt.Errorf("box: %w", err)
	}
	f, err := readBoxFrame(b.conn)
	switch {
	case err != nil:
		return fmt.Errorf("box: its init does not start: %w", err)
	case f.Op != "ready":
		return fmt.Errorf("box: %s", f.Error)
	}
	if err := b.conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("box: %w", err)
	}
	b.last = f.Last
	go b.listen()
	proc := procfs(b.pid)
	if listsChildren() {
		if b.children, err = os.Open(proc + "/task/" + strconv.Itoa(b.pid) + "/children"); err != nil {
			return fmt.Errorf("box: %w", err)
		}
	}
	if b.times, err = os.Open(proc + "/stat"); err != nil {
		return fmt.Errorf("box: %w", err)
	}
	if !b.ownUID {
		return limitSignals()
	}
	return nil
}

// The signals that a program may have queued: a share of those of the host, but not fewer than usualSignals.
const (
	signalShare  = 128
	usualSignals = 128
)

// limitSignals sets the limit of queued signals, timers included, of all programs that this process starts. The kernel counts them for all
// processes of a user. Where none is left, an init cannot reach its own threads (keepOnlyKill), so no box can be made. Many programs
// together leave the host enough. The init of this box exists already, so it has the limit of the host.
func limitSignals() error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &old); err != nil {
		return fmt.Errorf("box: limit of signals: %w", err)
	}
	hard := min(old.Max, max(old.Max/signalShare, usualSignals))
	if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{Cur: min(old.Cur, hard), Max: hard}); err != nil {
		return fmt.Errorf("box: limit of signals: %w", err)
	}
	return nil
}

// listen passes on what init answers, until init has ended.
func (b *Box) listen() {
	defer close(b.Over)
	for {
		f, err := readBoxFrame(b.conn)
		if err != nil {
			return
		}
		b.answers <- f
	}
}

// enter moves the calling thread, and so what it forks, into the box. With network the thread keeps its network.
func (b *Box) enter(network bool) error {
	<-b.made
	if b.err != nil {
		return b.err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("box: folders of a thread: %w", err)
	}
	namespaces := unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !network {
		namespaces |= unix.CLONE_NEWNET
	}
	if err := b.control(func(fd int) error { return unix.Setns(fd, namespaces) }); err != nil {
		return fmt.Errorf("enter the box: %w", err)
	}
	if err := chrootBox(); err != nil {
		return fmt.Errorf("enter the box: %w", err)
	}
	return nil
}

// orphans lists the children of init: what programs have left.
func (b *Box) orphans() []int {
	if b == nil || !IsClosed(b.made) || b.err != nil {
		return nil
	}
	if b.children == nil {
		return childrenByParent(b.pid)
	}
	return listedChildren(procfs(b.pid) + "/task/" + strconv.Itoa(b.pid) + "/children")
}

// isEmpty reports whether no process is in the box but init and children of the runner. It is on the path of an answer.
func (b *Box) isEmpty() bool {
	if b.children == nil {
		return len(b.orphans()) == 0
	}
	return len(readControl(b.children)) == 0
}

// end kills all processes of the box but init, and returns when none is left but children of the runner that nobody has waited
// for.
func (b *Box) end() error {
	<-b.made
	if b.err != nil {
		return nil // nothing was ever in it
	}
	b.asking.Lock()
	defer b.asking.Unlock()
	if err := writeBoxFrame(b.conn, boxFrame{Op: "end"}); err != nil {
		b.Destroy()
		return fmt.Errorf("the box cannot be asked: %w", err)
	}
	for patience := NewPatience(); ; {
		timer := time.NewTimer(patience.Left())
		select {
		case <-b.answers:
			timer.Stop()
			return nil
		case <-b.Over:
			timer.Stop()
			return ErrBoxEnded
		case <-timer.C:
			if patience.Over(b.Processes) {
				b.Destroy() // a late answer would be taken for the next one
				return errors.New("the box does not become empty")
			}
		}
	}
}

// Processes lists init and what descends from it.
func (b *Box) Processes() []int { return withDescendants([]int{b.pid}) }

// Destroy kills init. The kernel then kills all processes of the box. b may be nil.
func (b *Box) Destroy() {
	if b != nil && IsClosed(b.made) {
		_ = b.control(func(fd int) error { return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) }) // it may be gone already
	}
}

// control calls f with the descriptor of init, which stays open meanwhile. It fails if init did not start, and after Close.
func (b *Box) control(f func(fd int) error) error {
	raw, err := b.process.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) }) //nolint:gosec // a descriptor
	return errors.Join(err, failed)
}

// isInit reports whether pid is init. b may be nil.
func (b *Box) isInit(pid int) bool { return b != nil && IsClosed(b.made) && pid == b.pid }

// orphanTime returns the CPU time of all processes that init has waited for.
func (b *Box) orphanTime() time.Duration {
	if b == nil || b.times == nil {
		return 0
	}
	raw := readControl(b.times)
	f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(f) <= statChildrenSystem {
		return 0
	}
	return ticks(f[statChildrenUser]) + ticks(f[statChildrenSystem])
}

// Closing reports whether Close has been called.
func (b *Box) Closing() bool { return b.closing.Load() }

// ErrBoxEnded says that init has ended although nobody has closed its box.
var ErrBoxEnded = errors.New("the first process of the box has ended")

// Broken returns why no program can start in b any more, although nobody has closed it: it could not be made, or init has ended. It returns
// nil if programs can start. b may be nil.
func (b *Box) Broken() error {
	switch {
	case b == nil || !IsClosed(b.made) || b.Closing():
		return nil
	case b.err != nil:
		return b.err
	case IsClosed(b.Over) || IsExiting(b.pid): // the kernel says ENOMEM then
		return ErrBoxEnded
	}
	return nil
}

func (b *Box) close() error {
	b.closing.Store(true)
	<-b.made
	b.Destroy()
	var err error
	if b.pid > 0 && !b.reaped.Load() {
		for {
			if _, err = syscall.Wait4(b.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.ECHILD) {
			err = nil // a Reaper has waited for it
		}
	}
	if b.conn != nil {
		err = errors.Join(err, b.conn.Close())
	}
	for _, f := range []*os.File{b.children, b.times, b.process} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return errors.Join(err, b.view.close(), unix.Unmount(b.dir, unix.MNT_DETACH))
}
