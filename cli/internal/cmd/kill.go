package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/core/executor"
)

func newKill(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill ID...",
		Short: "Terminate a running job",
		Long:  "Kill executions and print the status of each. An execution that has already ended keeps its status.",
	}
	return forEach(g, cmd, "kill", "an execution", func(ctx context.Context, svc executor.Service, id string) (string, any, error) {
		e, err := svc.Cancel(ctx, id)
		return string(e.Status), map[string]string{"execution_id": id, "status": string(e.Status)}, err
	})
}

// forEach makes cmd call a function for each id, and print the status that call returns, or with --json the answer. name is the
// name of the command and what the object of an id, for errors.
func forEach(g *global, cmd *cobra.Command, name, what string, call func(ctx context.Context, svc executor.Service, id string) (status string, answer any, err error)) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return exactly(1, "the id of "+what)(cmd, args)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := g.openServer(name)
		if err != nil {
			return err
		}
		var failed []error
		for _, id := range args {
			status, answer, err := call(cmd.Context(), svc, id)
			if err != nil {
				failed = append(failed, naming(id, err))
				continue
			}
			if g.json {
				err = printJSON(g.Out, answer)
			} else {
				_, err = fmt.Fprintln(g.Out, id, status)
			}
			if err != nil {
				return outputFailure(err)
			}
		}
		return errors.Join(failed...)
	}
	return cmd
}

// naming adds the id to err if there are several ids and err does not name it.
func naming(id string, err error) error {
	if strings.Contains(err.Error(), id) {
		return err
	}
	return fmt.Errorf("%s: %w", id, err)
}
