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
	// New makes the Backend for the direct and the wire lane, once per lane. If it is an io.Closer, it is closed.
	New func(t *testing.T) executor.Backend
	// Process starts it as a plugin. nil: the lane is skipped, loudly. It is called twice: one is killed.
	Process func(t *testing.T) *plugintest.Plugin
	// Abandon plays the death of what New returned last and returns its successor; for Backends with
	// Capabilities.Attach. nil: rules about that are skipped.
	Abandon func(t *testing.T) executor.Backend
	// Lanes are those to run in: a backend that is held to the law in all of them may be tried in one more kind of place.
	// Default: all.
	Lanes []Lane
	Options
}

// Run runs the suite on h in its lanes, one subtest per lane and rule.
func Run(t *testing.T, h Harness) {
	t.Setenv(canary, "leaked") // before any backend or plugin starts: BE-15 looks for it
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
			t.Skip("the harness knows no plugin process for this backend")
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
