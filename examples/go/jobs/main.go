// Command jobs submits several jobs and follows all of them to their ends.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func main() {
	client, err := pyexec.NewClientFromEnv(
		pyexec.WithRetryHook(func(r pyexec.Retry) {
			fmt.Fprintf(os.Stderr, "%s failed (%v), again in %s\n", r.Operation, r.Err, r.Delay)
		}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	var wg sync.WaitGroup
	ends := make([]string, 4)
	for n := range ends {
		wg.Go(func() { ends[n] = job(context.Background(), client, n) })
	}
	wg.Wait()
	for n, end := range ends {
		fmt.Println("job", n, end)
	}
}

func job(ctx context.Context, client *pyexec.Client, n int) string {
	id, err := client.Submit(ctx, pyexec.Spec{
		Code: "import sys; print(sum(range(10 ** int(sys.argv[1]))))",
		Args: []string{fmt.Sprint(n)},
		// The same key and Spec is the same job, however often it is sent; so the client may send it again.
		IdempotencyKey: fmt.Sprintf("sum-%d-%d", n, os.Getpid()),
	}, pyexec.Input{})
	if err != nil {
		return err.Error()
	}
	for e, err := range client.Events(ctx, id, 0) {
		if err != nil {
			return err.Error()
		}
		if f, ok := e.Body.(pyexec.Finished); ok {
			return f.Execution.Status
		}
	}
	return "ended without an end"
}
