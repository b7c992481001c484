package batch

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/job"
)

// sigrtmin3 is SIGRTMIN+3, which ends systemd.
const sigrtmin3 = syscall.Signal(37)

// signalled returns a context that a stop signal ends. Docker sends the one that the image names (STOPSIGNAL), SIGTERM by default.
func signalled() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, sigrtmin3)
}

// jobMain runs the Execution of start.json.
func jobMain(input, output, feed string) int {
	ctx, stop := signalled()
	defer stop()
	var in job.Start
	readErr := job.ReadInput(input, job.StartFile, &in)
	w, err := job.NewWriter(output, in.Start.ExecutionID)
	if err != nil {
		say(err)
		return ExitNotRun
	}
	r := &run{input: input, feed: feed, in: in, w: w}
	var res executor.Result
	if err = readErr; err == nil {
		res, err = r.run(ctx)
	}
	code := exitCode(res)
	if err != nil {
		say(err)
		code, err = ExitNotRun, w.Fail(err)
	} else {
		err = w.Result(res)
	}
	r.close() // nobody waits for that
	if err = errors.Join(err, w.Close()); err != nil {
		say(err)
		return ExitNotRun
	}
	return code
}

// exitCode returns the exit code of a runner for the Result that it has written.
func exitCode(r executor.Result) int {
	switch {
	case r.ExitCode != nil:
		return *r.ExitCode
	case r.Signal != "":
		return 128 + executor.SignalNumber(r.Signal)
	}
	return ExitNotRun
}

// run is the run of one Execution.
type run struct {
	input string
	feed  string // the folder of job.FeedSocket; empty: the standard input is a file, or empty
	in    job.Start
	w     *job.Writer
	// host and out are nil before the runner is open.
	host *host
	out  *copier
}

// close ends the runner, and waits for the copies of the output.
func (r *run) close() {
	if r.host != nil {
		r.host.close()
	}
	if r.out != nil {
		r.out.finish()
	}
}

// run runs the Execution and writes its events. Codes: invalid (refused), internal, unavailable (the runner broke).
func (r *run) run(ctx context.Context) (executor.Result, error) {
	begun := time.Now()
	prepared, err := findPrepared(r.in)
	if err != nil {
		return executor.Result{}, err
	}
	if r.host, err = open(r.in.Config, r.in.Protect, r.in.Prepared, r.w); err != nil {
		return executor.Result{}, err
	}
	r.out = newCopier(r.w)
	start := r.in.Start
	start.Deadline = 0
	start.Path = cmp.Or(start.Path, os.Getenv("PATH")) // the image's
	start.Requirements = prepared.Requirements
	if prepared.Path != "" {
		start.Path = prepared.Path + ":" + start.Path
	}
	if prepared.Interpreter != "" {
		start.Interpreter, start.PythonVersion = []string{prepared.Interpreter}, prepared.PythonVersion
	}
	if len(start.Command) == 0 && len(start.Interpreter) == 0 {
		found, err := r.host.interpreter(ctx, start)
		switch {
		case err != nil:
			return executor.Result{}, err
		case ctx.Err() != nil:
			return executor.Result{Status: executor.StatusKilled, CPU: -1}, nil
		case r.in.PythonVersion != "" && found.Minor() != r.in.PythonVersion:
			return executor.Result{}, otherPython(found, r.in.PythonVersion)
		case found.Path == "":
			return executor.Result{Status: executor.StatusFailed, CPU: -1, ImageDigest: r.in.Image, Failure: noPython()}, nil
		}
		start.Interpreter, start.PythonVersion = []string{found.Path}, found.Version
	}
	files, err := r.files(prepared)
	if err != nil {
		return executor.Result{}, err
	}
	r.out.python, r.out.requirements = start.PythonVersion, start.Requirements
	ready := time.Since(begun)
	res, err := r.host.conn.Run(ctx, start, files, r.out)
	res.Phases.Prepare += ready
	res.ImageDigest = r.in.Image
	return res, err
}

func noPython() *executor.Failure {
	return &executor.Failure{
		Code: executor.NotFound, Phase: executor.PhaseStart, Field: "docker_image", Message: "the image has neither python3 nor python on its PATH",
	}
}

// files opens the Workspace and the standard input.
func (r *run) files(prepared job.Prepared) (in runner.RunInput, err error) {
	if prepared.Work != "" {
		in.Workspace = packed(prepared.Work)
	} else if in.Workspace, err = inputFile(r.input, job.WorkspaceFile); err != nil {
		return in, err
	}
	if r.feed != "" {
		in.Stdin, err = listenForInput(filepath.Join(r.feed, job.FeedSocket))
	} else {
		in.Stdin, err = inputFile(r.input, job.StdinFile)
	}
	return in, err
}
