package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/core/executor"
)

type backendsOptions struct{ g *global }

func newBackends(g *global, runF func(context.Context, *backendsOptions) error) *cobra.Command {
	o := &backendsOptions{g: g}
	return &cobra.Command{
		Use:   "backends",
		Short: "Show the backends, here or of a server, and what they can enforce",
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
}

func (o *backendsOptions) run(ctx context.Context) error {
	d, err := o.g.open(ctx, "", true)
	if err != nil {
		return err
	}
	infos, err := d.Backends(d.ctx)
	if err == nil {
		err = o.print(infos)
	}
	return joinClose(err, d.close())
}

func (o *backendsOptions) print(infos []executor.Info) error {
	if o.g.json {
		return printJSON(o.g.Out, map[string]any{"backends": infos})
	}
	var b strings.Builder
	for _, info := range infos {
		state := "healthy"
		if !info.Healthy {
			state = "unhealthy"
			if info.Message != "" {
				state += ": " + info.Message
			}
		}
		fmt.Fprintf(&b, "%s (%s %s) %s\n", info.Name, info.Type, info.Version, state)
		c := info.Capabilities
		fmt.Fprintf(&b, "  isolation  %s\n", c.Isolation)
		fmt.Fprintf(&b, "  enforced   %s\n", enforced(c))
		if len(c.PythonVersions) > 0 {
			fmt.Fprintf(&b, "  python     %s\n", strings.Join(c.PythonVersions, ", "))
		}
		if info.Capacity > 0 {
			fmt.Fprintf(&b, "  capacity   %d\n", info.Capacity)
		}
		for _, w := range info.Warnings {
			fmt.Fprintf(&b, "  warning    %s\n", w)
		}
	}
	_, err := fmt.Fprint(o.g.Out, clean(b.String()))
	return err
}

// enforced lists the limits that hold beside timeout and output.
func enforced(c executor.Capabilities) string {
	var words []string
	for name, on := range map[string]bool{"network off": c.NetworkOff, "memory": c.Memory, "disk": c.Disk, "cpu": c.CPU, "pids": c.PIDs} {
		if on {
			words = append(words, name)
		}
	}
	slices.Sort(words)
	return strings.Join(append([]string{"timeout", "output"}, words...), ", ")
}
