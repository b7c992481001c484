package apijson

import (
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func TestEveryFieldOfABatchIsTaken(t *testing.T) {
	t.Parallel()
	stdin, stdout := "1 2\n", "3\n"
	texts := map[*executor.Source]string{}
	got := ToBatch(pyexec.Batch{
		Spec: pyexec.Spec{Code: "x"}, Parallel: 3, StopAtFirstFailure: true,
		Cases: []pyexec.Case{
			{},
			{ID: "a", Args: []string{"-v"}, Env: map[string]string{"K": "v"}, Stdin: &stdin,
				Expect: &pyexec.Expect{ExitCode: 2, Stdout: &stdout, Compare: "float", ToleranceAbs: 0.5, ToleranceRel: 0.25}},
		},
	}, func(text string) *executor.Source {
		s := &executor.Source{Open: func() (io.ReadCloser, error) { return nil, io.EOF }}
		texts[s] = text
		return s
	})
	if len(got.Cases) != 2 || texts[got.Cases[1].Stdin] != stdin {
		t.Fatalf("cases %+v, texts %v", got.Cases, texts)
	}
	got.Cases[1].Stdin = nil
	want := batch.Batch{
		Spec: ToSpec(pyexec.Spec{Code: "x"}), Parallel: 3, StopAtFirstFailure: true,
		Cases: []batch.Case{
			{},
			{ID: "a", Args: []string{"-v"}, Env: map[string]string{"K": "v"},
				Expect: batch.Expect{ExitCode: 2, Stdout: &stdout, Compare: "float", Tolerance: batch.Tolerance{Abs: 0.5, Rel: 0.25}}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTheRecordOfACaseShowsNoInternalError(t *testing.T) {
	t.Parallel()
	c := batch.Case{ID: "a"}
	for name, v := range map[string]struct {
		outcome batch.Outcome
		want    pyexec.CaseResult
	}{
		"passed": {batch.Outcome{Index: 4, Verdict: batch.Passed}, pyexec.CaseResult{Index: 4, ID: "a", Verdict: "passed"}},
		"refused": {batch.Outcome{Verdict: batch.Refused, Detail: "no room", Err: executor.Errorf(executor.Exhausted, "no room")},
			pyexec.CaseResult{ID: "a", Verdict: "refused", Detail: "no room",
				Failure: &pyexec.Failure{Code: string(executor.Exhausted), Phase: string(executor.PhaseQueue), Message: "no room"}}},
		"internal": {batch.Outcome{Verdict: batch.Refused, Detail: "open /secret", Err: errors.New("open /secret")},
			pyexec.CaseResult{ID: "a", Verdict: "refused", Detail: "internal error",
				Failure: &pyexec.Failure{Code: string(executor.Internal), Phase: string(executor.PhaseQueue), Message: "internal error"}}},
	} {
		if got := CaseOf(v.outcome, c); !reflect.DeepEqual(got, v.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, v.want)
		}
	}
}

func TestASummaryCountsEveryVerdict(t *testing.T) {
	t.Parallel()
	got := BatchSummaryOf(batch.Summary{Cases: 3, Wall: 1500 * time.Millisecond, Verdicts: map[batch.Verdict]int{batch.Passed: 2, batch.Lost: 1}})
	want := pyexec.BatchSummary{Cases: 3, Passed: 2, Verdicts: map[string]int64{"passed": 2, "lost": 1}, DurationSeconds: 1.5}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
