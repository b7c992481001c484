package scripts

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/binary"
)

// runnerPatience is how long a runner may run after its connection was closed. It is then killed.
const runnerPatience = 10 * time.Second

// program is the program of the runners.
type program struct {
	path string
	args []string
	file *os.File // keeps the embedded runner open; nil: not embedded
}

func findRunner(given func() (string, []string, error)) (*program, error) {
	if given != nil {
		path, args, err := given()
		return &program{path: path, args: args}, err
	}
	if f, ok := binary.Open(); ok {
		return &program{path: fmt.Sprintf("/proc/self/fd/%d", f.Fd()), args: []string{"python-executor-runner"}, file: f}, nil
	}
	return &program{path: "/proc/self/exe", args: []string{"python-executor", "runner"}}, nil
}

func (p *program) close() error {
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}

// plan is a checked request.
type plan struct {
	script allowed
	args   []string
	env    map[string]string
	limits executor.Limits
}

// fields are the fields of a Spec that have a meaning for a script. Unsupported judges their values.
var fields = []string{
	"script", "args", "env", "language", "interpreter", "detect", "backend", "durable", "idempotency_key",
	"config.timeout_seconds", "config.output_bytes", "config.kill_grace_seconds", "config.network_disabled",
}

// plan checks job against the policy. Codes: denied, invalid, unimplemented.
func (b *Backend) plan(job executor.Job) (plan, error) {
	s := job.Spec
	if s.Script == "" {
		return plan{}, executor.FieldErrorf(executor.Unimplemented, "script", "this backend runs allow-listed scripts only")
	}
	refused := capabilities.Unsupported(s)
	for _, f := range s.Fields() {
		if f.Set && !slices.Contains(fields, f.Name) {
			refused = append(refused, f.Name)
		}
	}
	if job.Workspace != nil {
		refused = append(refused, "tar")
	}
	if len(refused) > 0 {
		return plan{}, executor.FieldErrorf(executor.Unimplemented, refused[0], "must not be given for a script of the host")
	}
	script, err := b.policy.find(s.Script)
	if err != nil {
		return plan{}, err
	}
	p := plan{script: script}
	asked := s.Args
	if len(asked) == 0 {
		asked = b.policy.DefaultArgs
	}
	if p.args, err = b.policy.arguments(asked); err != nil {
		return plan{}, err
	}
	if p.env, err = b.policy.environment(s.Env); err != nil {
		return plan{}, err
	}
	p.limits = executor.Limits{Timeout: job.Limits.Timeout, CPUTime: job.Limits.CPUTime, KillGrace: job.Limits.KillGrace, OutputBytes: b.policy.MaxOutputBytes}
	if s.Limits.Timeout == 0 {
		p.limits.Timeout = min(b.policy.Timeout(), job.Limits.Timeout)
	}
	if s.Limits.OutputBytes > 0 {
		p.limits.OutputBytes = min(p.limits.OutputBytes, s.Limits.OutputBytes)
	}
	return p, nil
}

