// Command session keeps a value between two executions, puts a file in, looks at what is displayed, and cleans up.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	client, err := pyexec.NewClientFromEnv()
	if err != nil {
		return err
	}
	s, err := client.OpenSession(ctx, pyexec.SessionSpec{Name: "example", IdleTimeoutSeconds: 600})
	if err != nil {
		return err
	}
	defer func() {
		// Also when ctx has ended: an open session holds memory until its idle timeout.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if _, closeErr := client.CloseSession(clean, s.SessionID); err == nil {
			err = closeErr
		}
	}()
	if _, err := client.UploadFile(ctx, s.SessionID, "data/rows.csv", strings.NewReader("1,2\n3,4\n")); err != nil {
		return err
	}
	for _, code := range []string{
		"import csv\nrows = [[int(n) for n in row] for row in csv.reader(open('data/rows.csv'))]",
		"sum(map(sum, rows))",
	} {
		e, err := client.RunInSession(ctx, s.SessionID, code)
		if err != nil {
			return err
		}
		if e.Status != pyexec.StatusSucceeded {
			return fmt.Errorf("%s: %s", e.Status, e.Stderr)
		}
		for _, d := range e.Displays {
			if d.Value && d.MIME == "text/plain" {
				fmt.Printf("%s\n", d.Data)
			}
		}
	}
	return nil
}
