package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/job"
)

// prepareMain makes what prepare.json asks for. If the user's input is at fault, the last record is a Result with a Failure.
func prepareMain(input, output, _ string) int {
	ctx, stop := signalled()
	defer stop()
	var in job.Prepare
	readErr := job.ReadInput(input, job.PrepareFile, &in)
	in.Path = cmp.Or(in.Path, os.Getenv("PATH")) // the image's
	w, err := job.NewWriter(output, in.ExecutionID)
	if err != nil {
		say(err)
		return ExitNotRun
	}
	p := &preparation{input: input, in: in, w: w}
	var failure *executor.Failure
	begun := time.Now()
	if err = readErr; err == nil {
		failure, err = p.run(ctx)
	}
	code := ExitNotRun
	switch {
	case err != nil:
		say(err)
		err = w.Fail(err)
	case failure == nil && ctx.Err() == nil:
		code, err = 0, w.Prepared(p.made)
	default:
		res := executor.Result{Status: executor.StatusKilled, CPU: -1, Phases: executor.Phases{Prepare: time.Since(begun)}}
		if ctx.Err() == nil {
			say(errors.New(failure.Message))
			res.Status, res.Failure = executor.StatusFailed, failure
		}
		err = w.Result(res)
	}
	if p.host != nil {
		p.host.close()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		say(err)
		return ExitNotRun
	}
	return code
}

// preparation makes the environment and the files of one Execution.
type preparation struct {
	input  string
	in     job.Prepare
	w      *job.Writer
	host   *host // nil before it is open
	end    time.Time
	told   time.Time // when the last Progress was written
	python runner.Interpreter
	made   job.Prepared
}

// fault returns a Failure of the phase prepare.
func fault(code executor.Code, field, message string) *executor.Failure {
	return &executor.Failure{Code: code, Phase: executor.PhasePrepare, Field: field, Message: message}
}

// run makes everything. A Failure means that the commands or requirements are at fault, or that the package index is out of
// reach. If ctx ends, the outcome has no meaning. Codes: invalid (refused), internal, unavailable (the runner broke).
func (p *preparation) run(ctx context.Context) (failure *executor.Failure, err error) {
	p.end = time.Now().Add(p.in.Limits.Timeout)
	err = os.MkdirAll(p.in.Folder, 0o711) //nolint:gosec // a folder that programs pass through
	if err == nil {
		err = os.Chmod(p.in.Folder, 0o711) //nolint:gosec // likewise
	}
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "folder: %w", err)
	}
	if p.host, err = open(p.in.Config, p.in.Protect, p.in.Folder, p.w); err != nil {
		return nil, err
	}
	if len(p.in.Requirements) > 0 {
		if failure, err = p.findPython(ctx); failure != nil || err != nil {
			return failure, err
		}
	}
	for _, step := range []func(context.Context) (*executor.Failure, error){p.commands, p.install} {
		if failure, err = step(ctx); failure != nil || err != nil || ctx.Err() != nil {
			return failure, err
		}
	}
	raw, err := json.Marshal(p.made)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.in.Folder, job.PreparedFile), raw, 0o600)
	}
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "folder: %w", err)
	}
	return nil, nil
}

func (p *preparation) findPython(ctx context.Context) (*executor.Failure, error) {
	found, err := p.host.interpreter(ctx, p.start())
	switch {
	case err != nil || ctx.Err() != nil:
		return nil, err
	case found.Path == "":
		return fault(executor.Invalid, "requirements_txt", "the image has no Python to install requirements for"), nil
	case p.in.PythonVersion != "" && found.Minor() != p.in.PythonVersion:
		return nil, otherPython(found, p.in.PythonVersion)
	}
	p.python = found
	return nil, nil
}

// otherPython is the refusal of an image whose Python has another minor version.
func otherPython(found runner.Interpreter, minor string) error {
	return executor.FieldErrorf(executor.Invalid, "python_version", "must match the image, whose Python is %s (got %q)", found.VersionOrNone(), minor)
}

// start returns what all steps have in common.
func (p *preparation) start() runner.Start {
	s := runner.Start{ExecutionID: p.in.ExecutionID, Path: p.in.Path, Network: p.in.Network, Limits: p.in.Limits}
	s.Limits.Timeout, s.Limits.OutputBytes = max(time.Until(p.end), time.Millisecond), executor.Unlimited
	return s
}

