package cmd

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/settings"
)

func newWorker(g *global) *cobra.Command {
	var flags map[string]*pflag.Flag
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Serve this machine's backend to servers on other machines",
		Long: `Run the default backend of the configuration for servers on other machines, over TCP with mutual TLS, until SIGTERM or Ctrl-C.
Nomad keeps workers running and counts them; the backend nomad of a server finds them (mode workers, docs/nomad.md).

The files of worker.tls are needed. A server's certificate must have the DNS name worker.tls.peer_name. The files are read again
when they have changed.

At SIGTERM the worker takes nothing new. Executions and sessions may go on for worker.drain_timeout_seconds; then they are ended, and
for their servers they are lost. A second SIGTERM or Ctrl-C ends them at once: the exit status is then 143 or 130, after a drain 0.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return runWorker(cmd.Context(), g, flags) },
	}
	f := cmd.Flags()
	f.String("bind", "", "listening `ADDRESS` (worker.bind)")
	f.String("data-dir", "", "`DIR` of the backend's data (data_dir)")
	f.String("backend", "", "`NAME` of the backend to serve (backend)")
	flags = map[string]*pflag.Flag{"worker.bind": f.Lookup("bind"), "data_dir": f.Lookup("data-dir"), "backend": f.Lookup("backend")}
	return cmd
}

func runWorker(ctx context.Context, g *global, flags map[string]*pflag.Flag) error {
	from := g.layers()
	from.Flags = flags
	c, err := settings.Load(from)
	if err != nil {
		return err
	}
	log := g.serverLog()
	warnUnused(log, settings.UnusedVariables(from, c))
	// Tools that renew certificates send SIGHUP. The worker looks at its files by itself.
	_, release := takeHangups(ctx)
	defer release()
	return settings.Placed(from, app.Worker(ctx, app.WorkerOptions{Config: c, Bundle: g.bundle, Log: log}))
}
