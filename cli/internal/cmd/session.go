package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/apijson"
)

// newSession is the group of the commands about sessions.
func newSession(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "State that lives between executions: open, run, console, files",
		Long: `A session is an interpreter (Python, JavaScript or shell) and a work folder on a server that stay between executions.
What runs in one shares names, imports and files, one at a time, in order. Sessions need a server (--server, PYEXEC_SERVER).`,
		Example: `  id=$(python-executor session new --requirements requirements.txt)
  python-executor session run $id -c 'x = 100'
  python-executor session run $id -c 'x + 1'
  python-executor session exec -i $id
  python-executor session cp data.csv $id:data/
  python-executor session rm $id`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q (see %s --help)", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newSessionNew(g, nil), newSessionList(g), newSessionRun(g, nil), newSessionExec(g, nil), newSessionRemove(g),
		newSessionRestart(g), newSessionInterrupt(g), newSessionVariables(g), newSessionInstall(g), newSessionFiles(g), newSessionCopy(g, nil),
	)
	return cmd
}

// sessionNewOptions is what `session new` was asked.
type sessionNewOptions struct {
	g            *global
	name         string
	description  string
	language     string
	requirements string
	python       string
	env          []string
	backend      string
	idle, life   float64
	flags        *pflag.FlagSet
}

