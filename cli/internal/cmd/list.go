package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
)

type listOptions struct {
	g        *global
	statuses []string
	limit    int
	after    string
}

func newList(g *global) *cobra.Command {
	o := &listOptions{g: g}
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List executions, newest first",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range o.statuses {
				if !slices.Contains(executor.Statuses(), executor.Status(s)) {
					return fmt.Errorf("--status: must be one of %s (got %q)", joined(executor.Statuses()), s)
				}
			}
			if o.limit < 0 || o.limit > 500 {
				return fmt.Errorf("--limit: must be between 1 and 500 (got %d)", o.limit)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&o.statuses, "status", nil, "only these `STATUSES`")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "at most `N` (default 50)")
	cmd.Flags().StringVar(&o.after, "after", "", "continue behind this `ID`")
	return cmd
}

func joined[T ~string](list []T) string {
	var words []string
	for _, s := range list {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

func (o *listOptions) run(ctx context.Context) error {
	svc, err := o.g.openServer("ls")
	if err != nil {
		return err
	}
	filter := executor.Filter{Limit: o.limit, After: o.after}
	for _, s := range o.statuses {
		filter.Statuses = append(filter.Statuses, executor.Status(s))
	}
	list, err := svc.List(ctx, filter)
	if err != nil {
		return err
	}
	if o.g.json {
		next, err := nextPage(ctx, svc, filter, list)
		if err != nil {
			return err
		}
		return printJSON(o.g.Out, apijson.PageOf(list, next))
	}
	t := tabwriter.NewWriter(o.g.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATUS\tEXIT\tBACKEND\tCREATED\tSECONDS")
	for _, e := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Status, ending(e), clean(e.Backend), e.CreatedAt.Local().Format(time.DateTime), wall(e))
	}
	return t.Flush()
}

// nextPage returns the id after which the page after list begins; empty: list is the last page.
func nextPage(ctx context.Context, svc executor.Executions, f executor.Filter, list []executor.Execution) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	f.After, f.Limit = list[len(list)-1].ID, 1
	more, err := svc.List(ctx, f)
	if err != nil || len(more) == 0 {
		return "", err
	}
	return f.After, nil
}

func ending(e executor.Execution) string {
	switch {
	case e.Result == nil:
		return ""
	case e.Result.Signal != "":
		return e.Result.Signal
	case e.Result.ExitCode != nil:
		return fmt.Sprint(*e.Result.ExitCode)
	default:
		return ""
	}
}

func wall(e executor.Execution) string {
	if e.Result == nil || e.StartedAt.IsZero() || e.Result.Status == executor.StatusLost && e.Result.Wall == 0 {
		return "" // the execution did not run, or its time is unknown
	}
	return fmt.Sprintf("%.2f", e.Result.Wall.Seconds())
}
