//go:build linux

package agent

import (
	"testing"
	"time"
)

func TestADeadlineTakesThePlaceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	a := &agent{}
	for _, next := range []time.Duration{time.Hour, 0} {
		a.setDeadline(time.Hour)
		before := a.deadline
		a.setDeadline(next)
		if before.Stop() {
			t.Errorf("the deadline before still holds beside one of %s", next)
		}
	}
	if a.deadline != nil {
		t.Error("there is a deadline although none was asked for")
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--fd"}, {"--fd", "x"}, {"--fd", "1"}, {"--what"}} {
		if got := Main(args); got != exitUsage {
			t.Errorf("%v: %d", args, got)
		}
	}
	if fd, stdio, err := parseArgs([]string{"--stdio", "--fd", "7", OwnMounts}); fd != 7 || !stdio || err != nil {
		t.Error(fd, stdio, err)
	}
}
