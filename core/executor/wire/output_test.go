package wire_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// A backend uses one buffer for all its output. Trail has taken a copy, and Emit is done with it.
func TestABackendMayUseItsBufferAgain(t *testing.T) {
	t.Parallel()
	const pieces = 20
	backend := &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		buffer := make([]byte, executor.MaxOutputData)
		put := sink.Emit
		for i := range pieces {
			for at := range buffer {
				buffer[at] = byte(i)
			}
			if i == pieces/2 {
				put = sink.(executor.TrailingSink).Trail //nolint:forcetypeassert // the wire's sink is one
			}
			event := executor.Event{Body: executor.Output{Stream: executor.Stdout, Offset: int64(i * len(buffer)), Data: buffer}}
			if err := put(event); err != nil {
				return executor.Result{}, err
			}
		}
		return succeeded, nil
	}}
	log := &recorder{t: t}
	if _, err := plugintest.Wire(t, backend).Run(t.Context(), executor.Job{}, log); err != nil {
		t.Fatal(err)
	}
	for i, e := range log.events {
		o := e.Body.(executor.Output) //nolint:forcetypeassert // nothing else was sent
		if len(o.Data) != executor.MaxOutputData || len(bytes.Trim(o.Data, string([]byte{byte(i)}))) > 0 {
			t.Errorf("piece %d of %d bytes is not what was sent", i, len(o.Data))
		}
	}
	if len(log.events) != pieces {
		t.Errorf("%d pieces came", len(log.events))
	}
}
