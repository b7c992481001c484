package cmd

import (
	"bytes"
	"os"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/exit"
)

func TestAReaderThatHasSeenEnoughIsNoFailureOfOurs(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"config", "show"}, {"completion", "bash"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close() // as head does
		var said bytes.Buffer
		if status := Execute(t.Context(), args, IO{Out: w, Err: &said}, app.Bundle{Version: "1"}); status != exit.BrokenPipe || said.Len() > 0 {
			t.Errorf("%v: status %d, %s", args, status, said.String())
		}
		w.Close()
	}
}
