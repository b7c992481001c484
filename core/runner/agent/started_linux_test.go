package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

// writes counts calls of Write.
type writes struct{ n int }

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return len(p), nil
}

func TestAStartTravelsWithTheResultOfAShortProgram(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs          time.Duration
		before, after int // messages before the answer, and with it
	}{
		"a short program":        {time.Millisecond, 0, 1},
		"a program that goes on": {time.Second, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, w := newAgent(nil), &writes{}
				a.out = protocol.NewWriter(w)
				x := newExecution(a, protocol.Start{})
				a.started(x, protocol.Started{})
				time.Sleep(c.runs)
				synctest.Wait()
				if w.n != c.before {
					t.Errorf("%d messages while it runs, want %d", w.n, c.before)
				}
				if a.answer(x, a.out); w.n != c.after {
					t.Errorf("%d messages at its end, want %d", w.n, c.after)
				}
			})
		})
	}
}
