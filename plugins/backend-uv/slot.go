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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// runnerPatience bounds the wait for a runner to end after its connection was closed. A plugin has more time than that to close.
const runnerPatience = 8 * time.Second

// slot is a resident runner with a uid, a folder and control groups of its own.
type slot struct {
	dir string
	how mechanisms
	slotKind
	open   []string
	uid    *uidClaim
	groups sandbox.Cgroups
	conn   *runner.Conn
	cmd    *exec.Cmd
	stderr *runnerStderr
	// exited is closed when the runner process has ended.
	exited chan struct{}
	idle   *time.Timer // guarded by slots.mu
	given  sync.Once
	clean  bool  // set by give; reports whether no process is left
	shares int64 // the CPU weight that the groups have; guarded by having the slot
	// fork is that of the last program, by forkOf. The runner's fork server is for programs like it.
	fork string
	ids  *uidPool
	log  *slog.Logger
}

// slotKind is what distinguishes slots from their start on.
type slotKind struct {
	network bool // programs may have a network; in a box each Start decides
	private bool // the network is not the host's
	// loopback lists ports of this host's loopback that programs with a private network reach.
	loopback []uint16
}

// program is the command of runner processes: the embedded runner, or else this program.
type program struct {
	path string
	args []string // the beginning of argv
	file *os.File // keeps the embedded runner open; nil without it
}

// runnerArgs follow program.args. With --own-mounts the runner does not execute itself again to get a mount namespace:
// mechanisms.attributes starts it in one.
func runnerArgs() []string { return []string{"--own-mounts", "--fd", "3"} }

// claimVariable begins the variable that names the folder of the claim in a runner's environment. Programs do not get the variable.
const claimVariable = "PYEXEC_RUNNER="

// spawn starts a runner for s with the mechanisms m and returns when the runner is ready. It must be called on a thread that lives
// longer than the runner: the kernel sends the parent-death signal when the thread that forked ends.
func (s *slot) spawn(p program, m mechanisms, claim string, reach []string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "runner")
	mine := os.NewFile(uintptr(fds[0]), "host")
	conn, err := net.FileConn(mine) // a net.Conn, so that Close ends a Read
	mine.Close()
	if err != nil {
		theirs.Close()
		return fmt.Errorf("socketpair: %w", err)
	}
	s.cmd = &exec.Cmd{
		Path: p.path, Args: slices.Concat(p.args, runnerArgs()), Dir: "/", Env: []string{claimVariable + claim}, ExtraFiles: []*os.File{theirs},
		SysProcAttr: m.attributes(s.network), Stderr: s.stderr, WaitDelay: time.Second,
	}
	err = s.cmd.Start()
	theirs.Close() // else the end of a runner that cannot start is not seen
	if err != nil {
		conn.Close()
		return fmt.Errorf("start a runner: %w", err)
	}
	s.exited = make(chan struct{})
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // bury logs the exit status
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
		WorkRoot: s.dir, Tmpfs: m.Tmpfs, Box: m.Box, Reach: reach, Cgroups: s.groups,
		NetworkNamespace: m.Network || m.Box, InNetworkNamespace: m.User && !m.Box && !s.network,
	}
	if s.private {
		c.PrivateNetwork, c.NetworkOpen, c.NetworkLoopback = true, s.open, s.loopback
	}
	if own := os.TempDir(); public(own) {
		c.Private = []string{own}
	}
	if s.uid != nil {
		c.UID, c.GID, c.OwnUID = s.uid.uid, s.uid.uid, true
	}
	return c
}

// public reports whether dir is a folder that all users may write to.
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
		return s.conn.Err() == nil // Err is set a moment before Done is closed
	}
}

// reasonPatience bounds the wait for the connection of a runner that has ended to be closed.
const reasonPatience = time.Second

// reason returns the error by which a runner ended, or nil if this process ended the runner.
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

// weigh gives the slot's own groups the CPU weight of the next program. Programs of different slots compete by the weights of the
// slots' groups. The runner also weighs the program's group, which lies inside them.
func (s *slot) weigh(shares int64) {
	if s.shares == shares {
		return
	}
	if err := weigh(s.groups, shares, 1+(shares-2)*9999/262142); err != nil {
		s.log.Warn("CPU weight not set", "folder", s.dir, "error", err)
	}
	s.shares = shares
}

// weigh sets the CPU weight of groups: shares on cgroup v1, where the default is 1024, and weight on v2, where the default is 100.
func weigh(groups sandbox.Cgroups, shares, weight int64) error {
	if !groups.Enforces("cpu") {
		return nil
	}
	file, value := filepath.Join(groups["cpu"], "cpu.shares"), min(max(shares, 2), 262144)
	if groups["cpu"] == "" {
		file, value = filepath.Join(groups["unified"], "cpu.weight"), min(max(weight, 1), 10000)
	}
	return os.WriteFile(file, []byte(strconv.FormatInt(value, 10)), 0o600)
}

