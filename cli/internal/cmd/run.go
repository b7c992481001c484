package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/input"
	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// runOptions has the flags and arguments of `run` and `submit`.
type runOptions struct {
	program
	g *global
	// submit reports whether the command prints the id and does not wait for the end.
	submit bool
	// each is the file of the cases to run the program for, cases what it says; empty: the program runs once.
	each        string
	cases       []pyexec.Case
	table       *eachTable // of the cases that have ended
	parallel    int64
	stopAtFirst bool
}

const inputHelp = `The program is exactly one of these, in this order of precedence:

  --file PATH (repeated)   the files under their relative paths (absolute ones and those with ../ under their base name)
  project.tar              an uncompressed tar
  ./folder/                a folder, without ignored files (.gitignore), .git, .hg, .svn, virtual environments and the
                           folder of --output
  script.py                one file; the suffix names its language (.py, .js, .cjs, .mjs, .sh, .bash), else its first line (#!)
  -c CODE                  the code itself, Python unless --language says otherwise
  a pipe                   code on standard input; it is read only when nothing else is named (--stdin - gives it to the program)

The entrypoint is --entrypoint, else main.py, else __main__.py, else the first .py file. If there are several .py files,
its name is shown. Requirements are --requirements, else the entrypoint's PEP 723 block, else requirements.txt, else uv.lock,
else pyproject.toml. Arguments of the program follow --.`

const eachHelp = `--each FILE runs the program once for each case, and prints a table of verdicts. A case is an object with any of these:

  {"id": "small", "args": ["-v"], "env": {"A": "1"}, "stdin": "1 2\\n", "expect": {"stdout": "3", "exit_code": 0, "compare": "lines"}}

Without expect a case passes with exit code 0. compare is lines (the default: blanks at the ends of lines and the last end of line do
not count), exact, or float (numbers may differ by tolerance_abs or tolerance_rel). Cases share the processors, so bound the time of a
case by --cpu-seconds. The exit status is 1 if a case has not passed.`

func newRun(g *global, runF func(context.Context, *runOptions) error) *cobra.Command {
	o := &runOptions{g: g}
	cmd := &cobra.Command{
		Use:   "run [PATH] [flags] [-- ARGS...]",
		Short: "Execute synchronously (most common)",
		Long:  "Execute a program, show its output while it runs, and end with its exit code.\n\n" + inputHelp,
		Example: `  cat hello.py | python-executor run
  python-executor run -c 'import sys; print(sys.argv)' -- a b
  python-executor run ./project/ --entrypoint train.py --timeout 7200 --memory 16384 --network
  python-executor run --file main.py --file requirements.txt --file data/config.yaml -- --epochs 3
  python-executor run answer.py --each cases.json --cpu-seconds 2 --memory 256`,
	}
	cmd.Long += "\n\n" + eachHelp
	cmd.Flags().StringVar(&o.each, "each", "", "run the program for each case in `FILE` (JSON array or NDJSON; - = standard input), and judge them")
	cmd.Flags().Int64Var(&o.parallel, "parallel", batch.DefaultParallel, "with --each: cases that run at once, at most 64")
	cmd.Flags().BoolVar(&o.stopAtFirst, "stop-at-first-failure", false, "with --each: end with the first case that has not passed")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return o.checkEach(cmd.Flags()) }
	return withProgram(cmd, o, runF)
}

func newSubmit(g *global, runF func(context.Context, *runOptions) error) *cobra.Command {
	o := &runOptions{g: g, submit: true}
	cmd := &cobra.Command{
		Use:     "submit [PATH] [flags] [-- ARGS...]",
		Short:   "Submit asynchronously",
		Long:    "Submit a program to a server and print its execution id.\n\n" + inputHelp,
		Example: "  id=$(python-executor submit project.tar --memory 32768)\n  python-executor follow --tail $id",
	}
	return withProgram(cmd, o, runF)
}

