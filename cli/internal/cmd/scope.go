package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The global flags by what they are about. All commands take --quiet and --verbose.
const (
	client = "server token json "
	limits = "timeout cpu-seconds memory disk cpu cpus network image "
)

// taken lists the global flags that a command takes, by the command's path without the program's name. Other global flags are
// refused and not shown in the command's help.
var taken = map[string]string{
	"":    "server token config json", // what most commands take
	"run": client + limits + "config async", "submit": client + limits + "async",
	"follow": client, "logs": client, "kill": client, "ls": client,
	"session": client, "session new": client + limits, "session ls": client, "session run": client + "timeout cpu-seconds async",
	"session exec": client + "timeout cpu-seconds async", "session rm": client, "session restart": client, "session interrupt": client,
	"session vars": client, "session install": client, "session files": client, "session cp": client,
	"backends": client + "config", "doctor": client + "config", "mcp": "server token config", "serve": "config", "worker": "config",
	"config": "config json", "config check": "config json", "config show": "config json",
	"plugin": "", "plugin check": "image json", "plugin proto": "json", "version": "json", "completion": "", "help": "",
}

// pathOf returns the words of cmd without the program's name.
func pathOf(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// takes reports whether cmd takes a flag. All but global ones are its own.
func takes(cmd *cobra.Command, flag string) bool {
	list, known := taken[pathOf(cmd)]
	return !known || cmd.Root().PersistentFlags().Lookup(flag) == nil || flag == "quiet" || flag == "verbose" || slices.Contains(strings.Fields(list), flag)
}

// checkScope refuses global flags that cmd would ignore.
func (g *global) checkScope(cmd *cobra.Command) (err error) {
	g.flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || !f.Changed || takes(cmd, f.Name) {
			return
		}
		if path := pathOf(cmd); (path == "session run" || path == "session exec") && slices.Contains(strings.Fields(limits), f.Name) {
			err = fmt.Errorf("--%s: must be given to session new, because it applies to the whole session", f.Name)
			return
		}
		var others []string
		for path := range taken {
			if path != "" && slices.Contains(strings.Fields(taken[path]), f.Name) {
				others = append(others, path)
			}
		}
		slices.Sort(others)
		err = fmt.Errorf("--%s: must not be given to %s, which does not use it (%s do)", f.Name, cmd.CommandPath(), strings.Join(others, ", "))
	})
	return err
}

// scopeHelp makes the help of each command show only the global flags that it takes.
func (g *global) scopeHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		g.flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !takes(cmd, f.Name) })
		help(cmd, args)
	})
}