// stop ends the runner and its program, and returns when the runner process has ended.
func (s *slot) stop() {
	if s.conn != nil {
		_ = s.conn.Close() // the wait below shows whether the process ends
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

// give stops the runner and gives back all that the slot uses. If processes of its programs are left, nobody gets the uid. give is
// idempotent: a second call waits for the first. It does not touch the uid again, which may have another user by then.
func (s *slot) give() { s.given.Do(s.giveOnce) }

func (s *slot) giveOnce() {
	s.stop()
	problems := []error{s.groups.Remove()}
	var clean bool
	if s.uid != nil {
		clean = s.ids.cleared(s.uid)
	} else {
		_, err := sandbox.KillLeftovers(sandbox.Marks{Folders: []string{s.dir}}, 0)
		problems, clean = append(problems, err), err == nil
	}
	problems = append(problems, removeAll(s.dir))
	if err := errors.Join(problems...); err != nil {
		s.log.Warn("slot not given back completely", "folder", s.dir, "error", err)
	}
	if s.uid != nil && clean {
		s.uid.release()
	}
	s.clean = clean
}

// stderrHalf is how many bytes runnerStderr keeps of the start of the output, and how many of its end.
const stderrHalf = 1024

// runnerStderr receives a runner's standard error. The first 50 writes go to the log. The first and the last KiB are kept for
// errors: a crash of Go's runtime gives its reason first and a long trace after it. Nothing goes to the plugin's own standard error.
type runnerStderr struct {
	log         *slog.Logger
	notes       slog.Level // of the runner's notes
	left        int        // writes that still go to the log
	first, last []byte
	omitted     bool // reports whether bytes between first and last were dropped
}

func newRunnerStderr(log *slog.Logger, notes slog.Level) *runnerStderr {
	return &runnerStderr{log: log, notes: notes, left: 50}
}

// Write implements io.Writer; exec calls it from one goroutine.
func (n *runnerStderr) Write(p []byte) (int, error) {
	all := len(p)
	if p = n.withoutNotes(p); len(p) == 0 {
		return all, nil
	}
	head := min(len(p), stderrHalf-len(n.first))
	n.first = append(n.first, p[:head]...)
	n.last = append(n.last, p[head:]...)
	if len(n.last) > stderrHalf {
		n.last = bytes.Clone(n.last[len(n.last)-stderrHalf:])
		n.omitted = true
	}
	if n.left > 0 {
		n.left--
		n.log.Warn("runner wrote to stderr", "text", requirements.Shorten(string(bytes.TrimSpace(p)), 1000))
	}
	return all, nil
}

// withoutNotes logs the runner's notes, and returns the other lines.
func (n *runnerStderr) withoutNotes(p []byte) (rest []byte) {
	for line := range bytes.Lines(p) {
		if note, ok := bytes.CutPrefix(line, []byte(sandbox.NotePrefix)); ok {
			n.log.Log(context.Background(), n.notes, "note of a runner", "text", requirements.Shorten(string(bytes.TrimSpace(note)), 1000))
		} else {
			rest = append(rest, line...)
		}
	}
	return rest
}

// lines returns the start and the end of the output, with "…" between them if bytes were dropped. The runner must have ended.
func (n *runnerStderr) lines() string {
	between := ""
	if n.omitted {
		between = "\n…\n"
	}
	return strings.TrimSpace(string(n.first) + between + string(n.last))
}

// tail returns lines as the end of an error message.
func (n *runnerStderr) tail() string {
	if text := n.lines(); text != "" {
		return ": " + text
	}
	return ""
}

var _ io.Writer = (*runnerStderr)(nil)

// newSlot makes the folder, the uid and the groups of slot number n and starts its runner.
func (p *slots) newSlot(ctx context.Context, n int, k slotKind, claim func() (*uidClaim, error)) (*slot, error) {
	s := &slot{
		how: p.how, dir: filepath.Join(p.claim.dir, strconv.Itoa(n)), slotKind: k, open: p.open,
		stderr: newRunnerStderr(p.log, p.notes), ids: p.ids, log: p.log,
	}
	fail := func(err error) (*slot, error) {
		s.give()
		return nil, err
	}
	if err := os.Mkdir(s.dir, 0o711); err != nil { //nolint:gosec // the slot's uid must pass
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
	case p.starts <- func() { spawned <- s.spawn(p.program, p.how, p.claim.dir, p.reach) }:
	case <-p.closed:
		return fail(backend.ErrClosed)
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	if err := <-spawned; err != nil {
		return fail(executor.Errorf(executor.Unavailable, "%w", err))
	}
	return s, nil
}
