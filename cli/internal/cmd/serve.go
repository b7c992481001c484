package cmd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
)

type serveOptions struct {
	g        *global
	flags    map[string]*pflag.Flag
	fixtures bool
	// untilEOF stops the server at the end of standard input: the process that started it has closed the pipe, or has died.
	untilEOF bool
}

func newServe(g *global, runF func(context.Context, *serveOptions) error) *cobra.Command {
	o := &serveOptions{g: g}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the HTTP server until SIGTERM or Ctrl-C, then let running executions finish (engine.drain_timeout_seconds, 30 s).
A second SIGTERM or Ctrl-C ends everything at once: the exit status is then 143 or 130, after a drain 0.

A changed configuration file takes effect at once, and after SIGHUP, without an interruption. A changed backend is started and
checked before it gets executions; the former one keeps its executions and sessions for at most engine.drain_timeout_seconds. A
configuration that is wrong, or whose backends do not start, changes nothing; the log, /readyz and the command backends say why.
http.bind, http.pprof_bind and data_dir need a restart.

An address that is not loopback needs tokens in the configuration, or --allow-unauthenticated.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	o.flags = settingFlags(f)
	f.BoolVar(&o.untilEOF, "until-eof", false, "stop at the end of standard input, like after SIGTERM")
	f.BoolVar(&o.fixtures, "test-fixtures", false, "add the tools of MCP's conformance suite (loopback only)")
	if err := f.MarkHidden("test-fixtures"); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

// settingFlags adds the flags of serve that set a key of the configuration, and returns them by key.
func settingFlags(f *pflag.FlagSet) map[string]*pflag.Flag {
	f.String("bind", "", "listening `ADDRESS` (http.bind)")
	f.String("pprof-bind", "", "loopback `ADDRESS` of Go's profiles of the server's process (http.pprof_bind)")
	f.Bool("allow-unauthenticated", false, "let everybody in on any address (http.allow_unauthenticated)")
	f.String("data-dir", "", "`DIR` of the store (data_dir)")
	f.String("backend", "", "`NAME` of the default backend (backend)")
	return map[string]*pflag.Flag{
		"http.bind": f.Lookup("bind"), "http.pprof_bind": f.Lookup("pprof-bind"), "http.allow_unauthenticated": f.Lookup("allow-unauthenticated"),
		"data_dir": f.Lookup("data-dir"), "backend": f.Lookup("backend"),
	}
}

// config returns the configuration of the server.
func (o *serveOptions) config() (config.Config, error) {
	return settings.Load(o.g.layersWith(o.flags))
}

func (o *serveOptions) run(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	log := o.g.serverLog()
	warnUnused(log, settings.UnusedVariables(o.g.layersWith(o.flags), c))
	if o.untilEOF {
		ctx = untilEOF(ctx, o.g.In)
	}
	hangups, release := takeHangups(ctx)
	defer release()
	err = app.Serve(ctx, app.ServeOptions{
		Config: c, Bundle: o.g.bundle, TestFixtures: o.fixtures, Log: log,
		File: o.g.config, Reload: o.config, Hangups: hangups,
	})
	return settings.Placed(o.g.layersWith(o.flags), err)
}

// warnUnused logs the variables that have no effect.
func warnUnused(log *slog.Logger, unused []settings.UnusedVariable) {
	for _, v := range unused {
		if v.Why != "" {
			log.Warn("a variable has no effect", "variable", v.Variable, "why", v.Why)
		} else {
			log.Warn("a variable sets nothing and is ignored", "variable", v.Variable, "nearest", v.Nearest)
		}
	}
}

// errEOF is the cause of a context that ended with standard input.
var errEOF = errors.New("standard input has ended")

// untilEOF returns a context that ends with ctx, or when r ends. A nil r has ended. The goroutine that reads r ends with r.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if r != nil {
			_, _ = io.Copy(io.Discard, r) // a reader that fails has ended, too
		}
		cancel(errEOF)
	}()
	return ctx
}

// serverLevel returns the minimum level that a server logs. The flags override the variable of the test-start specification
// (INFO or DEBUG).
func serverLevel(quiet, verbose bool, variable string) slog.Level {
	switch {
	case quiet:
		return slog.LevelWarn
	case verbose, strings.EqualFold(variable, "DEBUG"):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// serverLog returns a log of text on a terminal, else of JSON. A duration has its unit in both.
func (g *global) serverLog() *slog.Logger {
	options := &slog.HandlerOptions{
		Level: serverLevel(g.quiet, g.verbose, os.Getenv("TSM_LOG_LEVEL")),
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		},
	}
	if g.ErrTerminal {
		return slog.New(slog.NewTextHandler(g.Err, options))
	}
	return slog.New(slog.NewJSONHandler(g.Err, options))
}
