// Package toldtest lets limits of the runner come when a test says so, in place of waiting for them.
//
// A TestMain calls Main where the product calls agent.Main. The test gives an Execution limits of awaittest.Forever, waits until the
// program is where the limit is to hit it, and calls Tell. The test is then right on any machine, and quick:
//
//	start.Limits.Timeout, start.Limits.KillGrace = awaittest.Forever, awaittest.Forever
//	// … the program has printed "ready":
//	toldtest.Tell(t, start.ExecutionID, agent.LimitTimeout)
//
// A limit that is told stays told for its Execution. Until a test tells a first limit, the limits of an Execution come by the clock. Those that
// are armed later come only when they are told. So the length of a timer needs another test, which lets it come by the clock.
//
// A runner is told in a file that is named by its binary and the Execution. The environment of a runner has nothing to do with
// it, and a runner may be anybody's child. So the ids of Executions that run at the same time must differ, in all processes of a
// test binary.
package toldtest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/runner/agent"
)

// Main is agent.Main for a runner that Tell reaches. args are what follows the command's name.
func Main(args []string) int {
	base, err := binary()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "runner:", err)
		return agent.ExitBroken
	}
	return agent.MainWith(args, func(limit, executionID string, d time.Duration, over <-chan struct{}) <-chan time.Time {
		come := make(chan time.Time, 1)
		wait := make(<-chan time.Time)
		if !slices.ContainsFunc(limits, func(l string) bool { return isTold(base + executionID + "." + l) }) {
			wait = agent.Clock(limit, executionID, d, over)
		}
		go listen(base+executionID+"."+limit, wait, come, over)
		return come
	})
}

// pause is the time between two looks of a runner for the file.
const pause = 2 * time.Millisecond

var limits = []string{agent.LimitTimeout, agent.LimitGrace, agent.LimitAgain, agent.LimitLast}

func isTold(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// listen sends a value to come when clock has one or the file is there.
func listen(file string, clock <-chan time.Time, come chan<- time.Time, over <-chan struct{}) {
	look := time.NewTicker(pause)
	defer look.Stop()
	for {
		if isTold(file) {
			come <- time.Now()
			return
		}
		select {
		case now := <-clock:
			come <- now
			return
		case <-look.C:
		case <-over:
			return
		}
	}
}

// Tell lets a limit of an Execution come: agent.LimitTimeout or another one. The limit may be armed already or not.
func Tell(t testing.TB, executionID, limit string) {
	t.Helper()
	base, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if executionID == "" || !slices.Contains(limits, limit) {
		t.Fatalf("nothing can be told the limit %q of execution %q", limit, executionID)
	}
	file := base + executionID + "." + limit
	if err := os.WriteFile(file, nil, 0o644); err != nil { //nolint:gosec // runners of any uid see it
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file) }) // told twice
}

// binary returns the beginning of the names of the files. It is the same in all processes of this run of a test binary, which is
// linked for each run. The folder is a fixed one, because runners have no TMPDIR.
func binary() (string, error) {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	return "/tmp/pyexec-told-" + strconv.FormatInt(info.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(info.Size(), 36) + "-", nil
}
