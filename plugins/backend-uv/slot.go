package uvbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
)

// runnerPatience bounds how long a runner gets to end after its connection was closed; less than a plugin gets to close.
const runnerPatience = 8 * time.Second

// slot is one resident runner and everything that belongs to it alone: a uid, a folder, control groups.
type slot struct {
	dir     string
	how     mechanisms
	network bool // programs may have the host's network
	uid     *uidClaim
	groups  runner.Cgroups
	conn    *runner.Conn
	cmd     *exec.Cmd
	stderr  *noise
	// exited is closed when the runner process is gone.
	exited chan struct{}
	idle   *time.Timer // guarded by slots.mu
	given  sync.Once
	clean  bool  // set by give: no process is left
	shares int64 // what the groups have; of whoever took the slot
	ids    *uidPool
	log    *slog.Logger
}

// program is how runner processes are started: the small embedded one, else this very program.
type program struct {
	path string
	args []string
	file *os.File // keeps the embedded one
}

// mark stands in a runner's environment, and says whose it is. The programs it starts do not have it.
const mark = "PYEXEC_RUNNER="

// spawn starts a runner for s by m's mechanisms and returns when it is ready. It must be called on a thread that lives as long as
// the plugin: the kernel sends the parent-death signal when the thread that forked ends.
func (s *slot) spawn(p program, m mechanisms, claim string, reach []string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "runner")
	defer theirs.Close()
	mine := os.NewFile(uintptr(fds[0]), "host")
	conn, err := net.FileConn(mine) // a net.Conn, so that Close ends a Read
	mine.Close()
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	s.cmd = &exec.Cmd{
		Path: p.path, Args: p.args, Dir: "/", Env: []string{mark + claim}, ExtraFiles: []*os.File{theirs},
		SysProcAttr: m.attributes(s.network), Stderr: s.stderr, WaitDelay: time.Second,
	}
	if err := s.cmd.Start(); err != nil {
		conn.Close()
		return fmt.Errorf("start a runner: %w", err)
	}
	s.exited = make(chan struct{})
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // how it ended is in its log; that it ended is what counts
	}()
	s.conn, err = runner.NewConn(conn, s.config(m, reach))
	if err != nil {
		s.stop()
		return fmt.Errorf("start a runner: %w%s", err, s.stderr.tail())
	}
	return nil
}

func (s *slot) config(m mechanisms, reach []string) runner.Config {
	c := runner.Config{
		WorkRoot: s.dir, Tmpfs: m.Tmpfs, Reach: reach, Cgroups: s.groups, NetworkNamespace: m.Network, InNetworkNamespace: m.User && !s.network,
	}
	if own := os.TempDir(); public(own) {
		c.Private = []string{own}
	}
	if s.uid != nil {
		c.UID, c.GID, c.OwnUID = s.uid.uid, s.uid.uid, true
	}
	return c
}

// public reports whether dir is a folder that everybody may write to.
func public(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && info.Mode()&0o002 != 0
}

// alive reports whether the runner can be used.
func (s *slot) alive() bool {
	select {
	case <-s.conn.Done():
		return false
	case <-s.exited:
		return false
	default:
		return s.conn.Err() == nil // which is known a moment before Done
	}
}

// reasonPatience bounds how long the connection of a runner that is gone may take to say so.
const reasonPatience = time.Second

// reason says why a runner that is gone cannot be used any more; nil if this process has ended it.
func (s *slot) reason() error {
	select {
	case <-s.conn.Done():
	case <-time.After(reasonPatience):
		return errors.New("the runner's process ended")
	}
	if s.conn.HungUp() {
		return nil
	}
	return s.conn.Err()
}

// weigh gives the slot's own groups the weight of its next program: the runner weighs the program's group inside them,
// and programs of different slots compete by the slots' weights.
func (s *slot) weigh(shares int64) {
	if s.shares == shares {
		return
	}
	if err := weigh(s.groups, shares, 1+(shares-2)*9999/262142); err != nil {
		s.log.Warn("CPU weight not set", "folder", s.dir, "error", err)
	}
	s.shares = shares
}

