package executor_test

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestHitLimit(t *testing.T) {
	t.Parallel()
	zero, one := 0, 1
	full := executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseRun, Field: "config.disk_mb", Message: "full"}
	late := full
	late.Phase = executor.PhaseCollect
	gone := full
	gone.Code = executor.Unavailable
	for name, test := range map[string]struct {
		r    executor.Result
		want bool
	}{
		"a program that failed":         {executor.Result{Status: executor.StatusFailed, ExitCode: &one, Failure: &full}, true},
		"a program that was ended":      {executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", Failure: &full}, true},
		"a program that succeeded":      {executor.Result{Status: executor.StatusSucceeded, ExitCode: &zero, Failure: &full}, false},
		"no program":                    {executor.Result{Status: executor.StatusFailed, Failure: &full}, false},
		"a program that took too long":  {executor.Result{Status: executor.StatusTimedOut, Failure: &full}, true},
		"no failure":                    {executor.Result{Status: executor.StatusFailed, ExitCode: &one}, false},
		"a lost program":                {executor.Result{Status: executor.StatusLost, Signal: "SIGKILL", Failure: &full}, false},
		"a bound of what was collected": {executor.Result{Status: executor.StatusFailed, ExitCode: &one, Failure: &late}, false},
		"a failure of ours":             {executor.Result{Status: executor.StatusFailed, ExitCode: &one, Failure: &gone}, false},
	} {
		if got := test.r.HitLimit(); (got != nil) != test.want || test.want && got != test.r.Failure {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
