package sessions

import (
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

func TestWhatAClosedSessionCannotDoAnyMoreIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		broke := executor.Errorf(executor.Unavailable, "its runner is gone")
		missing := executor.FieldErrorf(executor.NotFound, "path", "is not there")
		want := func(err error, code executor.Code) {
			t.Helper()
			if got := s.explain("use it", err); executor.CodeOf(got) != code {
				t.Errorf("%v becomes %v, want %s", err, got, code)
			}
		}
		want(broke, executor.Unavailable)
		want(missing, executor.NotFound)
		running := d.join(s, "running", false, true)
		s.beginClose("by request")
		want(broke, executor.Conflict)
		want(missing, executor.NotFound)
		wantNext(t, running.turn.Leave(), nil)
		<-s.closed
		want(broke, executor.Conflict)
		want(missing, executor.Conflict)
	})
}

func TestALostSessionSaysHowItsInterpreterEnded(t *testing.T) {
	t.Parallel()
	three := 3
	for _, test := range []struct {
		result executor.Result
		want   string
	}{
		{executor.Result{Status: executor.StatusLost, Failure: &executor.Failure{Message: "its backend went away"}, Signal: "SIGKILL"}, "its backend went away"},
		{executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL"}, "its interpreter ran out of memory"},
		{executor.Result{Status: executor.StatusFailed, Signal: "SIGSEGV"}, "its interpreter was ended by SIGSEGV"},
		{executor.Result{Status: executor.StatusFailed, ExitCode: &three}, "its interpreter ended with exit code 3"},
		{executor.Result{Status: executor.StatusTimedOut}, "its interpreter died"},
	} {
		if got := interpreterEnd(test.result); got != test.want {
			t.Errorf("%+v: %q, want %q", test.result, got, test.want)
		}
	}
}
