package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

type killOptions struct {
	g   *global
	ids []string
}

func newKill(g *global, runF func(context.Context, *killOptions) error) *cobra.Command {
	o := &killOptions{g: g}
	return &cobra.Command{
		Use:   "kill ID...",
		Short: "Terminate a running job",
		Long:  "Kill executions and print the status of each. One that had already ended keeps its status.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly(1, "the id of an execution")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ids = args
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
}

// naming says which of several ids err is about, if it does not say so itself.
func naming(id string, err error) error {
	if strings.Contains(err.Error(), id) {
		return err
	}
	return fmt.Errorf("%s: %w", id, err)
}

func (o *killOptions) run(ctx context.Context) error {
	svc, err := o.g.openServer("kill")
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range o.ids {
		e, err := svc.Cancel(ctx, id)
		if err != nil {
			failed = append(failed, naming(id, err))
			continue
		}
		if o.g.json {
			err = printJSON(o.g.Out, map[string]string{"execution_id": id, "status": string(e.Status)})
		} else {
			_, err = fmt.Fprintln(o.g.Out, id, e.Status)
		}
		if err != nil {
			return outputFailure(err)
		}
	}
	return errors.Join(failed...)
}
