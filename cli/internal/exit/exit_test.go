package exit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAResultBecomesAStatus(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	failed := func(phase executor.Phase, c executor.Code) executor.Result {
		return executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: c, Phase: phase}}
	}
	limit := &executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseRun}
	for _, test := range []struct {
		name string
		r    executor.Result
		want int
	}{
		{"success", executor.Result{Status: executor.StatusSucceeded, ExitCode: code(0)}, 0},
		{"success whose files could not be collected", executor.Result{
			Status: executor.StatusSucceeded, ExitCode: code(0), Failure: &executor.Failure{Code: executor.Invalid, Phase: executor.PhaseCollect},
		}, 125},
		{"a failure of the program whose files could not be collected either", executor.Result{
			Status: executor.StatusFailed, ExitCode: code(3), Failure: &executor.Failure{Code: executor.Invalid, Phase: executor.PhaseCollect},
		}, 125},
		{"a code of which only the last byte is left", executor.Result{Status: executor.StatusFailed, ExitCode: code(259)}, 3},
		{"the program's own code", executor.Result{Status: executor.StatusFailed, ExitCode: code(3)}, 3},
		{"a code that does not fit a byte", executor.Result{Status: executor.StatusFailed, ExitCode: code(256)}, 1},
		{"a signal", executor.Result{Status: executor.StatusFailed, Signal: "SIGTERM"}, 143},
		{"a crash", executor.Result{Status: executor.StatusFailed, Signal: "SIGSEGV"}, 139},
		{"abort", executor.Result{Status: executor.StatusFailed, Signal: "SIGABRT"}, 134},
		{"a system call that was refused", executor.Result{Status: executor.StatusFailed, Signal: "SIGSYS"}, 159},
		{"a real-time signal", executor.Result{Status: executor.StatusFailed, Signal: "SIGRTMIN+2"}, 164},
		{"a signal known by its number only", executor.Result{Status: executor.StatusFailed, Signal: "signal 40"}, 168},
		{"a signal that nobody knows", executor.Result{Status: executor.StatusFailed, Signal: "SIGWHAT"}, 137},
		{"timeout, whatever the program said", executor.Result{Status: executor.StatusTimedOut, ExitCode: code(0)}, 124},
		{"out of memory", executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL"}, 137},
		{"out of memory, and the Result says so", executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", Failure: limit}, 137},
		{"the program's own code, though its disk was full", executor.Result{Status: executor.StatusFailed, ExitCode: code(3), Failure: limit}, 3},
		{"a signal, though its disk was full", executor.Result{Status: executor.StatusFailed, Signal: "SIGXFSZ", Failure: limit}, 153},
		{"a bound that ended what had not run", executor.Result{Status: executor.StatusFailed, Failure: limit}, 125},
		{"killed", executor.Result{Status: executor.StatusKilled}, 137},
		{"lost", executor.Result{Status: executor.StatusLost}, 125},
		{"a failed preparation", failed(executor.PhasePrepare, executor.Invalid), 125},
		{"a file that cannot be executed", failed(executor.PhaseStart, executor.Invalid), 126},
		{"a command that is not there", failed(executor.PhaseStart, executor.NotFound), 127},
		{"a start that failed because of us", failed(executor.PhaseStart, executor.Internal), 125},
		{"a status of the future", executor.Result{Status: "melted"}, 125},
		{"a failure without a code", executor.Result{Status: executor.StatusFailed}, 125},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := exit.OfResult(test.r); got != test.want {
				t.Fatalf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestAnErrorBecomesAStatusAndAMessage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err     error
		status  int
		message string
	}{
		{nil, 0, ""},
		{errors.New("no such file"), 125, "no such file"},
		{exit.With(3, nil), 3, ""},
		{exit.With(0, nil), 0, ""},
		{fmt.Errorf("check: %w", exit.With(1, errors.New("bad"))), 1, "check: bad"},
	} {
		if status, message := exit.Of(test.err); status != test.status || message != test.message {
			t.Errorf("%v: got %d %q", test.err, status, message)
		}
	}
}

func TestAStatusWithoutAMessageSaysItself(t *testing.T) {
	t.Parallel()
	if got := exit.With(3, nil).Error(); got != "exit status 3" {
		t.Errorf("got %q", got)
	}
}

func TestTheOperationOfTheEngineIsNotShown(t *testing.T) {
	t.Parallel()
	refused := executor.Problems{{Field: "python_version", Message: "must be one of 3.13"}}.Err(executor.Invalid, "submit", "; ")
	for want, err := range map[string]error{
		"python_version: must be one of 3.13":                  refused,
		"open it: submit: python_version: must be one of 3.13": fmt.Errorf("open it: %w", refused),
		"submit: internal":                                     &executor.Error{Code: executor.Internal, Op: "submit"},
	} {
		if status, got := exit.Of(err); status != exit.Ours || got != want {
			t.Errorf("%d %q, want %q", status, got, want)
		}
	}
}