func withProgram(cmd *cobra.Command, o *runOptions, runF func(context.Context, *runOptions) error) *cobra.Command {
	cmd.Annotations = map[string]string{runsPrograms: ""}
	o.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.take(args, cmd.ArgsLenAtDash())
		if runF != nil {
			return runF(cmd.Context(), o)
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *runOptions) run(ctx context.Context) error {
	spec, err := o.prepare()
	if err != nil {
		return err
	}
	if o.each != "" {
		if o.submit {
			return errors.New("--each: must not be given with --async")
		}
		if o.cases, err = o.casesOf(); err != nil {
			return err
		}
	}
	request := o.request()
	if err := request.Check(); err != nil {
		return err
	}
	stdin, err := o.programStdin()
	if err != nil {
		return err
	}
	if err := outputFolder(o.output); err != nil {
		return err
	}
	// The engine starts while the input is read.
	type opened struct {
		*target
		err error
	}
	opening := make(chan opened, 1)
	go func() {
		parallel := int64(0)
		if o.each != "" {
			parallel = min(o.parallel, int64(len(o.cases)))
		}
		d, err := o.g.open(ctx, o.backend, false, parallel)
		opening <- opened{d, err}
	}()
	in, inErr := input.Open(ctx, request)
	d := <-opening
	if d.err != nil {
		return errors.Join(inErr, d.err)
	}
	if inErr != nil {
		return errors.Join(inErr, d.close())
	}
	if in.Method != input.MethodPipe && o.stdin == "" && o.each != "-" && !o.g.InTerminal && hasInput(o.g.In) {
		o.g.note("standard input is not read: --stdin - gives it to the program")
	}
	err = o.execute(ctx, d.target, spec, in, stdin)
	return joinClose(err, d.close())
}

// prepare makes a Spec from the flags, without the fields that depend on the input.
func (o *runOptions) prepare() (executor.Spec, error) {
	spec, err := o.spec(o.g)
	if err != nil {
		return spec, err
	}
	o.submit = o.submit || o.g.async
	if o.submit {
		what := "submit"
		if o.g.async {
			what = "--async"
		}
		if _, err := o.g.openServer(what); err != nil {
			return spec, err
		}
		spec.Durable = true
	}
	if err := o.check(); err != nil {
		return spec, err
	}
	spec.Requirements, err = requirementsText(o.requirements)
	return spec, err
}

// joinClose returns err, or the error of the clean-up if err is nil.
func joinClose(err, closed error) error {
	if closed == nil || err != nil {
		return err
	}
	return fmt.Errorf("clean up: %w", closed)
}

// check refuses combinations of flags that would lose artifacts.
func (o *runOptions) check() error {
	switch {
	case len(o.artifacts) > 0 && o.output == "" && !o.submit:
		return errors.New("--artifact: must be given together with --output DIR")
	case o.output != "" && o.submit:
		return errors.New("--output: must not be given here, because submit does not wait for the result: use --artifact here, and --output with follow")
	default:
		return nil
	}
}

func (o *runOptions) request() input.Request {
	r := input.Request{
		Files: o.files, Args: o.args, Entrypoint: o.entrypoint, Command: o.command, IncludeAll: o.includeAll, Leave: o.output,
		Warn: func(text string) { o.g.note("%s", text) }, Language: executor.Language(o.language),
	}
	if o.flags.Changed("code") {
		r.Code = &o.code
	}
	if o.g.In != nil && !o.g.InTerminal && o.stdin != "-" && o.each != "-" {
		r.Stdin = o.g.In
	}
	return r
}

// programStdin returns the program's standard input; nil means an empty one.
func (o *runOptions) programStdin() (*executor.Source, error) {
	switch o.stdin {
	case "":
		return nil, nil
	case "-":
		if o.g.In == nil {
			return nil, nil
		}
		return &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return detached(o.g.In), nil }}, nil
	}
	info, err := os.Stat(o.stdin)
	if err != nil {
		return nil, fmt.Errorf("--stdin: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("--stdin: must be a file (%s is a folder)", o.stdin)
	}
	s := &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return os.Open(o.stdin) }}
	if info.Mode().IsRegular() {
		s.SizeBytes, s.Replayable = info.Size(), true
	}
	return s, nil
}

// detached returns a reader of r whose Close does not wait for a Read of r. A read of a terminal cannot be cancelled, so the
// goroutine ends with its next read, or with the process.
func detached(r io.Reader) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, r)
		_ = writer.CloseWithError(err) // always nil
	}()
	return reader
}

// execute submits the program and, except for `submit`, follows it to its end.
func (o *runOptions) execute(ctx context.Context, d *target, spec executor.Spec, in *input.Input, stdin *executor.Source) error {
	spec.Entrypoint, spec.Language = in.Entrypoint, in.Language
	if in.Found.Guessed { // the warning names the file, so the program's stderr need not name it again
		spec.Entrypoint = in.Found.Entrypoint
	}
	if o.requirements == "" {
		spec.Requirements = in.Found.Requirements
	}
	if !o.submit && o.each == "" {
		spec.InterruptOnCancel = true // Ctrl-C is what the program expects
		if d.embedded && !o.flags.Changed("kill-grace") {
			spec.Limits.KillGrace = ownGrace
		}
	}
	if err := selectPython(d, &spec, in.Found.PythonVersion); err != nil {
		return err
	}
	if o.each != "" {
		return o.executeEach(d, spec, in, stdin)
	}
	p := newProgress(o.g)
	source := executor.Input{Workspace: in.Workspace, Stdin: stdin}
	if !d.embedded {
		source.Workspace = p.counted(in.Workspace)
	}
	s := startSubmit(d, spec, source)
	if o.submit {
		e, err := s.wait()
		p.end()
		if err != nil {
			return err
		}
		return o.printID(e.ID)
	}
	id, err := s.id()
	if err != nil {
		p.end()
		return err
	}
	v := viewer{g: o.g, output: o.output, named: len(o.artifacts) > 0, hidden: len(o.artifacts) > 0, live: true, kill: true}
	err = v.view(d, id, p)
	if _, submitErr := s.wait(); submitErr != nil && executor.CodeOf(err) != "" && ctx.Err() == nil && isOurs(err) {
		return submitErr
	}
	return err
}

// ownGrace is the time that a program of the engine inside this process has after Ctrl-C.
const ownGrace = 5 * time.Second

// isOurs reports whether err is a failure of the CLI and not the program's exit status.
func isOurs(err error) bool {
	_, carried := errors.AsType[*exit.Error](err)
	return err != nil && !carried
}

func (o *runOptions) printID(id string) error {
	_, err := fmt.Fprintln(o.g.Out, id)
	return err
}

// selectPython selects a version that the entrypoint's requires-python allows, if the user has set none.
func selectPython(d *target, spec *executor.Spec, requires string) error {
	if requires == "" || spec.PythonVersion != "" || spec.Image != "" {
		return nil
	}
	infos, err := d.Backends(d.ctx)
	if err != nil {
		return nil //nolint:nilerr // the token may lack the scope; the server's default runs then
	}
	var versions []string
	for i, info := range infos {
		if info.Name == spec.Backend || spec.Backend == "" && i == 0 {
			versions = info.Capabilities.Pythons()
		}
	}
	spec.PythonVersion = detect.SelectVersion(requires, versions)
	if spec.PythonVersion == "" && len(versions) > 0 {
		return fmt.Errorf("requires-python: must allow one of %s, the versions of the backend (got %q); --python overrides it", strings.Join(versions, ", "), requires)
	}
	return nil
}