// progress writes a Progress, unless one was written shortly before.
func (p *preparation) progress(e executor.Progress) {
	if time.Since(p.told) < progressEvery {
		return
	}
	p.told = time.Now()
	_ = p.w.Emit(executor.Event{Body: e}) // the last record fails as well
}

func (p *preparation) tell(message string) {
	p.progress(executor.Progress{Phase: executor.PhasePrepare, Message: message})
}

// progressEvery is the least time between two Progress events.
const progressEvery = 200 * time.Millisecond

// step runs a program in a folder, with input as its standard input. A Failure names the limit that the program has reached.
// run ends the program when the preparation's folder is too large.
func (p *preparation) step(ctx context.Context, field string, start runner.Start, input []byte, out sink) (executor.Result, *executor.Failure, error) {
	within, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watchDisk(within, stop)
	}()
	res, err := p.host.conn.Run(within, start, runner.RunInput{Stdin: strings.NewReader(string(input))}, out)
	full := errors.Is(context.Cause(within), errFull)
	stop(nil)
	<-watched
	if err != nil || ctx.Err() != nil {
		return res, nil, err
	}
	if !full && res.Status != executor.StatusKilled && res.Status != executor.StatusTimedOut {
		full = p.overfull()
	}
	limits := p.in.Limits
	switch {
	case full:
		return res, fault(executor.Exhausted, field, fmt.Sprintf("wrote more than %d MiB", limits.DiskBytes>>20)), nil
	case res.Status == executor.StatusTimedOut:
		return res, fault(executor.Exhausted, field, fmt.Sprintf("not prepared within %s", limits.Timeout)), nil
	case res.Failure != nil && res.Failure.Code == executor.Exhausted && res.Failure.Field == "config.memory_mb":
		return res, fault(executor.Exhausted, field, fmt.Sprintf("needed more than %d MiB of memory", limits.MemoryBytes>>20)), nil
	case res.Status == executor.StatusKilled:
		return res, nil, executor.Errorf(executor.Internal, "the preparation was killed")
	}
	return res, nil, nil
}

// commands runs pre_commands as the program's user, in a folder with the Workspace.
func (p *preparation) commands(ctx context.Context) (*executor.Failure, error) {
	if len(p.in.Commands) == 0 {
		return nil, nil
	}
	work := filepath.Join(p.in.Folder, "work")
	if failure, err := p.unpack(ctx, work); failure != nil || err != nil || ctx.Err() != nil {
		return failure, err
	}
	log := requirements.NewCommands(p.in.Commands, p.tell)
	lines := &requirements.Lines{Tell: log.Line}
	start := p.start()
	start.Command, start.Directory = []string{"/bin/sh", "-s"}, work
	res, failure, err := p.step(ctx, "pre_commands", start, log.Script(p.in.CommandEnv, ""), sink{stderr: func(b []byte) { _, _ = lines.Write(b) }})
	lines.Flush()
	switch {
	case err != nil || ctx.Err() != nil:
		return nil, err
	case failure != nil:
		return log.Failure(failure.Code, failure.Message), nil
	case res.Failure != nil && res.Failure.Phase == executor.PhaseStart:
		return fault(executor.Invalid, "pre_commands", "the image has no /bin/sh to run commands: "+res.Failure.Message), nil
	case res.Failure != nil:
		return log.Failure(res.Failure.Code, "failed: "+res.Failure.Message), nil
	case res.ExitCode == nil:
		return log.Failure(executor.Invalid, "ended by "+res.Signal), nil
	case *res.ExitCode != 0:
		return log.Exited(*res.ExitCode), nil
	}
	// Programs get a copy: what they write shall count against their limit.
	p.made.Work = work
	return nil, seal(work, 0o700)
}

// unpack makes the folder work, with the Workspace.
func (p *preparation) unpack(ctx context.Context, work string) (*executor.Failure, error) {
	cfg := p.in.Config
	err := errors.Join(os.Mkdir(work, 0o700), os.Chown(work, cfg.UID, cfg.GID))
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "folder: %w", err)
	}
	f, err := os.Open(filepath.Join(p.input, job.WorkspaceFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "input: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	root, err := os.Open(work)
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "folder: %w", err)
	}
	defer root.Close() //nolint:errcheck // read only
	x := archive.Extractor{Root: root, UID: cfg.UID, GID: cfg.GID, Own: true, MaxBytes: p.in.Limits.DiskBytes, Progress: func(done int64) {
		p.progress(executor.Progress{Phase: executor.PhasePrepare, Message: "unpack the workspace", Done: done, Unit: "bytes"})
	}}
	err = x.Extract(f)
	if bad, ok := errors.AsType[*archive.InputError](err); ok {
		return fault(executor.Invalid, "", "workspace: "+bad.Error()), nil
	}
	if err != nil && ctx.Err() == nil {
		return nil, executor.Errorf(executor.Internal, "unpack the workspace: %w", err)
	}
	return nil, nil
}

