//go:build linux

package runner

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// A program's children in its process group are asked to end, too, by a timeout as by a cancel.
func TestTheWholeGroupIsAskedToEnd(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for _, want := range []executor.Status{executor.StatusTimedOut, executor.StatusKilled} {
		start := shell(`trap 'wait; exit 3' TERM; sh -c 'trap "echo asked; exit" TERM; echo up; while :; do sleep 0.01; done' & wait`)
		start.Limits.KillGrace = 10 * time.Second
		ctx, cancel := context.WithCancelCause(t.Context())
		rec := newRecord()
		if want == executor.StatusTimedOut {
			start.Limits.Timeout = 2 * time.Second
		} else {
			rec.emit = func(executor.Event) error {
				if strings.Contains(rec.out[0].String(), "up") {
					cancel(executor.Errorf(executor.Unavailable, "enough"))
				}
				return nil
			}
		}
		res, err := r.Run(ctx, start, RunInput{}, rec)
		cancel(nil)
		if err != nil || res.Status != want || rec.stdout() != "up\nasked\n" {
			t.Errorf("%s: %s, %q, %v", want, describe(res), rec.stdout(), err)
		}
	}
}
