package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
	"golang.org/x/sys/unix"
)

// pipeGrace is how long the pipes of a process are read after its end. All of its output is in the pipes by then, and a
// descendant that holds the other end of a pipe must not delay the host.
const pipeGrace = 200 * time.Millisecond

// maxPipe is the size of the largest pipe of an unprivileged process.
const maxPipe = 1 << 20

// lastWords reads a pipe. After the deadline of the pipe it reads what the pipe holds, at most maxPipe, and then returns io.EOF. A
// reader on a busy machine may come to a process's last words after the deadline.
type lastWords struct {
	*os.File
	read int // after the deadline
}

// Read implements io.Reader.
func (l *lastWords) Read(b []byte) (n int, err error) {
	if n, err = l.File.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	pipe, err := l.SyscallConn()
	if err != nil {
		return 0, err
	}
	b = b[:min(len(b), maxPipe-l.read)]
	if failed := pipe.Control(func(fd uintptr) { n, err = unix.Read(int(fd), b) }); failed != nil || err != nil || n <= 0 {
		return 0, io.EOF // the pipe is empty, and does not block
	}
	l.read += n
	return n, nil
}

// process is the child process, as a runner of go-plugin. go-plugin's own runner passes on the host's standard input, reads the
// child's log with a parser that panics on some lines, and does not report the end of the child.
type process struct {
	cmd  *exec.Cmd
	logs *logPump

	stdout *os.File
	exited chan struct{}
	// err is the error of Wait. It is set before exited is closed.
	err error

	// mu guards cmd.Process until it is set, and dead, which reports that the process number may belong to another process.
	mu   sync.Mutex
	dead bool
}

var _ runner.Runner = (*process)(nil)

// newProcess prepares the child. It has no standard input, a process group of its own, and of the host's descriptors only
// the pipes.
func newProcess(path string, args []string, logs *logPump) *process {
	if len(args) == 0 {
		args = []string{path}
	}
	return &process{
		cmd: &exec.Cmd{
			Path: path, Args: args,
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		},
		logs:   logs,
		exited: make(chan struct{}),
	}
}

// Start implements runner.Runner.
func (p *process) Start(context.Context) error {
	closeInherited()
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_ = outR.Close()
		_ = outW.Close()
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = outW, errW
	err = p.spawn()
	_ = outW.Close()
	_ = errW.Close()
	if err != nil {
		_ = outR.Close()
		_ = errR.Close()
		return err
	}
	p.stdout = outR
	go p.logs.pump(&lastWords{File: errR}) //nolint:gosec // it ends with the pipe
	go p.reap(outR, errR)
	return nil
}

func (p *process) spawn() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errors.New("killed before it was started")
	}
	return p.cmd.Start()
}

// started reports whether the child was started.
func (p *process) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process != nil
}

// closeInherited marks the descriptors that the parent process left open as close-on-exec. Go marks only those that Go opened.
func closeInherited() {
	// A kernel before 5.9 lacks the call. The plugin then inherits the descriptors, too.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}

// reap waits for the child and kills the rest of its process group.
func (p *process) reap(pipes ...*os.File) {
	pid := p.cmd.Process.Pid
	for {
		// Until the child is waited for its number, and so the group's, belongs to no other process.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	p.dead = true
	_ = syscall.Kill(-pid, syscall.SIGKILL) // ESRCH: the group is empty
	p.err = p.cmd.Wait()
	p.mu.Unlock()
	for _, f := range pipes {
		_ = f.SetReadDeadline(time.Now().Add(pipeGrace))
	}
	close(p.exited)
}

// kill ends the child and its group at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cmd.Process == nil:
		p.dead = true
	case !p.dead:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Wait implements runner.AttachedRunner.
func (p *process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		_ = p.stdout.Close()
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements runner.AttachedRunner.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// Stdout implements runner.Runner.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner: go-plugin gets nothing to parse.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *process) Name() string { return p.cmd.Path }

// ID implements runner.AttachedRunner.
func (p *process) ID() string {
	if !p.started() {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

// Diagnose implements runner.Runner.
func (p *process) Diagnose(context.Context) string {
	return fmt.Sprintf("%s does not speak the plugin protocol", p.cmd.Path)
}

// PluginToHost implements runner.AddrTranslator.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