// install makes the environment with the requirements, as the program's user.
func (p *preparation) install(ctx context.Context) (*executor.Failure, error) {
	if len(p.in.Requirements) == 0 {
		return nil, nil
	}
	base := filepath.Join(p.in.Folder, "packages")
	input, err := p.driverJob(base)
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "folder: %w", err)
	}
	p.tell(fmt.Sprintf("installing %d requirements for Python %s", len(p.in.Requirements), p.python.Version))
	said, answer := &requirements.Tail{Max: 8 << 10}, &requirements.Tail{Max: requirements.MaxLine}
	steps := &requirements.Steps{Notify: p.progress}
	stdout := &requirements.Lines{Tell: answer.Add}
	stderr := &requirements.Lines{Tell: func(line string) { said.Add(line); steps.Line(line) }}
	start := p.start()
	start.Command, start.Directory = []string{p.python.Path, "-I", "-c", requirements.Driver}, base
	res, failure, err := p.step(ctx, "requirements_txt", start, input, sink{
		stdout: func(b []byte) { _, _ = stdout.Write(b) }, stderr: func(b []byte) { _, _ = stderr.Write(b) },
	})
	stdout.Flush()
	stderr.Flush()
	if failure != nil || err != nil || ctx.Err() != nil {
		return failure, err
	}
	var outcome requirements.DriverOutcome
	if err := json.Unmarshal([]byte(answer.String()), &outcome); err != nil {
		outcome = requirements.DriverOutcome{} // the driver has failed
	}
	words := requirements.Clean(said.String(), base)
	switch {
	case outcome.Refused != "":
		return requirements.Refused(errors.New(requirements.NotPublic(outcome.Refused))), nil
	case outcome.Failed == "install":
		return requirements.Classify(words), nil
	case outcome.Failed == "tool":
		return fault(executor.Invalid, "requirements_txt", "the image has neither pip nor venv: use an image with pip"), nil
	case outcome.Python == "":
		return fault(executor.Internal, "", fmt.Sprintf("the environment could not be made (%s): %s", ending(res), words)), nil
	}
	p.made.Interpreter, p.made.PythonVersion, p.made.Requirements = outcome.Python, outcome.Version, outcome.Requirements
	p.made.Path = filepath.Join(base, "env", "bin")
	return nil, seal(base, 0o755)
}

// ending says how a program ended.
func ending(r executor.Result) string {
	switch {
	case r.Failure != nil:
		return r.Failure.Message
	case r.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *r.ExitCode)
	}
	return r.Signal
}

// driverJob makes the folder of the environment, and in it the files that the installer needs. It returns the installer's input.
func (p *preparation) driverJob(base string) ([]byte, error) {
	cfg := p.in.Config
	tools := filepath.Join(base, "tools")
	d := requirements.DriverJob{Base: base, Tools: tools, Requirements: p.in.Requirements, AllowBuilds: p.in.AllowBuilds, Env: map[string]string{}, Sources: p.in.Sources, Closed: p.in.Closed}
	for name, value := range p.in.InstallEnv {
		d.Env[name] = value
	}
	for _, dir := range []string{base, tools} {
		//nolint:gosec // programs read the environment
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, cfg.UID, cfg.GID)); err != nil {
			return nil, err
		}
	}
	for name, variables := range map[string][]string{job.BundleFile: {"SSL_CERT_FILE", "PIP_CERT"}, job.NetrcFile: {"NETRC"}} {
		in, err := inputFile(p.input, name)
		if err != nil {
			return nil, err
		}
		if in == nil {
			continue
		}
		raw, err := io.ReadAll(in)
		to := filepath.Join(tools, name)
		if err = errors.Join(err, os.WriteFile(to, raw, 0o400), os.Chown(to, cfg.UID, cfg.GID)); err != nil {
			return nil, err
		}
		for _, v := range variables {
			d.Env[v] = to
		}
	}
	raw, err := json.Marshal(d)
	return append(raw, '\n'), err
}
