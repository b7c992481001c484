package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/exit"
)

func newPlugin(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin check PATH",
		Short: "Try an external plugin",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown plugin command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPluginCheck(g))
	for _, name := range slices.Sorted(maps.Keys(g.bundle.Plugins)) {
		// Main dispatches these commands itself. The entries exist for completions and messages.
		cmd.AddCommand(&cobra.Command{Use: name, Hidden: true, Short: "A bundled plugin, started by its host", RunE: func(*cobra.Command, []string) error {
			return errors.New("a plugin must be started by its host")
		}})
	}
	return cmd
}

// newRunner returns the entry of a command that Main dispatches itself.
func newRunner() *cobra.Command {
	return &cobra.Command{Use: "runner", Hidden: true, Short: "The agent that runs programs, started by a backend", RunE: func(*cobra.Command, []string) error {
		return errors.New("this program has no runner on this system")
	}}
}

type pluginCheckOptions struct {
	g     *global
	path  string
	set   string
	rules []string
}

func newPluginCheck(g *global) *cobra.Command {
	o := &pluginCheckOptions{g: g}
	cmd := &cobra.Command{
		Use:   "check PATH",
		Short: "Run the rules of the contract (BE-…) on the plugin program at PATH",
		Long: `Start the plugin program at PATH and check the rules of the contract (docs/contract.md).

It runs programs that flood, fork and eat memory, within the limits that the plugin enforces. Exit status 1 if a rule is
broken.`,
		Args: exactly(1, "the path of a plugin program"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if o.set != "" && !json.Valid([]byte(o.set)) {
				return errors.New("--section: must be JSON")
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.set, "section", "", "its section of the configuration, as `JSON`")
	cmd.Flags().StringSliceVar(&o.rules, "rule", nil, "only these `RULES` (BE-01,…)")
	return cmd
}

func (o *pluginCheckOptions) run(ctx context.Context) error {
	section := json.RawMessage(o.set)
	if o.set == "" {
		section = json.RawMessage("{}")
	}
	rules, err := app.CheckPlugin(ctx, app.CheckOptions{
		Path: o.path, Section: section, Rules: o.rules, Image: o.g.image, Log: o.g.embeddedLog(),
	})
	if rules == nil && err != nil {
		return err
	}
	return errors.Join(o.print(rules), err)
}

func (o *pluginCheckOptions) print(rules []app.Rule) error {
	broken := 0
	for _, r := range rules {
		if len(r.Errors) > 0 {
			broken++
		}
	}
	if o.g.json {
		if err := printJSON(o.g.Out, map[string]any{"ok": broken == 0, "rules": rules}); err != nil {
			return err
		}
	} else {
		var b strings.Builder
		for _, r := range rules {
			switch {
			case len(r.Errors) > 0:
				fmt.Fprintf(&b, "FAIL  %s %s\n", r.ID, r.Name)
				for _, e := range r.Errors {
					fmt.Fprintf(&b, "      %s\n", strings.ReplaceAll(e, "\n", "\n      "))
				}
			case r.Skipped != "":
				fmt.Fprintf(&b, "skip  %s %s: %s\n", r.ID, r.Name, r.Skipped)
			default:
				fmt.Fprintf(&b, "ok    %s %s\n", r.ID, r.Name)
			}
		}
		if _, err := fmt.Fprint(o.g.Out, clean(b.String())); err != nil {
			return err
		}
	}
	if broken > 0 {
		return exit.With(exit.Negative, fmt.Errorf("%d of %d rules are broken", broken, len(rules)))
	}
	return nil
}
