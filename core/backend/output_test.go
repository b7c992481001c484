package backend

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestOutputGoesToTheWriterOfItsStream(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	sink := Output{Stdout: &stdout, Stderr: &stderr}
	for _, body := range []executor.Body{
		executor.Started{PID: 7},
		executor.Output{Stream: executor.Stdout, Data: []byte("out")},
		executor.Output{Stream: executor.Stderr, Data: []byte("err")},
		executor.Progress{Message: "progress"},
	} {
		if err := sink.Emit(executor.Event{Body: body}); err != nil {
			t.Error(err)
		}
	}
	if stdout.String() != "out" || stderr.String() != "err" {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
	gone, w := io.Pipe()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	broken := Output{Stdout: w, Stderr: w}
	if err := broken.Emit(executor.Event{Body: executor.Output{Stream: executor.Stdout, Data: []byte("x")}}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer that fails: %v", err)
	}
}
