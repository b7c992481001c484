package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
)

// newSession returns the group of the session commands.
func newSession(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Keep state between executions: open, run, console, files",
		Long: `A session is an interpreter (Python, JavaScript or shell) and a work folder on a server that stay between executions.
Executions in a session share names, imports and files. They run one at a time, in order. Sessions need a server (--server,
PYEXEC_SERVER).`,
		Example: `  id=$(python-executor session new --requirements requirements.txt)
  python-executor session run $id -c 'x = 100'
  python-executor session run $id -c 'x + 1'
  python-executor session exec -i $id
  python-executor session cp data.csv $id:data/
  python-executor session rm $id`,
		Args: group,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newSessionNew(g), newSessionList(g), newSessionRun(g), newSessionExec(g), newSessionRemove(g),
		newSessionRestart(g), newSessionInterrupt(g), newSessionVariables(g), newSessionInstall(g), newSessionFiles(g), newSessionCopy(g),
	)
	return cmd
}

// sessionNewOptions has the flags of `session new`.
type sessionNewOptions struct {
	g            *global
	name         string
	description  string
	language     string
	requirements string
	python       string
	env          []string
	backend      string
	idle, life   seconds
	flags        *pflag.FlagSet
}

func newSessionNew(g *global) *cobra.Command {
	o := &sessionNewOptions{g: g}
	cmd := &cobra.Command{
		Use:     "new",
		Aliases: []string{"open", "create"},
		Short:   "Open a session and print its id",
		Long: `Open a session and print its id when its interpreter is ready. --memory, --disk, --cpu, --network and --image apply to the
whole session. --timeout is the default of its executions.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	o.flags = f
	f.StringVar(&o.name, "name", "", "a `NAME` to show, and to use in place of its id")
	f.StringVar(&o.description, "description", "", "`TEXT` about its purpose")
	f.StringVar(&o.language, "language", "", "`LANGUAGE` of its interpreter: python (default), javascript or shell")
	f.StringVar(&o.requirements, "requirements", "", "requirements `FILE`")
	f.StringVar(&o.python, "python", "", "Python minor `VERSION`, such as 3.12")
	f.StringArrayVar(&o.env, "env", nil, "set a variable of the interpreter, `K=V` (repeat it); K alone passes on this shell's value")
	f.StringVar(&o.backend, "backend", "", "`NAME` of the backend")
	f.Var(&o.idle, "idle-timeout", "close it after `N` seconds without use, or with a unit: 15m, 1h30m")
	f.Var(&o.life, "max-life", "close it after `N` seconds, or with a unit: 8h, 2d")
	return cmd
}

// session makes the SessionSpec of the flags.
func (o *sessionNewOptions) session() (executor.Session, error) {
	s := executor.Session{Name: o.name, Description: o.description, Language: executor.Language(o.language)}
	s.Spec = executor.Spec{Language: s.Language, PythonVersion: o.python, Image: o.g.image, Backend: o.backend, Network: o.g.networkMode()}
	if err := checkLanguage(o.language); err != nil {
		return s, err
	}
	if err := errors.Join(notEmpty(o.flags, "language", "requirements", "backend"), notEmpty(o.g.flags, "image")); err != nil {
		return s, err
	}
	if err := checkPython(o.flags, o.python); err != nil {
		return s, err
	}
	for _, d := range []struct {
		flag string
		n    seconds
		to   *time.Duration
	}{{"idle-timeout", o.idle, &s.IdleTimeout}, {"max-life", o.life, &s.MaxLife}} {
		if !o.flags.Changed(d.flag) {
			continue
		}
		if !(d.n > 0 && d.n < 1<<32) { // NaN too
			return s, fmt.Errorf("--%s: must be > 0 seconds (got %v)", d.flag, d.n)
		}
		*d.to = max(1, time.Duration(float64(d.n)*float64(time.Second)))
	}
	var err error
	if s.Spec.Limits, err = o.g.limits(); err != nil {
		return s, err
	}
	s.Spec.Env, err = o.g.environment(o.env)
	return s, err
}

func (o *sessionNewOptions) run(ctx context.Context) error {
	s, err := o.session()
	if err != nil {
		return err
	}
	svc, err := o.g.openServer("session new")
	if err != nil {
		return err
	}
	if s.Spec.Requirements, err = requirementsText(o.requirements); err != nil {
		return err
	}
	opened, err := svc.OpenSession(ctx, s)
	if err != nil {
		return err
	}
	if o.g.json {
		return printJSON(o.g.Out, apijson.SessionOf(opened))
	}
	if _, err = fmt.Fprintln(o.g.Out, opened.ID); err != nil {
		return outputFailure(err)
	}
	return nil
}

// listing returns the function of a command that asks the server for a list and prints it: with --json as form returns it, else
// as the table that rows writes. name is the name of the command, and align is a flag of tabwriter.
func listing[T, J any](g *global, name string, align uint, ask func(ctx context.Context, svc executor.Service, args []string) ([]T, error),
	form func([]T) J, rows func(io.Writer, []T),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		svc, err := g.openServer(name)
		if err != nil {
			return err
		}
		list, err := ask(cmd.Context(), svc, args)
		if err != nil {
			return err
		}
		if g.json {
			return printJSON(g.Out, form(list))
		}
		t := tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', align)
		rows(t, list)
		return t.Flush()
	}
}

func newSessionList(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sessions, newest first",
		Args:    none,
		RunE: listing(g, "session ls", 0, func(ctx context.Context, svc executor.Service, _ []string) ([]executor.Session, error) {
			return svc.ListSessions(ctx)
		}, apijson.SessionsOf, func(t io.Writer, list []executor.Session) {
			fmt.Fprintln(t, "ID\tNAME\tLANGUAGE\tSTATUS\tWORK\tBACKEND\tCREATED\tREASON")
			for _, s := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, inCell(s.Name), s.Language, s.Status, work(s), inCell(s.Backend),
					s.CreatedAt.Local().Format(time.DateTime), inCell(s.Reason))
			}
		}),
	}
}

// inCell makes text safe in a table.
func inCell(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(s))
}

// work returns the table cell about a session's running and waiting executions.
func work(s executor.Session) string {
	switch {
	case s.Running == "" && s.Waiting == 0:
		return "idle"
	case s.Waiting == 0:
		return "runs"
	}
	return fmt.Sprintf("runs, %d wait", s.Waiting)
}

// onSessions makes cmd call a function for each named session.
func onSessions(g *global, cmd *cobra.Command, call func(ctx context.Context, svc executor.Service, id string) (executor.Session, error)) *cobra.Command {
	return forEach(g, cmd, "session "+cmd.Name(), "a session", func(ctx context.Context, svc executor.Service, id string) (string, any, error) {
		s, err := call(ctx, svc, id)
		if s.CreatedAt.IsZero() { // the API returns only these fields of a closed session
			return string(s.Status), map[string]string{"session_id": id, "status": string(s.Status)}, err
		}
		return string(s.Status), apijson.SessionOf(s), err
	})
}

func newSessionRemove(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm ID...", Aliases: []string{"close"}, Short: "Close sessions",
		Long: "Close sessions and print the status of each. Running executions are killed, and the files are removed.",
	}
	return onSessions(g, cmd, func(ctx context.Context, svc executor.Service, id string) (executor.Session, error) {
		return svc.CloseSession(ctx, id)
	})
}

func newSessionInterrupt(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "interrupt ID...", Short: "Interrupt running executions of sessions",
		Long: "Interrupt the running executions of sessions, and wait until they stop. Names and imports stay, unless an execution does not stop in time.",
	}
	return onSessions(g, cmd, func(ctx context.Context, svc executor.Service, id string) (executor.Session, error) {
		return svc.InterruptSession(ctx, id)
	})
}

func newSessionRestart(g *global) *cobra.Command {
	var wipe bool
	cmd := &cobra.Command{
		Use: "restart ID...", Short: "Start the interpreters of sessions anew",
		Long: "Start new interpreters for sessions. Names and imports are gone, running executions are killed, waiting ones run afterwards, and the files stay. Brings a lost session back where its sandbox is still there.",
	}
	cmd.Flags().BoolVar(&wipe, "wipe", false, "remove its files too")
	return onSessions(g, cmd, func(ctx context.Context, svc executor.Service, id string) (executor.Session, error) {
		return svc.RestartSession(ctx, id, wipe)
	})
}

func newSessionVariables(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "vars ID", Short: "List the names of a session's interpreter", Args: exactly(1, "the id of a session"),
		RunE: listing(g, "session vars", 0, func(ctx context.Context, svc executor.Service, args []string) ([]executor.Variable, error) {
			return svc.Variables(ctx, args[0])
		}, apijson.VariablesOf, func(t io.Writer, list []executor.Variable) {
			fmt.Fprintln(t, "NAME\tTYPE\tVALUE")
			for _, v := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\n", inCell(v.Name), inCell(v.Type), inCell(v.Preview))
			}
		}),
	}
}

func newSessionInstall(g *global) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "install ID [REQUIREMENT...]", Short: "Install more requirements in a session", Example: "  python-executor session install ctx-… 'numpy<3' pandas",
		Long: "Install additional requirements without a restart, and print all installed requirements.",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := notEmpty(cmd.Flags(), "requirements"); err != nil {
				return err
			}
			if len(args) == 0 || len(args) == 1 && file == "" {
				return exactly(1, "the id of a session, and requirements or --requirements FILE")(cmd, nil)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args[1:], "\n")
			if file != "" {
				more, err := requirementsText(file)
				if err != nil {
					return err
				}
				text += "\n" + more
			}
			svc, err := g.openServer("session install")
			if err != nil {
				return err
			}
			resolved, err := svc.AddRequirements(cmd.Context(), args[0], text)
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(g.Out, map[string]any{"resolved_requirements": append([]string{}, resolved...)})
			}
			for _, r := range resolved {
				if _, err := fmt.Fprintln(g.Out, clean(r)); err != nil {
					return outputFailure(err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "requirements", "", "requirements `FILE`")
	return cmd
}
