package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/executor"
)

// sessionRunOptions is what `session run` and `session exec` were asked.
type sessionRunOptions struct {
	g  *global
	id string
	// file or code is what runs; file "-" is standard input.
	file string
	code string
	// command is an argv.
	command []string
	// console: -i.
	console bool
	stdin   string
	// output is the folder for what is displayed.
	output string
	flags  *pflag.FlagSet
}

func (o *sessionRunOptions) register(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.stdin, "stdin", "", "`FILE` that it reads as its standard input; - = ours")
	f.StringVar(&o.output, "output", "", "save images and the other forms of what it displays in `DIR`")
}

func newSessionRun(g *global, runF func(context.Context, *sessionRunOptions) error) *cobra.Command {
	o := &sessionRunOptions{g: g}
	cmd := &cobra.Command{
		Use:   "run ID [FILE | -c CODE | -]",
		Short: "Run code in a session's interpreter",
		Long: `Run a file, CODE or standard input in a session's interpreter, and end as run does: with 1 for an uncaught error, with the code
of sys.exit, 128+n when signal n ended the interpreter, 124 on timeout, 125 when we failed. What it displays, and the value of
its last expression, is printed as text behind its output. Ctrl-C interrupts it; the session goes on.`,
		Example: `  python-executor session run $id -c 'import math; math.pi'
  python-executor session run $id plot.py --output figures/`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return exactly(1, "the id of a session, and a file, -c CODE or -")(cmd, nil)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			if len(args) == 2 {
				o.file = args[1]
			}
			if err := o.settle(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	o.register(cmd.Flags())
	cmd.Flags().StringVarP(&o.code, "code", "c", "", "the `CODE` to run")
	return cmd
}

// errNoID: a variable of a script is not set. Without a session the code would run all the same, in a sandbox of its own.
var errNoID = errors.New("the id of the session is empty")

// settle says which of the three it is; a pipe is code only when nothing else is named.
func (o *sessionRunOptions) settle() error {
	code := o.flags.Changed("code")
	switch {
	case o.id == "":
		return errNoID
	case code && o.file != "":
		return errors.New("a file and -c contradict each other")
	case code && o.code == "":
		return errors.New("-c must not be empty")
	case !code && o.file == "" && (o.g.In == nil || o.g.InTerminal):
		return errors.New("no code: name a file, use -c CODE, or pipe it in (exec -i is a console)")
	case !code && o.file == "":
		o.file = "-"
	}
	if o.file == "-" && o.g.In == nil {
		return errors.New("there is no standard input")
	}
	if o.file == "-" && o.stdin == "-" {
		return errors.New("standard input cannot be both the code and what it reads")
	}
	return nil
}

func newSessionExec(g *global, runF func(context.Context, *sessionRunOptions) error) *cobra.Command {
	o := &sessionRunOptions{g: g}
	cmd := &cobra.Command{
		Use:   "exec ID -- COMMAND [ARGS...]  |  exec -i ID",
		Short: "Run a command beside a session's interpreter, or open a console",
		Long: `Run a command in a session's sandbox, among its files, and end with its exit code.

With -i: a console on the interpreter. Several lines are one input where the language says so (an empty line ends a block of
Python); the arrow keys go through the history; Ctrl-C interrupts what runs, or drops what was typed; Ctrl-D leaves, and the session stays.
Without a terminal the lines are read from standard input, and the exit status is that of the last input.`,
		Example: "  python-executor session exec $id -- ls -l\n  python-executor session exec -i $id",
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			switch rest := len(args) - dash; {
			case dash != 1:
				return exactly(1, "the id of a session, and -i or a command behind --")(cmd, nil)
			case o.console && rest > 0:
				return errors.New("-i and a command contradict each other")
			case !o.console && rest == 0:
				return errors.New("exec needs a command behind --, or -i for a console")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.id, o.command = args[0], args[1:]; o.id == "" {
				return errNoID
			}
			if o.console && (o.stdin != "" || o.g.json) {
				return errors.New("-i reads the console: it goes with neither --stdin nor --json")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			if o.console {
				return o.interact(cmd.Context())
			}
			return o.run(cmd.Context())
		},
	}
	o.register(cmd.Flags())
	cmd.Flags().BoolVarP(&o.console, "interactive", "i", false, "a console on the interpreter")
	return cmd
}

// maxCode bounds what is read as code; the server takes no more in one request.
const maxCode = 31 << 20

// spec builds what is sent.
func (o *sessionRunOptions) spec() (executor.Spec, error) {
	s := executor.Spec{Session: o.id, Code: o.code, Command: o.command}
	for _, flag := range []string{"memory", "disk", "cpu", "network", "image"} {
		if o.g.given(flag) {
			return s, fmt.Errorf("--%s holds for a session's whole life: give it to session new", flag)
		}
	}
	limits, err := o.g.limits()
	if err != nil {
		return s, err
	}
	s.Limits.Timeout = limits.Timeout
	if o.file == "" {
		return s, nil
	}
	source := o.g.In
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return s, err
		}
		defer f.Close()
		source = f
	}
	raw, err := io.ReadAll(io.LimitReader(source, maxCode+1))
	switch {
	case err != nil:
		return s, fmt.Errorf("read the code: %w", err)
	case len(raw) > maxCode:
		return s, fmt.Errorf("the code is larger than %s: put it in a file of the session (session cp) and run that", size(maxCode))
	case len(raw) == 0:
		return s, errors.New("there is no code to run")
	}
	s.Code = string(raw)
	return s, nil
}

func (o *sessionRunOptions) run(ctx context.Context) error {
	svc, err := o.g.openServer("session run")
	if err != nil {
		return err
	}
	spec, err := o.spec()
	if err != nil {
		return err
	}
	if o.output != "" {
		if err := outputFolder(o.output); err != nil {
			return err
		}
	}
	stdin, err := (&runOptions{g: o.g, program: program{stdin: o.stdin}}).programStdin()
	if err != nil {
		return err
	}
	d := &door{Service: svc, ctx: ctx}
	if o.g.async {
		e, err := startSubmit(d, spec, executor.Input{Stdin: stdin}).wait()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(o.g.Out, e.ID)
		return err
	}
	id, err := startSubmit(d, spec, executor.Input{Stdin: stdin}).id()
	if err != nil {
		return err
	}
	v := viewer{g: o.g, live: true, kill: true, displays: o.output}
	return v.view(d, id, newProgress(o.g))
}