func newSessionNew(g *global, runF func(context.Context, *sessionNewOptions) error) *cobra.Command {
	o := &sessionNewOptions{g: g}
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Open a session and print its id",
		Long: `Open a session and print its id when its interpreter is ready. --memory, --disk, --cpu, --network and --image hold for its life;
--timeout is the default of what runs in it.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	o.flags = f
	f.StringVar(&o.name, "name", "", "a `NAME` for people")
	f.StringVar(&o.description, "description", "", "`TEXT` that says what it is for")
	f.StringVar(&o.language, "language", "", "`LANGUAGE` of its interpreter: python (default), javascript or shell")
	f.StringVar(&o.requirements, "requirements", "", "requirements `FILE`")
	f.StringVar(&o.python, "python", "", "Python minor `VERSION`, such as 3.12")
	f.StringArrayVar(&o.env, "env", nil, "set a variable of the interpreter, `K=V` (repeat it); K alone takes ours")
	f.StringVar(&o.backend, "backend", "", "`NAME` of the backend")
	f.Float64Var(&o.idle, "idle-timeout", 0, "close it after `N` seconds without use")
	f.Float64Var(&o.life, "max-life", 0, "close it after `N` seconds")
	return cmd
}

// session builds what is asked for.
func (o *sessionNewOptions) session() (executor.Session, error) {
	s := executor.Session{Name: o.name, Description: o.description, Language: executor.Language(o.language)}
	s.Spec = executor.Spec{Language: s.Language, PythonVersion: o.python, Image: o.g.image, Backend: o.backend}
	switch s.Language {
	case executor.LanguageDefault, executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell:
	default:
		return s, fmt.Errorf("--language must be python, javascript or shell (got %q)", o.language)
	}
	if o.flags.Changed("python") && !minorVersion.MatchString(o.python) {
		return s, fmt.Errorf("--python must be a minor version such as 3.12 (got %q)", o.python)
	}
	for _, d := range []struct {
		flag string
		n    float64
		to   *time.Duration
	}{{"idle-timeout", o.idle, &s.IdleTimeout}, {"max-life", o.life, &s.MaxLife}} {
		if !o.flags.Changed(d.flag) {
			continue
		}
		if !(d.n > 0 && d.n < 1<<32) { // NaN too
			return s, fmt.Errorf("--%s must be > 0 seconds (got %v)", d.flag, d.n)
		}
		*d.to = max(1, time.Duration(d.n*float64(time.Second)))
	}
	if o.g.given("network") {
		s.Spec.Network = executor.NetworkOff
		if o.g.network {
			s.Spec.Network = executor.NetworkOn
		}
	}
	var err error
	if s.Spec.Limits, err = o.g.limits(); err != nil {
		return s, err
	}
	s.Spec.Env, err = environment(o.env)
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
	if o.requirements != "" {
		text, err := os.ReadFile(o.requirements)
		if err != nil {
			return fmt.Errorf("--requirements: %w", err)
		}
		s.Spec.Requirements = string(text)
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

func newSessionList(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sessions, newest first",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := g.openServer("session ls")
			if err != nil {
				return err
			}
			list, err := svc.ListSessions(cmd.Context())
			if err != nil {
				return err
			}
			if g.json {
				out := make([]apijson.Session, len(list))
				for i, s := range list {
					out[i] = apijson.SessionOf(s)
				}
				return printJSON(g.Out, map[string]any{"sessions": out})
			}
			t := tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tNAME\tLANGUAGE\tSTATUS\tWORK\tBACKEND\tCREATED\tREASON")
			for _, s := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, inCell(s.Name), s.Language, s.Status, work(s), inCell(s.Backend),
					s.CreatedAt.Local().Format(time.DateTime), inCell(s.Reason))
			}
			return t.Flush()
		},
	}
}

// inCell makes text safe in a table.
func inCell(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(s))
}

// work says what a session is doing.
func work(s executor.Session) string {
	switch {
	case s.Running == "" && s.Waiting == 0:
		return "idle"
	case s.Waiting == 0:
		return "runs"
	}
	return fmt.Sprintf("runs, %d wait", s.Waiting)
}

// onSessions makes a command that does one thing to each session that is named.
func onSessions(g *global, name, use, short, long string, call func(context.Context, executor.Service, string) (executor.Session, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly(1, "the id of a session")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := g.openServer("session " + name)
			if err != nil {
				return err
			}
			var failed []error
			for _, id := range args {
				s, err := call(cmd.Context(), svc, id)
				if err != nil {
					failed = append(failed, naming(id, err))
					continue
				}
				switch {
				case g.json && s.CreatedAt.IsZero(): // closed: the API says no more than that
					err = printJSON(g.Out, map[string]string{"session_id": id, "status": string(s.Status)})
				case g.json:
					err = printJSON(g.Out, apijson.SessionOf(s))
				default:
					_, err = fmt.Fprintln(g.Out, id, s.Status)
				}
				if err != nil {
					return outputFailure(err)
				}
			}
			return errors.Join(failed...)
		},
	}
}

func newSessionRemove(g *global) *cobra.Command {
	cmd := onSessions(g, "rm", "rm ID...", "Close sessions", "Close sessions and print the status of each: what runs is killed, the files are removed.",
		func(ctx context.Context, svc executor.Service, id string) (executor.Session, error) {
			return svc.CloseSession(ctx, id)
		})
	cmd.Aliases = []string{"close"}
	return cmd
}

func newSessionInterrupt(g *global) *cobra.Command {
	return onSessions(g, "interrupt", "interrupt ID...", "Stop what runs in sessions", "Stop what runs in sessions, and wait for that. Names and imports stay, unless it does not stop in time.",
		func(ctx context.Context, svc executor.Service, id string) (executor.Session, error) {
			return svc.InterruptSession(ctx, id)
		})
}

func newSessionRestart(g *global) *cobra.Command {
	var wipe bool
	cmd := onSessions(g, "restart", "restart ID...", "Start the interpreters of sessions anew",
		"Start the interpreters of sessions anew: names and imports are gone, what runs is killed, what waits goes on, the files stay. Brings a lost session back where its sandbox is still there.",
		func(ctx context.Context, svc executor.Service, id string) (executor.Session, error) {
			return svc.RestartSession(ctx, id, wipe)
		})
	cmd.Flags().BoolVar(&wipe, "wipe", false, "remove its files too")
	return cmd
}

func newSessionVariables(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "vars ID", Short: "List the names of a session's interpreter", Args: exactly(1, "the id of a session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := g.openServer("session vars")
			if err != nil {
				return err
			}
			list, err := svc.Variables(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if g.json {
				out := make([]apijson.Variable, len(list))
				for i, v := range list {
					out[i] = apijson.VariableOf(v)
				}
				return printJSON(g.Out, map[string]any{"variables": out})
			}
			t := tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tTYPE\tVALUE")
			for _, v := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\n", inCell(v.Name), inCell(v.Type), inCell(v.Preview))
			}
			return t.Flush()
		},
	}
}

func newSessionInstall(g *global) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "install ID [REQUIREMENT...]", Short: "Install more requirements in a session", Example: "  python-executor session install ctx-… 'numpy<3' pandas",
		Long: "Install requirements besides those it has, without a restart, and print all that are installed then.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 1 && file == "" {
				return exactly(1, "the id of a session, and requirements or --requirements FILE")(cmd, nil)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args[1:], "\n")
			if file != "" {
				raw, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				text += "\n" + string(raw)
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
