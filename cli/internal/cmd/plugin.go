package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/core/executor/wire/proto"
)

func newPlugin(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin check PATH | plugin proto DIR",
		Short: "Try an external plugin, or write the protocol's files for one",
		Args:  group,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPluginCheck(g), newPluginProto(g))
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

func newPluginProto(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "proto DIR",
		Short: "Write the files of the gRPC services into DIR, for plugins in other languages",
		Args:  exactly(1, "a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			var written []string
			err := fs.WalkDir(proto.Files, ".", func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				raw, err := proto.Files.ReadFile(name)
				if err != nil {
					return err
				}
				target := filepath.Join(args[0], filepath.FromSlash(name))
				written = append(written, target)
				return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, raw, 0o644)) //nolint:gosec // files for everybody
			})
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(g.Out, map[string]any{"files": written})
			}
			_, err = fmt.Fprint(g.Out, clean(strings.Join(written, "\n")+"\n"))
			return err
		},
	}
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

It runs programs that flood, fork and eat memory, within the limits that the plugin enforces. It kills processes of the
plugin and starts others. Exit status 1 if a rule is broken. The last line is the SHA-256 for the configuration.`,
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
	cmd.Flags().StringSliceVar(&o.rules, "rule", nil, "only these `RULES` (BE-01,PL-05,…)")
	return cmd
}

func (o *pluginCheckOptions) run(ctx context.Context) error {
	section := json.RawMessage(o.set)
	if o.set == "" {
		section = json.RawMessage("{}")
	}
	digest, err := digestOf(o.path)
	if err != nil {
		return err
	}
	rules, err := app.CheckPlugin(ctx, app.CheckOptions{
		Path: o.path, SHA256: digest, Section: section, Rules: o.rules, Image: o.g.image, Log: o.g.embeddedLog(),
	})
	if rules == nil && err != nil {
		return err
	}
	return errors.Join(o.print(rules, digest), err)
}

func (o *pluginCheckOptions) print(rules []app.Rule, digest string) error {
	broken := 0
	for _, r := range rules {
		if len(r.Errors) > 0 {
			broken++
		}
	}
	if o.g.json {
		if err := printJSON(o.g.Out, map[string]any{"ok": broken == 0, "sha256": digest, "rules": rules}); err != nil {
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
		fmt.Fprintf(&b, "sha256 %s\n", digest)
		if _, err := fmt.Fprint(o.g.Out, clean(b.String())); err != nil {
			return err
		}
	}
	if broken > 0 {
		return exit.With(exit.Negative, fmt.Errorf("%d of %d rules are broken", broken, len(rules)))
	}
	return nil
}
