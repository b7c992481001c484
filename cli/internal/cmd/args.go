package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/exit"
)

// exactly is cobra.ExactArgs with words that say what is missing.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s needs %s (see %s --help)", cmd.Name(), what, cmd.CommandPath())
		}
		return nil
	}
}

func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments (got %q)", cmd.CommandPath(), args[0])
	}
	return nil
}

// outputFailure is a failed write to the command's own output.
func outputFailure(err error) error {
	if brokenPipe(err) {
		return exit.With(exit.BrokenPipe, nil)
	}
	return fmt.Errorf("write output: %w", err)
}
