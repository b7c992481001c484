// Command project runs a folder of Python on a server, shows its output as it comes, and saves what it made.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: project FOLDER")
		os.Exit(125)
	}
	// Ctrl-C ends ctx, and RunStream then kills the execution.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string) error {
	client, err := pyexec.NewClientFromEnv()
	if err != nil {
		return err
	}
	// .gitignore holds, and the requirements are those of requirements.txt, uv.lock or pyproject.toml.
	spec := pyexec.Spec{Outputs: []string{"**/*.txt", "**/*.csv"}}
	e, err := client.RunStream(ctx, spec, pyexec.Input{Folder: folder}, show)
	if err != nil {
		return err
	}
	if _, err := client.SaveArtifacts(ctx, e.ExecutionID, "out"); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if e.Status != pyexec.StatusSucceeded {
		return fmt.Errorf("the execution ended as %s", e.Status)
	}
	return nil
}

func show(e pyexec.Event) error {
	switch b := e.Body.(type) {
	case pyexec.Progress:
		fmt.Fprintln(os.Stderr, b.Phase, b.Message)
	case pyexec.Output:
		to := os.Stdout
		if b.Stream == "stderr" {
			to = os.Stderr
		}
		_, err := to.Write(b.Data)
		return err
	}
	return nil
}
