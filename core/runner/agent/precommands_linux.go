package agent

import (
	"fmt"
	"os"
	"strings"
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
	said := read(x.agent, pipes.Stdout, pipes.Stderr)
	x.setPID(got.PID, got.PIDFD)
	r := sandbox.NewReaper(x.agent.Sandbox, got.PID)
	if got.PIDFD >= 0 {
		defer unix.Close(got.PIDFD) //nolint:errcheck // nothing was written
	}
	x.group.Bound = x.agent.Bound(x.group, x.folder, x.start.Limits)
	end, reason := x.supervise(began, r, sandbox.NewSampler(x.group, got.PID, got.At, 0))
	x.group.Bound.End()
	x.setPID(0, -1)
	x.finish(r, end)
	x.dieIfStuck()
	output := said.text()
	how := ending(end.Status)
	switch {
	case x.isCancelled():
		return protocol.ErrCancelled
	case reason == executor.StatusTimedOut:
		how = "was stopped at the timeout of " + x.start.Limits.Timeout.String()
	case x.group.Bound.Full():
		how = protocol.DiskFull(x.start.Limits.DiskBytes).Message
	case x.group.OOMKills() > 0:
		how = protocol.OutOfMemory(x.start.Limits.MemoryBytes).Message
	case how == "":
		return nil
	}
	message := fmt.Sprintf("pre_commands[%d] %q %s", n, command, how)
	if output != "" {
		message += ":\n" + output
	}
	return &sandbox.Failure{Failure: executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "pre_commands", Message: message}}
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

// spoken is what a command writes to both streams.
type spoken struct {
	files []*os.File
	parts chan []byte
	ended chan struct{}
	kept  chan struct{} // closed when last is whole
	last  []byte
}

// read reads the streams until they end.
func read(a *agent, streams ...*os.File) *spoken {
	s := &spoken{files: streams, parts: make(chan []byte), ended: make(chan struct{}), kept: make(chan struct{})}
	for _, f := range streams {
		a.Go(func() {
			defer func() { s.ended <- struct{}{} }()
			for {
				part := make([]byte, 4<<10)
				n, err := f.Read(part)
				if n > 0 {
					s.parts <- part[:n]
				}
				if err != nil {
					return
				}
			}
		})
	}
	a.Go(s.keep)
	return s
}

// keep keeps the last bytes until all streams have ended.
func (s *spoken) keep() {
	for open := len(s.files); open > 0; {
		select {
		case part := <-s.parts:
			s.last = append(s.last, part...)
			if over := len(s.last) - maxPreOutput; over > 0 {
				s.last = append(s.last[:0], s.last[over:]...)
			}
		case <-s.ended:
			open--
		}
	}
	close(s.kept)
}

// text returns the output as text. No process that could write is alive.
func (s *spoken) text() string {
	<-s.kept
	for _, f := range s.files {
		_ = f.Close()
	}
	return strings.TrimRight(strings.ToValidUTF8(string(s.last), "\uFFFD"), "\n")
}
