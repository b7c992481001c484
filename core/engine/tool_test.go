package engine

import (
	"context"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// toolNoter notes the tools of its jobs.
type toolNoter struct {
	*fake.Backend
	tools chan string
}

func (b toolNoter) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	b.tools <- executor.ToolFrom(ctx)
	return b.Backend.Run(ctx, job, sink)
}

func TestTheToolOfASubmitReachesABackendInThisProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := toolNoter{fake.New(fake.Options{}), make(chan string, 2)}
		r := newRig(t, setup{backend: b})
		for _, want := range []string{"", "run_script_stream"} {
			ctx := as("ann")
			if want != "" {
				ctx = executor.WithTool(ctx, want)
			}
			r.result(r.submit(ctx, "print 1").ID)
			if got := <-b.tools; got != want {
				t.Errorf("the tool is %q, want %q", got, want)
			}
		}
	})
}
