package cmd

import (
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestATimeThatNobodyKnowsIsNotListed(t *testing.T) {
	t.Parallel()
	e := executor.Execution{StartedAt: time.Now(), Result: &executor.Result{Status: executor.StatusLost}}
	if w := wall(e); w != "" {
		t.Errorf("%q", w)
	}
	e.Result.Wall = 1500 * time.Millisecond
	if w := wall(e); w != "1.50" {
		t.Errorf("%q", w)
	}
}
