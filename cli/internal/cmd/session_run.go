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

// sessionRunOptions has the flags and arguments of `session run` and `session exec`.
type sessionRunOptions struct {
	g  *global
	id string
	// file or code has the code to run; file "-" is standard input.
	file string
	code string
	// command is an argv.
	command []string
	// console: -i.
	console bool
	stdin   string
	// output is the folder for displays.
	output string
	flags  *pflag.FlagSet
}

func (o *sessionRunOptions) register(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.stdin, "stdin", "", "`FILE` that it reads as its standard input; - = standard input of this command")
	f.StringVar(&o.output, "output", "", "save images and the other forms of what it displays in `DIR`")
}

func newSessionRun(g *global) *cobra.Command {
	o := &sessionRunOptions{g: g}
	cmd := &cobra.Command{
		Use:   "run ID [FILE | -c CODE | -]",
		Short: "Run code in a session's interpreter",
		Long: `Run a file, CODE or standard input in a session's interpreter. The exit status is 1 for an uncaught error, the code of
sys.exit, 128+n if signal n ended the interpreter, 124 on timeout, 125 if python-executor failed. Displays and the value of the
last expression are printed as text after the output. Ctrl-C interrupts the code; the session goes on.`,
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
			return o.run(cmd.Context())
		},
	}
	o.register(cmd.Flags())
	cmd.Flags().StringVarP(&o.code, "code", "c", "", "the `CODE` to run")
	return cmd
}

// errNoID refuses an empty id, for example of an unset shell variable. Otherwise the code would run in a sandbox of its own.
var errNoID = errors.New("the id of the session must not be empty")

// settle selects the source of the code: file, CODE or standard input. A pipe is code only if nothing else is named.
func (o *sessionRunOptions) settle() error {
	code := o.flags.Changed("code")
	switch {
	case o.id == "":
		return errNoID
	case code && o.file != "":
		return errors.New("-c: must not be given with a file")
	case code && o.code == "":
		return errors.New("-c: must not be empty")
	case !code && o.file == "" && (o.g.In == nil || o.g.InTerminal):
		return errors.New("no code: name a file, use -c CODE, or pipe it in (exec -i is a console)")
	case !code && o.file == "":
		o.file = "-"
	}
	if o.file == "-" && o.g.In == nil {
		return errors.New("standard input must be open")
	}
	if o.file == "-" && o.stdin == "-" {
		return errors.New("--stdin: must not be - if standard input has the code")
	}
	return nil
}

func newSessionExec(g *global) *cobra.Command {
	o := &sessionRunOptions{g: g}
	cmd := &cobra.Command{
		Use:   "exec ID -- COMMAND [ARGS...]  |  exec -i ID",
		Short: "Run a command beside a session's interpreter, or open a console",
		Long: `Run a command in a session's sandbox, among its files, and end with its exit code.

With -i: a console on the interpreter. An input has several lines if the language needs them (an empty line ends a block of
Python). The arrow keys browse the history. Ctrl-C interrupts the running code, or discards the current input. Ctrl-D ends the
console, and the session stays. Without a terminal the lines are read from standard input, and the exit status is that of the
last input.`,
		Example: "  python-executor session exec $id -- ls -l\n  python-executor session exec -i $id",
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			switch rest := len(args) - dash; {
			case dash != 1:
				return exactly(1, "the id of a session, and -i or a command after --")(cmd, nil)
			case o.console && rest > 0:
				return errors.New("-i: must not be given with a command")
			case !o.console && rest == 0:
				return errors.New("exec: must have a command after --, or -i for a console")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.id, o.command = args[0], args[1:]; o.id == "" {
				return errNoID
			}
			if o.console && (o.stdin != "" || o.g.json) {
				return errors.New("-i: must not be given with --stdin or --json")
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

// maxCode bounds the size of the code; the server accepts no more in one request.
const maxCode = 31 << 20

// spec makes the Spec of the flags and of the code.
func (o *sessionRunOptions) spec() (executor.Spec, error) {
	s := executor.Spec{Session: o.id, Code: o.code, Command: o.command}
	limits, err := o.g.limits()
	if err != nil {
		return s, err
	}
	s.Limits.Timeout, s.Limits.CPUTime = limits.Timeout, limits.CPUTime
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
		return s, fmt.Errorf("the code must have at most %s: copy it into the session as a file (session cp) and run the file", size(maxCode))
	case len(raw) == 0:
		return s, errors.New("the code must not be empty")
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
	if err := outputFolder(o.output); err != nil {
		return err
	}
	stdin, err := (&runOptions{g: o.g, program: program{stdin: o.stdin}}).programStdin()
	if err != nil {
		return err
	}
	d := &target{Service: svc, ctx: ctx}
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
