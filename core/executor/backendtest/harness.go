//go:build linux

package backendtest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
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
	// Lanes are the lanes to run, with their rules. Default: the direct lane with all rules.
	Lanes []LaneRules
	// Virtual runs the direct lane and the wire lane in bubbles of testing/synctest, where waiting takes no time and load changes
	// nothing. It is for a Backend whose goroutines wait for nothing outside of this process. New and Abandon are called in the
	// bubble. Each rule's result becomes a subtest after the whole lane has run.
	Virtual bool
	Options
}

// LaneRules are the rules that a lane runs.
type LaneRules struct {
	Lane Lane
	// Gate are the ids of the rules that the lane runs by the gate, beside the watched rules. A long part (package needtest) runs
	// all rules. nil: the gate runs all rules, too. One lane of each Backend has nil. A lane without rules is left out of the gate.
	Gate []string
	// Why says why the other rules can find nothing in this lane that another lane of the gate does not find.
	Why string

	name string // of the subtest. Default: the lane
}

// SecondWire is the wire lane of a Backend that runs all rules in the direct lane, and has Attach.
var SecondWire = LaneRules{
	Lane: LaneWire, Gate: []string{"BE-82", "BE-85", "SE-45", "SE-47"},
	Why: "the fake holds the wire to all rules, with every message; a real backend adds that it dies behind the wire",
}

// SecondProcess is the process lane of a Backend that runs all rules in the direct lane.
var SecondProcess = LaneRules{
	Lane: LaneProcess,
	Gate: []string{
		// What a process of its own changes: its environment, what it prepares, Executions at once, goroutines of both sides, its end, the
		// system's folders for temporary files.
		"BE-15", "BE-50", "BE-60", "BE-62", "BE-71", "BE-83", "BE-84", "BE-224", "SE-46",
		// Of each kind of message one rule: a program, its input, its output, its files, a limit, a cancel, a refusal, a session.
		"BE-01", "BE-10", "BE-16", "BE-22", "BE-23", "BE-24", "BE-30", "BE-42", "BE-74", "SE-01",
	},
	Why: "what a program may do does not depend on the process that started it, and the fake holds the wire to all rules",
}

// ofTheRunner are the rules that core/runner keeps by itself: what it does with code, files, streams and processes does not depend on who
// has started it. The gate checks them on the uv backend.
var ofTheRunner = []string{
	"BE-02", "BE-03", "BE-04", "BE-05", "BE-06", "BE-09", "BE-11", "BE-12", "BE-18", "BE-21", "BE-26", "BE-32", "BE-43", "BE-44", "BE-45", "BE-46",
	"BE-49", "BE-56", "BE-57", "BE-73", "BE-205", "BE-206", "BE-207", "BE-211", "BE-212", "BE-218", "BE-219", "BE-220", "BE-221", "BE-222", "BE-223", "BE-227",
	"SE-02", "SE-03", "SE-05", "SE-06", "SE-07", "SE-08", "SE-09", "SE-11", "SE-14", "SE-18", "SE-19", "SE-20", "SE-21", "SE-23", "SE-24", "SE-27", "SE-31",
	"SE-32", "SE-34", "SE-35",
}

// AroundTheRunner is the direct lane of a Backend that has a core/runner run its programs in places of its own. But are more rules that the
// gate leaves out there.
func AroundTheRunner(but ...string) LaneRules {
	lane := LaneRules{Lane: LaneDirect, Why: "the runner keeps the other rules by itself, and the uv backend holds it to them"}
	for _, r := range allRules() {
		if r.Check != nil && !slices.Contains(ofTheRunner, r.ID) && !slices.Contains(but, r.ID) {
			lane.Gate = append(lane.Gate, r.ID)
		}
	}
	return lane
}

// Run runs the suite on h in its lanes, one subtest per lane and rule.
func Run(t *testing.T, h Harness) {
	t.Setenv(canary, "leaked") // for BE-15; must be set before any backend or plugin starts
	h.direct(t)
	h.lane(t, LaneWire, func(t *testing.T, o Options) (*suite, func()) {
		inner := h.New(t)
		wired := func(b executor.Backend) executor.Backend { return plugintest.Wire(t, b) }
		return newSuite(wired(inner), LaneWire, o, h.successor(t, wired)), func() { closeBackend(t, inner) }
	})
	h.lane(t, LaneProcess, func(t *testing.T, o Options) (*suite, func()) {
		if h.Process == nil {
			t.Skip("the Harness has no Process function")
		}
		s := newSuite(h.Process(t).Backend, LaneProcess, o, nil)
		s.victim = func() (executor.Backend, func()) {
			p := h.Process(t)
			return p.Backend, p.Kill
		}
		return s, func() {}
	})
}