// weigh sets the CPU weight of groups: shares on v1 (an ordinary process has 1024), weight on v2 (it has 100).
func weigh(groups runner.Cgroups, shares, weight int64) error {
	if !groups.Enforces("cpu") {
		return nil
	}
	file, value := filepath.Join(groups["cpu"], "cpu.shares"), min(max(shares, 2), 262144)
	if groups["cpu"] == "" {
		file, value = filepath.Join(groups["unified"], "cpu.weight"), min(max(weight, 1), 10000)
	}
	return os.WriteFile(file, []byte(strconv.FormatInt(value, 10)), 0o600)
}

// stop ends the runner, and with it its program, and returns when it is gone.
func (s *slot) stop() {
	if s.conn != nil {
		_ = s.conn.Close() // what matters is that the process ends
	}
	if s.exited == nil {
		return
	}
	timer := time.NewTimer(runnerPatience)
	defer timer.Stop()
	select {
	case <-s.exited:
	case <-timer.C:
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.exited
	}
}

// give stops the runner and gives everything of the slot back: nothing of its programs is left then, or nobody gets its uid.
// Idempotent: whoever comes second waits for the first, and the uid is not touched again, because it may have another user by
// then.
func (s *slot) give() { s.given.Do(s.giveOnce) }

func (s *slot) giveOnce() {
	s.stop()
	problems := []error{s.groups.Remove()}
	var clean bool
	if s.uid != nil {
		clean = s.ids.cleared(s.uid, s.dir)
	} else {
		_, err := runner.KillLeftovers(s.dir, 0, 0)
		problems, clean = append(problems, err), err == nil
	}
	problems = append(problems, removeAll(s.dir))
	if err := errors.Join(problems...); err != nil {
		s.log.Warn("a slot was not given back whole", "folder", s.dir, "error", err)
	}
	if s.uid != nil && clean {
		s.uid.release()
	}
	s.clean = clean
}

// noise is a runner's standard error: a bounded part of it goes to the log, the end of it into an error. It never
// reaches the plugin's own standard error.
type noise struct {
	log  *slog.Logger
	left int
	last []byte
}

func newNoise(log *slog.Logger) *noise { return &noise{log: log, left: 50} }

// Write implements io.Writer; exec calls it from one goroutine.
func (n *noise) Write(p []byte) (int, error) {
	n.last = append(n.last, p...)
	if len(n.last) > 4096 {
		n.last = bytes.Clone(n.last[len(n.last)-4096:])
	}
	if n.left > 0 {
		n.left--
		n.log.Warn("runner says", "text", requirements.Shorten(string(bytes.TrimSpace(p)), 1000))
	}
	return len(p), nil
}

// lines are the last ones, shortened. Nobody writes any more.
func (n *noise) lines() string {
	return requirements.Shorten(string(bytes.TrimSpace(n.last)), 1000)
}

// tail is lines as the end of an error's message.
func (n *noise) tail() string {
	if text := n.lines(); text != "" {
		return ": " + text
	}
	return ""
}

var _ io.Writer = (*noise)(nil)

// newSlot makes the folder, the uid and the groups of slot number n and starts its runner.
func (p *slots) newSlot(ctx context.Context, n int, network bool, claim func() (*uidClaim, error)) (*slot, error) {
	s := &slot{
		how: p.how, dir: filepath.Join(p.claim.dir, strconv.Itoa(n)), network: network, stderr: newNoise(p.log), ids: p.ids, log: p.log,
	}
	fail := func(err error) (*slot, error) {
		s.give()
		return nil, err
	}
	if err := os.Mkdir(s.dir, 0o711); err != nil { //nolint:gosec // the slot's uid passes through
		return nil, executor.Errorf(executor.Internal, "make a slot: %w", err)
	}
	if err := os.Chmod(s.dir, 0o711); err != nil { //nolint:gosec // whatever the umask says
		return fail(executor.Errorf(executor.Internal, "make a slot: %w", err))
	}
	if p.ids != nil {
		uid, err := claim()
		if err != nil {
			return fail(err)
		}
		s.uid = uid
	}
	var err error
	if s.groups, err = p.parent.Make("slot-" + strconv.Itoa(n)); err != nil {
		return fail(executor.Errorf(executor.Internal, "make a slot: %w", err))
	}
	spawned := make(chan error, 1)
	select {
	case p.starts <- func() { spawned <- s.spawn(p.program, p.how, p.claim.name, p.reach) }:
	case <-p.closed:
		return fail(errClosed)
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	if err := <-spawned; err != nil {
		return fail(executor.Errorf(executor.Unavailable, "%w", err))
	}
	return s, nil
}
