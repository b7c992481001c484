package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestARunnerRestsUntilItIsWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wake func(*execution)
		want time.Duration
	}{
		"nobody wants it": {func(*execution) {}, restTime},
		"the next one":    {func(x *execution) { close(x.cleaned); x.awaitCleaned() }, 0},
		"the host's end":  {func(x *execution) { x.drop() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newExecution(newAgent(nil), protocol.Start{})
				began := time.Now()
				c.wake(x)
				x.rest()
				if rested := time.Since(began); rested != c.want {
					t.Errorf("it rested for %s, want %s", rested, c.want)
				}
			})
		})
	}
}