func (h Harness) direct(t *testing.T) {
	h.lane(t, LaneDirect, func(t *testing.T, o Options) (*suite, func()) {
		b := h.New(t)
		return newSuite(b, LaneDirect, o, h.successor(t, nil)), func() { closeBackend(t, b) }
	})
}

// ofTheProcess are the rules about goroutines and memory of the test's process, in which nothing else may happen, and one whose program
// ends by itself after two seconds, which pass quickly on a busy machine.
var ofTheProcess = []string{"BE-23", "BE-62", "BE-82"}

// RunShares runs the direct lane in n shares at the same time, and then the rules that measure the test's process. It is for a Backend
// whose Executions mostly wait. lane may name rules for the gate. harness makes the Harness of a share from 0 to n, whose Backend has an
// installation of its own. Share n has the rules that measure.
func RunShares(t *testing.T, n int, lane LaneRules, harness func(t *testing.T, share int) Harness) {
	t.Setenv(canary, "leaked") // a share that ends must not take it from the others
	shares := make([][]string, n)
	var alone []string
	next := 0
	for _, r := range allRules() {
		switch {
		case r.Check == nil: // every run is watched
			alone = append(alone, r.ID)
			for i := range shares {
				shares[i] = append(shares[i], r.ID)
			}
		case lane.Gate != nil && !needtest.IsLong() && !slices.Contains(lane.Gate, r.ID):
		case slices.Contains(ofTheProcess, r.ID):
			alone = append(alone, r.ID)
		default:
			shares[next%n] = append(shares[next%n], r.ID)
			next++
		}
	}
	run := func(share int, name string, only []string) {
		h := harness(t, share)
		h.Lanes, h.Only = []LaneRules{{Lane: LaneDirect, name: name}}, only
		h.direct(t)
	}
	var all sync.WaitGroup // no parallel subtests: they cannot have a variable of the environment
	for i, only := range shares {
		all.Go(func() { run(i, fmt.Sprintf("%s%d", LaneDirect, i+1), only) })
	}
	all.Wait()
	run(n, string(LaneDirect)+"-alone", alone)
}

// lane runs a lane, unless h leaves it out. open makes the lane's suite, and returns what closes it.
func (h Harness) lane(t *testing.T, l Lane, open func(t *testing.T, o Options) (s *suite, close func())) {
	lanes := h.Lanes
	if len(lanes) == 0 {
		lanes = []LaneRules{{Lane: LaneDirect}}
	}
	at := slices.IndexFunc(lanes, func(r LaneRules) bool { return r.Lane == l })
	if at < 0 {
		return
	}
	o, gate, why := h.Options, lanes[at].Gate, lanes[at].Why
	if gate != nil && !needtest.IsLong() {
		o.Only = nil
		for _, r := range allRules() {
			if (r.Check == nil || slices.Contains(gate, r.ID)) && (len(h.Only) == 0 || slices.Contains(h.Only, r.ID)) {
				o.Only = append(o.Only, r.ID)
			}
		}
	}
	t.Run(cmp.Or(lanes[at].name, string(l)), func(t *testing.T) {
		if gate != nil && len(gate) == 0 {
			needtest.Long(t, why)
		}
		if !h.Virtual || l == LaneProcess {
			s, end := open(t, o)
			defer end()
			for _, r := range s.rules() {
				t.Run(r.String(), func(t *testing.T) { s.check(t.Context(), r).report(t, s) })
			}
			return
		}
		var results []RuleResult
		var s *suite
		o.virtual = true
		synctest.Test(t, func(t *testing.T) {
			var end func()
			s, end = open(t, o)
			defer end()
			results = s.checkAll(t.Context())
		})
		for _, r := range results {
			t.Run(r.ID+" "+r.Name, func(t *testing.T) { r.report(t, s) })
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

// RecordVariable names a folder in which Run records each rule that it has run, or skipped: lines of rule, backend, lane and "run" or
// "skipped", in a file for each process. The gate sets it, and checks at its end that each rule was run (TestTheGateRunsEachRule).
const RecordVariable = "PYEXEC_TEST_RULES"

func (r RuleResult) record(s *suite) error {
	dir := os.Getenv(RecordVariable)
	if dir == "" {
		return nil
	}
	how := "run"
	if r.Skipped != "" {
		how = "skipped"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // not a secret
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(os.Getpid())+".rules"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644) //nolint:gosec // the gate reads it
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r.ID, s.info.Type, s.lane, how)
	return errors.Join(err, f.Close())
}

// report makes a result the result of a test.
func (r RuleResult) report(t *testing.T, s *suite) {
	if err := r.record(s); err != nil {
		t.Error(err)
	}
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
