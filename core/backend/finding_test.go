package backend

import (
	"errors"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestEachFieldOfAnErrorIsAFinding(t *testing.T) {
	t.Parallel()
	p := Section("b")
	p.Add("one", "must be 1")
	p.Refuse("two", "cannot be 2")
	for _, c := range []struct {
		err  error
		want []Finding
	}{
		{p.Err(), []Finding{
			{LevelError, "configuration", "backends.b.one: must be 1", "correct backends.b.one"},
			{LevelError, "configuration", "backends.b.two: cannot be 2", "correct backends.b.two"},
		}},
		{executor.Errorf(executor.Internal, "broken"), []Finding{{LevelError, "configuration", "broken", ""}}},
		{errors.New("broken"), []Finding{{LevelError, "configuration", "broken", ""}}},
	} {
		if got := ConfigFindings(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}

func TestACheckHasARemedyWhereItIsBad(t *testing.T) {
	t.Parallel()
	if got := Check(true, "python", "good", "bad", "help"); got != (Finding{LevelOK, "python", "good", ""}) {
		t.Errorf("good: %+v", got)
	}
	if got := Check(false, "python", "good", "bad", "help"); got != (Finding{LevelWarn, "python", "bad", "help"}) {
		t.Errorf("bad: %+v", got)
	}
}