// run starts a runner for p alone: a script takes seconds, a runner milliseconds.
func (b *Backend) run(ctx context.Context, job executor.Job, p plan, sink executor.Sink) (res executor.Result, err error) {
	if ctx.Err() != nil {
		return executor.Result{Status: executor.StatusKilled}, nil
	}
	dir, err := os.MkdirTemp(b.options.WorkDir, "script-")
	if err != nil {
		return executor.Result{}, executor.Errorf(executor.Internal, "work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	conn, stop, err := b.runner.start(dir)
	if err != nil {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "%w", err)
	}
	defer stop()
	in := runner.RunInput{}
	if job.Stdin != nil {
		stdin, err := job.Stdin.Open()
		if err != nil {
			return executor.Result{}, err
		}
		in.Stdin = stdin
	}
	log, err := b.audit.begin(job.ID)
	if err != nil {
		b.log.Error("log of a script", "execution", job.ID, "error", err)
	}
	capped := &lineSink{sink: sink, max: b.policy.MaxLineBytes, log: log}
	began := time.Now()
	res, err = conn.Run(ctx, runner.Start{
		ExecutionID: job.ID, Command: append([]string{p.script.real}, p.args...), Directory: p.script.dir,
		Env: p.env, Path: p.env["PATH"], Network: true, Limits: p.limits,
	}, in, capped)
	res.StdoutTruncated = res.StdoutTruncated || capped.cut[executor.Stdout]
	res.StderrTruncated = res.StderrTruncated || capped.cut[executor.Stderr]
	if path, closeErr := log.end(); closeErr != nil {
		b.log.Error("log of a script", "execution", job.ID, "error", closeErr)
	} else {
		res.LogPath = path
	}
	b.record(ctx, job, p.script.path, p.args, res, err, time.Since(began))
	return res, err
}

// start starts a runner whose files lie in dir.
func (p *program) start(dir string) (*runner.Conn, func(), error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "runner")
	mine := os.NewFile(uintptr(fds[0]), "host")
	conn, err := net.FileConn(mine) // the Close of a net.Conn ends its Read
	mine.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	cmd := &exec.Cmd{
		Path: p.path, Args: append(append([]string{}, p.args...), "--fd", "3"), Dir: "/", Env: []string{}, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
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
	kill := func() {
		timer := time.AfterFunc(runnerPatience, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		<-exited
	}
	c, err := runner.NewConn(conn, runner.Config{WorkRoot: dir})
	if err != nil {
		kill()
		return nil, nil, fmt.Errorf("start a runner: %w", err)
	}
	return c, func() {
		_ = c.Close() // ends the runner
		kill()
	}, nil
}

// lineSink passes on the output of a script with long lines cut, and copies the output to log.
type lineSink struct {
	sink executor.Sink
	max  int
	log  *runLog
	// cut tells, by stream, whether a line was cut.
	cut map[executor.Stream]bool
	// line is the length of the current line and offset the number of bytes that were passed on, by stream.
	line   map[executor.Stream]int
	offset map[executor.Stream]int64
}

// Emit implements executor.Sink.
func (s *lineSink) Emit(e executor.Event) error {
	o, ok := e.Body.(executor.Output)
	if !ok {
		return s.sink.Emit(e)
	}
	if s.line == nil {
		s.line, s.offset, s.cut = map[executor.Stream]int{}, map[executor.Stream]int64{}, map[executor.Stream]bool{}
	}
	kept := s.shorten(o.Stream, o.Data)
	s.log.write(o.Stream, kept)
	if len(kept) == 0 {
		return nil
	}
	o.Data, o.Offset = kept, s.offset[o.Stream]
	s.offset[o.Stream] += int64(len(kept))
	return s.sink.Emit(executor.Event{Body: o})
}

// shorten returns data without the bytes of each line beyond max.
func (s *lineSink) shorten(stream executor.Stream, data []byte) []byte {
	kept := make([]byte, 0, len(data))
	for _, c := range data {
		if c == '\n' {
			s.line[stream] = 0
			kept = append(kept, c)
			continue
		}
		if s.line[stream] >= s.max {
			s.cut[stream] = true
			continue
		}
		s.line[stream]++
		kept = append(kept, c)
	}
	return kept
}

// Artifact implements executor.Sink. Scripts have no Artifacts, so it returns an error.
func (s *lineSink) Artifact(_ *tar.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return errors.Join(err, executor.Errorf(executor.Internal, "a script has no artifacts"))
}

// record writes the audit line of a run or of a refused request.
func (b *Backend) record(ctx context.Context, job executor.Job, path string, args []string, res executor.Result, err error, took time.Duration) {
	outcome := string(res.Status)
	if err != nil {
		outcome = string(executor.CodeOf(err))
	}
	b.write(auditLine{
		Tool: cmp.Or(executor.ToolFrom(ctx), "run_script"), Path: path, Args: args,
		DurationMS: took.Milliseconds(), ExitCode: exitCode(res), Signal: strings.TrimPrefix(res.Signal, "SIG"), Result: outcome,
		Truncated: res.StdoutTruncated || res.StderrTruncated, Requester: job.Owner, ExecutionID: job.ID, LogPath: res.LogPath,
	})
}

// recordList writes the audit line of a request for the list.
func (b *Backend) recordList(owner string) {
	b.write(auditLine{Tool: "list_allowed", Result: string(executor.StatusSucceeded), Requester: owner})
}

func (b *Backend) write(line auditLine) {
	line.TS = time.Now().UTC().Format(time.RFC3339Nano)
	if line.Args == nil {
		line.Args = []string{}
	}
	if err := b.audit.write(line); err != nil {
		b.log.Error("audit log", "folder", filepath.Clean(b.policy.LogDir), "error", err)
	}
}

// exitCode returns the exit code of a script as run_script shows it: -n if signal n has ended it. It is nil for a script that did not run.
func exitCode(r executor.Result) *int {
	n := executor.SignalNumber(r.Signal)
	switch {
	case r.ExitCode != nil:
		return r.ExitCode
	case n > 0:
		return new(-n)
	case r.Status == executor.StatusTimedOut, r.Status == executor.StatusKilled:
		return new(-1)
	}
	return nil
}
