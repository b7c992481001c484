package cmd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

type mcpOptions struct {
	g     *global
	flags map[string]*pflag.Flag
}

func newMCP(g *global) *cobra.Command {
	o := &mcpOptions{g: g}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an MCP client over standard input and output",
		Long: `Serve an MCP client over standard input and output. This is the command for a client's configuration.

Without --server (or PYEXEC_SERVER) tools run on the engine inside this program, with it on that server. The command ends
when the client closes standard input, after it has answered everything that was asked. SIGTERM cancels the calls that run
and answers them, a second one ends everything at once (exit status 143). Streamable HTTP is a part of serve, at /mcp.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSlice("toolset", nil, "`NAMES` of the toolsets to offer: python, contexts, shell, scripts (mcp.toolsets)")
	f.String("backend", "", "`NAME` of the backend that tools run on (backend)")
	o.flags = map[string]*pflag.Flag{"mcp.toolsets": f.Lookup("toolset"), "backend": f.Lookup("backend")}
	return cmd
}

func (o *mcpOptions) run(ctx context.Context) error {
	from := o.g.layersWith(o.flags)
	from.Stdio = true
	c, err := settings.Load(from)
	if err != nil {
		return err
	}
	for _, v := range settings.UnusedVariables(from, c) {
		o.g.note("warning: %s", v)
	}
	in, out := os.Stdin, os.Stdout
	if in == nil || o.g.In == nil {
		return errors.New("standard input must be open: start mcp from an MCP client")
	}
	svc, done, err := o.service(ctx, c)
	if err != nil {
		return err
	}
	err = app.MCP(ctx, app.MCPOptions{
		Config: c, Bundle: o.g.bundle, Service: svc, Remote: o.g.server != "", In: in, Out: out, Log: o.log(c),
	})
	return errors.Join(err, done())
}

func (o *mcpOptions) log(c config.Config) *slog.Logger {
	return o.g.textLog(mcpLevel(o.g.verbose, os.Getenv("TSM_LOG_LEVEL"), c.MCP.Shell))
}

// mcpLevel returns the minimum level that `mcp` logs to standard error, which the client keeps. It is error, unless a flag or
// a variable of the specifications asks for more. The flag overrides the variables.
func mcpLevel(verbose bool, variable string, shell config.MCPShell) slog.Level {
	switch {
	case verbose, strings.EqualFold(variable, "DEBUG"):
		return slog.LevelDebug
	case strings.EqualFold(variable, "INFO"), shell.LogFullOutput, shell.LogOutputBytes > 0:
		return slog.LevelInfo
	}
	return slog.LevelError
}

// service returns the server's Service, or that of an engine inside this process.
func (o *mcpOptions) service(ctx context.Context, c config.Config) (executor.Service, func() error, error) {
	if o.g.server != "" {
		svc, err := o.g.openServer("")
		return svc, func() error { return nil }, err
	}
	c, err := only(c, "")
	if err != nil {
		return nil, nil, err
	}
	local, err := app.Embedded(ctx, app.EmbeddedOptions{Config: c, Bundle: o.g.bundle, Lasting: true, Log: o.log(c)})
	if err != nil {
		return nil, nil, settings.Placed(o.g.layersWith(o.flags), err)
	}
	return local.Service, func() error { return local.Close(ctx) }, nil
}
