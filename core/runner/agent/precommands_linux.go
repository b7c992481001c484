package agent

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// runPreCommands runs the commands that prepare the work folder, one after the other, as the program itself will run. The timeout of the
// program bounds them together. The error is a sandbox.Failure of the command that failed.
func (x *execution) runPreCommands() error {
	began := time.Now()
	for n, command := range x.start.PreCommands {
		if strings.TrimSpace(command) == "" {
			continue
		}
		_ = x.agent.out.SendJSON(protocol.FrameProgress, executor.Progress{Phase: executor.PhasePrepare, Message: command}) // a broken connection shows in the reader
		if err := x.runPreCommand(n, command, began); err != nil {
			return err
		}
	}
	x.preCPU = max(x.group.CPUTime(), 0)
	return nil
}

// runPreCommand runs one command. began is the start of the first.
func (x *execution) runPreCommand(n int, command string, began time.Time) error {
	start := x.start
	start.Command, start.Args = []string{"/bin/sh", "-c", command}, nil
	p, err := sandbox.Resolve(start, x.folder, x.agent.Config, archive.PythonFiles{})
	if err != nil {
		return err
	}
	pipes, err := sandbox.MakePipes(x.agent.Config, false)
	if err != nil {
		return err
	}
	got := x.agent.Spawner(x.start.Network).Start(x.job(p, pipes, x.start.Limits))
	if err := x.startError(p, pipes, got); err != nil {
		return err
	}
	said := x.hear(pipes.Stdout, pipes.Stderr)
	x.setPID(got.PID, got.PIDFD)
	r := sandbox.NewReaper(x.agent.Sandbox, got.PID)
	if got.PIDFD >= 0 {
		defer unix.Close(got.PIDFD) //nolint:errcheck // nothing was written
	}
	x.group.Bound = x.agent.Bound(x.group, x.folder, x.start.Limits)
	before := x.killsBefore()
	end, reason := x.supervise(began, r, sandbox.NewSampler(x.group, got.PID, got.At, 0), nil)
	x.group.Bound.End()
	x.setPID(0, -1)
	x.finish(r, end)
	x.dieIfStuck()
	output := said()
	how := ending(end.Status)
	switch {
	case x.isCancelled():
		return protocol.ErrCancelled
	case reason == executor.StatusTimedOut:
		how = "was stopped at the timeout of " + x.start.Limits.Timeout.String()
	case how == "":
		return nil
	case x.group.Bound.Full():
		how = protocol.DiskFull(x.start.Limits.DiskBytes).Message
	case x.group.OOMKills() > before:
		how = protocol.OutOfMemory(x.start.Limits.MemoryBytes).Message
	}
	message := fmt.Sprintf("pre_commands[%d] %q %s", n, command, how)
	if output != "" {
		message += ":\n" + output
	}
	return &sandbox.Failure{Failure: executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "pre_commands", Message: message}}
}

// killsBefore is how many processes of PreCommands were killed for their memory by now. A command may go on after such an end.
func (x *execution) killsBefore() int64 {
	if len(x.start.PreCommands) == 0 {
		return 0
	}
	return x.group.OOMKills()
}

// ending says how a command failed; empty: it has not.
func ending(ws syscall.WaitStatus) string {
	switch {
	case ws.Signaled():
		return "was ended by " + sandbox.SignalName(ws.Signal())
	case ws.ExitStatus() != 0:
		return fmt.Sprintf("ended with exit code %d", ws.ExitStatus())
	}
	return ""
}

// maxPreOutput bounds the output of a command that its failure repeats: the last bytes.
const maxPreOutput = 16 << 10

// hear reads the streams of a command until they end. The returned function waits for that and returns the last output. No process that could
// write is alive then.
func (x *execution) hear(streams ...*os.File) (text func() string) {
	var (
		readers sync.WaitGroup
		mu      sync.Mutex
		last    []byte
	)
	for _, f := range streams {
		readers.Go(func() {
			defer f.Close() //nolint:errcheck // read only
			part := make([]byte, 4<<10)
			for {
				n, err := f.Read(part)
				mu.Lock()
				last = append(last, part[:n]...)
				last = slices.Delete(last, 0, max(0, len(last)-maxPreOutput))
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	return func() string {
		readers.Wait()
		return strings.TrimRight(strings.ToValidUTF8(string(last), "\uFFFD"), "\n")
	}
}
