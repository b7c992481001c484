package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCompletion(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script",
		Long: `Print a completion script for a shell. To load it now:

  bash   source <(python-executor completion bash)
  zsh    source <(python-executor completion zsh)
  fish   python-executor completion fish | source`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      exactly(1, "a shell: bash, zsh or fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(g.Out, true)
			case "zsh":
				return root.GenZshCompletion(g.Out)
			case "fish":
				return root.GenFishCompletion(g.Out, true)
			default:
				return fmt.Errorf("no completion for %q: bash, zsh or fish", args[0])
			}
		},
	}
}
