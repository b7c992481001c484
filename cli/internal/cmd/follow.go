package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/core/executor"
)

type followOptions struct {
	g      *global
	id     string
	tail   bool
	output string
}

func newFollow(g *global) *cobra.Command {
	o := &followOptions{g: g}
	cmd := &cobra.Command{
		Use:   "follow ID [--tail]",
		Short: "Poll or tail an execution",
		Long: `Wait for the end of an execution, then print its output and end with its exit code.
With --tail its output is printed while it runs. Ctrl-C stops following, not the execution. If the server restarts
meanwhile, the command waits for it for at most half a minute.`,
		Args: exactly(1, "the id of an execution"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.tail, "tail", false, "print the output while the execution runs")
	cmd.Flags().StringVar(&o.output, "output", "", "save the artifacts in `DIR`")
	return cmd
}

func (o *followOptions) run(ctx context.Context) error {
	svc, err := o.g.openServer("follow")
	if err != nil {
		return err
	}
	if err := outputFolder(o.output); err != nil {
		return err
	}
	d := &target{Service: svc, ctx: ctx}
	v := viewer{g: o.g, output: o.output, hidden: true, live: o.tail} // submit keeps only the files of --artifact
	return v.view(d, o.id, newProgress(o.g))
}

type logsOptions struct {
	g      *global
	id     string
	follow bool
	stream string
}

func newLogs(g *global) *cobra.Command {
	o := &logsOptions{g: g}
	cmd := &cobra.Command{
		Use:   "logs ID [-f]",
		Short: "Stream raw container logs",
		Long:  "Print what a program has written so far, byte for byte: its stdout on stdout, its stderr on stderr.",
		Args:  exactly(1, "the id of an execution"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			switch o.stream {
			case "stdout", "stderr", "both":
			default:
				return fmt.Errorf("--stream: must be stdout, stderr or both (got %q)", o.stream)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow the log until the execution ends")
	cmd.Flags().StringVar(&o.stream, "stream", "both", "`STREAM` to print: stdout, stderr or both")
	return cmd
}

// run prints the log up to the last output at its start, or with --follow to the end of the execution.
func (o *logsOptions) run(ctx context.Context) error {
	svc, err := o.g.openServer("logs")
	if err != nil {
		return err
	}
	e, err := svc.Get(ctx, o.id)
	if err != nil {
		return err
	}
	var out, errs int64
	if !o.follow && e.StdoutBytes+e.StderrBytes == 0 {
		return nil
	}
	for event, err := range svc.Events(ctx, o.id, 0) {
		if err != nil {
			return err
		}
		if b, ok := event.Body.(executor.Output); ok {
			w, seen := o.g.Out, &out
			if b.Stream == executor.Stderr {
				w, seen = o.g.Err, &errs
			}
			*seen = b.Offset + int64(len(b.Data))
			if o.stream == "both" || o.stream == string(b.Stream) {
				if _, err := w.Write(b.Data); err != nil {
					return outputFailure(err)
				}
			}
		}
		if !o.follow && out >= e.StdoutBytes && errs >= e.StderrBytes {
			return nil
		}
	}
	return context.Cause(ctx)
}
