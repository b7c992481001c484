package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/app"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// global holds the streams and the global flags, which all commands share.
type global struct {
	IO
	bundle app.Bundle

	server     string
	token      string
	config     string
	timeout    seconds
	cpuSeconds seconds
	memory     megabytes
	disk       megabytes
	cpu        int64
	network    bool
	image      string
	async      bool
	quiet      bool
	verbose    bool
	json       bool

	flags *pflag.FlagSet

	// logs reports whether the command writes a log to Err. The log then says how the command stops.
	logs bool
	// settled is closed when the flags are parsed and checked.
	settled chan struct{}
}

// given reports whether the user has set a global flag.
func (g *global) given(flag string) bool { return g.flags.Changed(flag) }

func newGlobal(streams IO, bundle app.Bundle) *global {
	return &global{IO: streams, bundle: bundle, settled: make(chan struct{})}
}

func (g *global) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "python-executor",
		Short: "Run Python, here or on a server, isolated and limited",
		Long: `Run Python, here or on a server, isolated and limited.

Without --server (or PYEXEC_SERVER) run uses the engine inside this program.

Exit status of run and follow: the program's own; 128+n when signal n ended it; 124 timeout; 125 python-executor failed
(bad flags, missing files, unreachable server, failed preparation, lost); 126 the command cannot be executed; 127 it is
not found; 137 out of memory or killed; 130 Ctrl-C and 143 SIGTERM, which kill what run started.

The first Ctrl-C or SIGTERM lets a command stop in order. A second one ends it immediately, always with status 130 or 143.`,
		Version:           g.bundle.Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			g.logs = cmd.Name() == "serve" || cmd.Name() == "worker"
			close(g.settled)
			if err := g.checkScope(cmd); err != nil {
				return err
			}
			return g.settle()
		},
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetIn(g.In)
	root.SetOut(g.Out)
	root.SetErr(g.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			flag := wrong.GetFlag()
			if own := flag.Value.Type(); own == "size" || own == "duration" || own == "number" {
				return fmt.Errorf("--%s: %w (got %q)", flag.Name, wrong.Unwrap(), wrong.GetValue())
			}
			return fmt.Errorf("--%s: must be %s (got %q)", flag.Name, wanted(flag), wrong.GetValue())
		}
		return flagError(cmd, err)
	})
	g.register(root.PersistentFlags())
	root.AddCommand(
		newRun(g, nil), newSubmit(g, nil), newFollow(g), newLogs(g), newKill(g), newVersion(g),
		newList(g), newBackends(g), newServe(g, nil), newWorker(g), newMCP(g), newDoctor(g), newConfig(g), newPlugin(g), newRunner(),
		newCompletion(g), newSession(g),
	)
	root.SetHelpCommand(newHelp())
	g.scopeHelp(root)
	return root
}

// wanted returns the rule for the value of a flag, for an error.
func wanted(flag *pflag.Flag) string {
	switch {
	case flag.Name == "cpu":
		return "a whole number of shares, 1024 for one (--cpus takes 1.5)"
	case flag.Value.Type() == "bool":
		return "true or false"
	case strings.HasPrefix(flag.Value.Type(), "int"):
		return "a whole number"
	default:
		return "a " + flag.Value.Type()
	}
}

// notEmpty returns an error if any of the named flags has an empty value.
func notEmpty(f *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s: must not be empty", name)
		}
	}
	return nil
}

func (g *global) register(f *pflag.FlagSet) {
	g.flags = f
	f.StringVar(&g.server, "server", "", "server base `URL` (env: PYEXEC_SERVER)")
	f.StringVar(&g.token, "token", "", "bearer token for the server (env: PYEXEC_TOKEN, which other users cannot see)")
	f.StringVar(&g.config, "config", "", "configuration `FILE` of the engine (env: PYEXEC_CONFIG)")
	f.Var(&g.timeout, "timeout", "timeout of `N` seconds, or with a unit: 90s, 15m, 1h30m; 0 = the maximum")
	f.Var(&g.cpuSeconds, "cpu-seconds", "limit of CPU time of `N` seconds, or with a unit, of all processes together")
	f.Var(&g.memory, "memory", "memory limit of `N` MB, or with a unit: 512M, 1.5G")
	f.Var(&g.disk, "disk", "disk limit of `N` MB, or with a unit: 512M, 1.5G")
	f.Int64Var(&g.cpu, "cpu", 0, "`N` CPU shares: the weight when programs compete (1024 = one share)")
	f.Var(shares{&g.cpu}, "cpus", "`N` times 1024 CPU shares, such as 1.5")
	f.BoolVar(&g.network, "network", false, "allow internet access")
	f.StringVar(&g.image, "image", "", "custom Docker image `NAME`")
	f.BoolVar(&g.async, "async", false, "submit and print the id instead of waiting")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "minimal output")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "debug output")
	f.BoolVar(&g.json, "json", false, "print JSON")
}

// settle takes server and token from the environment if the flags are not set, and refuses values that are always wrong.
func (g *global) settle() error {
	for _, v := range []struct {
		flag, variable string
		to             *string
	}{{"server", "PYEXEC_SERVER", &g.server}, {"token", "PYEXEC_TOKEN", &g.token}, {"config", "PYEXEC_CONFIG", &g.config}} {
		if !g.given(v.flag) {
			*v.to = os.Getenv(v.variable)
		}
	}
	if g.given("cpu") && g.given("cpus") {
		return errors.New("--cpus: must not be given with --cpu")
	}
	from := func(flag, variable string) string {
		if g.given(flag) {
			return "--" + flag
		}
		return variable
	}
	if g.quiet && g.verbose {
		return errors.New("--quiet: must not be given with --verbose")
	}
	g.server = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(g.server, "/"), "/api/v1"), "/")
	// A token is checked without a server, too.
	_, err := pyexec.NewClient(cmp.Or(g.server, "http://localhost"), pyexec.WithToken(g.token))
	if e, ok := errors.AsType[*pyexec.Error](err); ok && len(e.Fields) == 1 { // server or token, which the flags are called, too
		f := e.Fields[0]
		return fmt.Errorf("%s: %s", from(f.Field, "PYEXEC_"+strings.ToUpper(f.Field)), f.Message)
	}
	return err
}

// note writes a message that --quiet turns off.
func (g *global) note(format string, args ...any) {
	if !g.quiet {
		fmt.Fprintf(g.Err, "python-executor: "+format+"\n", cleanAll(args)...)
	}
}

// debug writes a message that only --verbose turns on.
func (g *global) debug(format string, args ...any) {
	if g.verbose {
		g.note(format, args...)
	}
}

func cleanAll(args []any) []any {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = clean(s)
		}
	}
	return args
}
