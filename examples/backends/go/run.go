package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// runnerPatience is how long a runner may take to end after its connection was closed.
const runnerPatience = 10 * time.Second

// Run implements executor.Backend: it refuses what it cannot do, starts a runner, and lets it run the job.
func (b *local) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := b.refuse(job.Spec); err != nil {
		return executor.Result{}, err
	}
	ctx, leave, err := b.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	if ctx.Err() != nil {
		return executor.Result{Status: executor.StatusKilled, CPU: -1}, nil
	}
	dir, err := os.MkdirTemp(b.work.path, "run-")
	if err != nil {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	conn, stop, err := startRunner(dir)
	if err != nil {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "%w", err)
	}
	defer stop()

	start := protocol.NewStart(job)
	start.Network, start.PythonVersion = true, b.pythonVersion
	start.Path = filepath.Dir(b.python) + ":/usr/local/bin:/usr/bin:/bin"
	// The limits that are not promised are not set either.
	start.Limits.MemoryBytes, start.Limits.CPUShares, start.Limits.PIDs = 0, 0, 0
	if len(job.Spec.Command) == 0 {
		start.Interpreter = []string{b.python}
	}
	in := runner.RunInput{Workspace: runner.NewSourceReader(job.Workspace).Reader(), Stdin: runner.NewSourceReader(job.Stdin).Reader()}
	return conn.Run(ctx, start, in, versioned{sink, b.pythonVersion})
}

// versioned is a Sink that adds the version of Python to Started.
type versioned struct {
	executor.Sink
	version string
}

// Emit implements executor.Sink.
func (v versioned) Emit(e executor.Event) error {
	if s, ok := e.Body.(executor.Started); ok {
		s.PythonVersion = v.version
		e.Body = s
	}
	return v.Sink.Emit(e)
}

// startRunner starts a runner whose files lie in dir. stop ends it.
//
// The runner is in a process group of its own. The host kills the plugin's group when the plugin is gone, and the runner
// must live on until it has ended the program. It sees the end of its connection.
func startRunner(dir string) (c *runner.Conn, stop func(), err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs, mine := os.NewFile(uintptr(fds[1]), "runner"), os.NewFile(uintptr(fds[0]), "plugin")
	conn, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"local-backend", "runner", "--fd", "3"}, Dir: "/", Env: []string{},
		ExtraFiles: []*os.File{theirs}, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = cmd.Start()
	theirs.Close() // else the end of a runner that cannot start is not seen
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("start a runner: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // the exit code does not matter
	}()
	stop = func() {
		conn.Close()
		timer := time.AfterFunc(runnerPatience, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		<-exited
	}
	if c, err = runner.NewConn(conn, runner.Config{WorkRoot: dir}); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start a runner: %w", err)
	}
	return c, stop, nil
}

// lockFolder takes the lock of a folder, which ends with the process.
func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
