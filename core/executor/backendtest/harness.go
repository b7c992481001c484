//go:build linux

package backendtest

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"

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
	// Virtual runs the direct lane and the wire lane in bubbles of testing/synctest, where waiting takes no time and load changes
	// nothing. It is for a Backend whose goroutines wait for nothing outside of this process. New and Abandon are called in the
	// bubble. Each rule's result becomes a subtest after the whole lane has run.
	Virtual bool
	Options
}

// Run runs the suite on h in its lanes, one subtest per lane and rule.
func Run(t *testing.T, h Harness) {
	t.Setenv(canary, "leaked") // for BE-15; must be set before any backend or plugin starts
	h.lane(t, LaneDirect, func(t *testing.T) (*suite, func()) {
		b := h.New(t)
		return newSuite(b, LaneDirect, h.Options, h.successor(t, nil)), func() { closeBackend(t, b) }
	})
	h.lane(t, LaneWire, func(t *testing.T) (*suite, func()) {
		inner := h.New(t)
		wired := func(b executor.Backend) executor.Backend { return plugintest.Wire(t, b) }
		return newSuite(wired(inner), LaneWire, h.Options, h.successor(t, wired)), func() { closeBackend(t, inner) }
	})
	h.lane(t, LaneProcess, func(t *testing.T) (*suite, func()) {
		if h.Process == nil {
			t.Skip("the Harness has no Process function")
		}
		s := newSuite(h.Process(t).Backend, LaneProcess, h.Options, nil)
		s.victim = func() (executor.Backend, func()) {
			p := h.Process(t)
			return p.Backend, p.Kill
		}
		return s, func() {}
	})
}

// lane runs a lane, unless h leaves it out. open makes the lane's suite, and returns what closes it.
func (h Harness) lane(t *testing.T, l Lane, open func(t *testing.T) (s *suite, close func())) {
	if len(h.Lanes) > 0 && !slices.Contains(h.Lanes, l) {
		return
	}
	t.Run(string(l), func(t *testing.T) {
		if !h.Virtual || l == LaneProcess {
			s, end := open(t)
			defer end()
			for _, r := range s.rules() {
				t.Run(r.String(), func(t *testing.T) { s.check(t.Context(), r).report(t) })
			}
			return
		}
		var results []RuleResult
		synctest.Test(t, func(t *testing.T) {
			s, end := open(t)
			defer end()
			results = s.checkAll(t.Context())
		})
		for _, r := range results {
			t.Run(r.ID+" "+r.Name, r.report)
		}
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

// report makes a result the result of a test.
func (r RuleResult) report(t *testing.T) {
	for _, line := range r.Log {
		t.Log(line)
	}
	for _, e := range r.Errors {
		t.Error(e)
	}
	if r.Skipped != "" && len(r.Errors) == 0 {
		t.Skip(r.Skipped)
	}
}
