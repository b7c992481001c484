//go:build linux

package backendtest

import (
	"io"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// Harness makes the Backend under test for each lane.
type Harness struct {
	// New returns the Backend for the direct lane and for the wire lane. It is called once for each. A Backend that is an
	// io.Closer is closed at the end.
	New func(t *testing.T) executor.Backend
	// Process starts the Backend in a plugin process. It is called twice, because one of the processes is killed. nil: the
	// test of the lane is skipped.
	Process func(t *testing.T) *plugintest.Plugin
	// Abandon simulates the death of the Backend that New returned last, and returns its successor. It is for Backends with
	// Capabilities.Attach. nil: the rules about a successor are skipped.
	Abandon func(t *testing.T) executor.Backend
	// Lanes are the lanes to run. A Backend that passes in all lanes may be tested in one lane in a further environment.
	// Default: all.
	Lanes []Lane
	Options
}

// Run runs the suite on h in its lanes, one subtest per lane and rule.
func Run(t *testing.T, h Harness) {
	t.Setenv(canary, "leaked") // for BE-15; must be set before any backend or plugin starts
	lane := func(l Lane, run func(t *testing.T)) {
		if len(h.Lanes) == 0 || slices.Contains(h.Lanes, l) {
			t.Run(string(l), run)
		}
	}
	lane(LaneDirect, func(t *testing.T) {
		b := h.New(t)
		runLane(t, newSuite(b, LaneDirect, h.Options, h.successor(t, nil)))
		closeBackend(t, b)
	})
	lane(LaneWire, func(t *testing.T) {
		inner := h.New(t)
		wired := func(b executor.Backend) executor.Backend { return plugintest.Wire(t, b) }
		runLane(t, newSuite(wired(inner), LaneWire, h.Options, h.successor(t, wired)))
		closeBackend(t, inner)
	})
	lane(LaneProcess, func(t *testing.T) {
		if h.Process == nil {
			t.Skip("the Harness has no Process function")
		}
		s := newSuite(h.Process(t).Backend, LaneProcess, h.Options, nil)
		s.victim = func() (executor.Backend, func()) {
			p := h.Process(t)
			return p.Backend, p.Kill
		}
		runLane(t, s)
	})
}

func (h Harness) successor(t *testing.T, wrap func(executor.Backend) executor.Backend) func() executor.Backend {
	if h.Abandon == nil {
		return nil
	}
	return func() executor.Backend {
		b := h.Abandon(t)
		if wrap != nil {
			b = wrap(b)
		}
		return b
	}
}

func closeBackend(t *testing.T, b executor.Backend) {
	if c, ok := b.(io.Closer); ok {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func runLane(t *testing.T, s *suite) {
	for _, r := range s.rules() {
		t.Run(r.String(), func(t *testing.T) {
			result := s.check(t.Context(), r)
			for _, line := range result.Log {
				t.Log(line)
			}
			for _, e := range result.Errors {
				t.Error(e)
			}
			if result.Skipped != "" && len(result.Errors) == 0 {
				t.Skip(result.Skipped)
			}
		})
	}
}
