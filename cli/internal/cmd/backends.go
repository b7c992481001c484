package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/core/executor"
)

func newBackends(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "backends",
		Short: "Show the backends, here or of a server, and what they can enforce",
		Args:  none,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runBackends(cmd.Context(), g) },
	}
}

func runBackends(ctx context.Context, g *global) error {
	d, err := g.open(ctx, "", true, 0)
	if err != nil {
		return err
	}
	infos, err := d.Backends(d.ctx)
	if err == nil {
		err = printBackends(g, infos)
	}
	return joinClose(err, d.close())
}

func printBackends(g *global, infos []executor.Info) error {
	if g.json {
		return printJSON(g.Out, map[string]any{"backends": infos})
	}
	var b strings.Builder
	for _, info := range infos {
		state := "healthy"
		if !info.Healthy {
			state = "unhealthy"
		}
		if info.Message != "" {
			state += ": " + info.Message
		}
		fmt.Fprintf(&b, "%s (%s %s) %s\n", info.Name, info.Type, info.Version, state)
		c := info.Capabilities
		fmt.Fprintf(&b, "  isolation  %s\n", c.Isolation)
		fmt.Fprintf(&b, "  enforced   %s\n", enforced(c))
		if len(c.PythonVersions) > 0 {
			fmt.Fprintf(&b, "  python     %s\n", strings.Join(c.PythonVersions, ", "))
		}
		if len(c.PythonDownloads) > 0 {
			fmt.Fprintf(&b, "  downloads  Python %s, when it is asked for\n", strings.Join(c.PythonDownloads, ", "))
		}
		if info.Capacity > 0 {
			fmt.Fprintf(&b, "  capacity   %d\n", info.Capacity)
		}
		for _, w := range info.Warnings {
			fmt.Fprintf(&b, "  warning    %s\n", w)
		}
	}
	_, err := fmt.Fprint(g.Out, clean(b.String()))
	return err
}

// enforced lists the enforced limits other than timeout and output.
func enforced(c executor.Capabilities) string {
	var words []string
	for name, on := range map[string]bool{"network off": c.NetworkOff, "memory": c.Memory, "disk": c.Disk, "cpu": c.CPU, "pids": c.PIDs, "cpu seconds": c.CPUTime} {
		if on {
			words = append(words, name)
		}
	}
	slices.Sort(words)
	return strings.Join(append([]string{"timeout", "output"}, words...), ", ")
}
