// Command hello runs a line of Python on a server and exits as it did.
package main

import (
	"context"
	"fmt"
	"os"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func main() {
	os.Exit(run(context.Background()))
}

func run(ctx context.Context) int {
	client, err := pyexec.NewClientFromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	e, err := client.Run(ctx, pyexec.Spec{Code: "print('hello from', __import__('platform').python_version())"}, pyexec.Input{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	fmt.Print(e.Stdout)
	fmt.Fprint(os.Stderr, e.Stderr)
	if e.ExitCode == nil { // a signal, a limit, or a failed preparation
		fmt.Fprintln(os.Stderr, "it ended as", e.Status)
		return 125
	}
	return *e.ExitCode
}
