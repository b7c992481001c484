//go:build linux

package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// The other tests tell limits to come (package toldtest). Each limit comes by the clock here, and not before its time.
func TestLimitsComeByTheClock(t *testing.T) {
	byTheClock := func(t *testing.T, run func(*testing.T, Start) (executor.Result, *record), start Start) (res executor.Result, wait time.Duration) {
		return awaittest.Ladder(t, 200*time.Millisecond, func(limit time.Duration) (executor.Result, bool) {
			start.Limits.Timeout, start.Limits.KillGrace, wait = limit, 2*limit, limit
			res, rec := run(t, start)
			// A cell that has dropped an interrupt has a quarter of the grace to heed the next one.
			return res, strings.Contains(rec.stdout(), "up") && (!strings.Contains(start.Code, "dropped") || res.SessionState == executor.SessionStateKept)
		}), wait
	}
	t.Run("of a program", func(t *testing.T) {
		t.Parallel()
		r := startRunner(t, testConfig(t))
		run := func(t *testing.T, s Start) (executor.Result, *record) { return r.run(t, s, RunInput{}) }
		res, limit := byTheClock(t, run, shell("trap '' TERM; echo up; while :; do sleep 1; done"))
		if describe(res) != "timed_out SIGKILL run/exhausted" || res.Wall < 3*limit {
			t.Errorf("%s after %s with a timeout of %s and twice as much grace", describe(res), res.Wall, limit)
		}
	})
	for _, c := range []struct {
		name, code string
		state      executor.SessionState
		least      func(limit time.Duration) time.Duration
	}{
		{"of a cell that drops an interrupt", "try:\n    print('up', flush=True)\n    time.sleep(1e6)\nexcept KeyboardInterrupt:\n    dropped = True\ntime.sleep(1e6)",
			executor.SessionStateKept, func(limit time.Duration) time.Duration { return limit + 2*limit*3/4 }},
		{"of a cell that never ends", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nprint('up', flush=True)\nwhile True: subprocess.run(['sleep', '1000000'])",
			executor.SessionStateRestarted, func(limit time.Duration) time.Duration { return 3*limit + 2*time.Second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := openSession(t, pythonSession())
			run := func(t *testing.T, s Start) (executor.Result, *record) {
				r.wants(t, "import signal, subprocess, time", "", "")
				return r.run(t, s, RunInput{})
			}
			res, limit := byTheClock(t, run, cellOf(c.code))
			if res.Status != executor.StatusTimedOut || res.SessionState != c.state || res.Wall < c.least(limit) {
				t.Errorf("%s, state %s, after %s with a timeout of %s and twice as much grace", describe(res), res.SessionState, res.Wall, limit)
			}
		})
	}
}
