package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
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
		start         protocol.Start
		box           *sandbox.Box
		runs          time.Duration
		before, after int // messages before the answer, and with it
	}{
		"a short program":             {protocol.Start{}, &sandbox.Box{}, time.Millisecond, 0, 1},
		"a short cell":                {protocol.Start{Session: true}, nil, time.Millisecond, 0, 1},
		"a program that goes on":      {protocol.Start{}, &sandbox.Box{}, time.Second, 1, 2},
		"a program with a network":    {protocol.Start{Network: true}, &sandbox.Box{}, time.Millisecond, 1, 2},
		"a program in a host folder":  {protocol.Start{Directory: "/srv"}, &sandbox.Box{}, time.Millisecond, 1, 2},
		"a program without a sandbox": {protocol.Start{}, nil, time.Millisecond, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, w := newAgent(nil), &writes{}
				a.out, a.Box = protocol.NewWriter(w), c.box
				x := newExecution(a, c.start)
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
