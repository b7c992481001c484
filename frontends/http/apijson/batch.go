package apijson

import (
	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// ToBatch returns the batch.Batch of b, but for the files and the standard input of the Spec. source makes the Source of a text.
func ToBatch(b pyexec.Batch, source func(string) *executor.Source) batch.Batch {
	return batch.Batch{
		Spec: ToSpec(b.Spec), Parallel: int(b.Parallel), StopAtFirstFailure: b.StopAtFirstFailure,
		Cases: convert(b.Cases, func(c pyexec.Case) batch.Case {
			out := batch.Case{ID: c.ID, Args: c.Args, Env: c.Env}
			if c.Stdin != nil {
				out.Stdin = source(*c.Stdin)
			}
			if e := c.Expect; e != nil {
				out.Expect = batch.Expect{ExitCode: int(e.ExitCode), Stdout: e.Stdout, Compare: batch.Compare(e.Compare),
					Tolerance: batch.Tolerance{Abs: e.ToleranceAbs, Rel: e.ToleranceRel}}
			}
			return out
		}),
	}
}

// CaseOf returns the API's form of o, the outcome of c, without the Result.
func CaseOf(o batch.Outcome, c batch.Case) pyexec.CaseResult {
	out := pyexec.CaseResult{Index: int64(o.Index), ID: c.ID, Verdict: string(o.Verdict), Detail: o.Detail}
	if o.Err != nil {
		code := executor.CodeOf(o.Err)
		out.Failure = &pyexec.Failure{Code: string(code), Phase: string(executor.PhaseQueue), Message: o.Detail}
		if code == executor.Internal {
			out.Detail, out.Failure.Message = "internal error", "internal error"
		}
	}
	return out
}

// BatchSummaryOf returns the API's form of s.
func BatchSummaryOf(s batch.Summary) pyexec.BatchSummary {
	out := pyexec.BatchSummary{Cases: int64(s.Cases), Passed: int64(s.Verdicts[batch.Passed]), Verdicts: map[string]int64{}, DurationSeconds: s.Wall.Seconds()}
	for v, n := range s.Verdicts {
		out.Verdicts[string(v)] = int64(n)
	}
	return out
}
