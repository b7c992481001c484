package batch

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// MaxCases bounds the cases of a Batch.
	MaxCases = 10_000
	// MaxParallel bounds the cases of a Batch that wait or run at once, DefaultParallel is how many do by default.
	MaxParallel     = 64
	DefaultParallel = 8
	// MaxKey bounds the idempotency key of a Batch. Those of its cases are longer.
	MaxKey = 240
)

// Batch is one program and the cases that it is run for.
type Batch struct {
	// Spec is that of every case. Args come before those of a case, and a variable of a case wins over one of Env. With an IdempotencyKey
	// a repeated Batch takes over the cases that have ended, and runs the others.
	Spec executor.Spec
	// Workspace and Stdin are those of every case, Stdin only of the cases that have none. They are Replayable, and valid until Run
	// returns. Both may be nil.
	Workspace, Stdin *executor.Source
	Cases            []Case
	// Parallel bounds the cases that wait or run at once; 0 = DefaultParallel.
	Parallel int
	// StopAtFirstFailure ends the Batch with the first case that has not passed: those that run are cancelled, the others skipped.
	StopAtFirstFailure bool
}

// Case is one run of the program.
type Case struct {
	// ID is the caller's name of the case; it may be empty.
	ID    string
	Args  []string
	Env   map[string]string
	Stdin *executor.Source
	// Expect says when the case has passed.
	Expect Expect
}

// Expect says what a program must do. The zero Expect is the exit code 0.
type Expect struct {
	ExitCode int
	// Stdout is the expected output; nil: any.
	Stdout    *string
	Compare   Compare
	Tolerance Tolerance
}

// Verdict says whether a case has passed, or why not.
type Verdict string

// The verdicts.
const (
	Passed Verdict = "passed"
	// WrongOutput: the exit code is the expected one, and stdout is not.
	WrongOutput Verdict = "wrong_output"
	// Failed: another exit code, a signal, or no start.
	Failed      Verdict = "failed"
	TimedOut    Verdict = "timed_out"
	OutOfMemory Verdict = "out_of_memory"
	Killed      Verdict = "killed"
	Lost        Verdict = "lost"
	// Skipped: not run, because of StopAtFirstFailure.
	Skipped Verdict = "skipped"
	// Refused: not run or not followed, because of an error of the server. Outcome.Err has it.
	Refused Verdict = "refused"
)

// Outcome is what has become of a case.
type Outcome struct {
	// Index is that of the case in Batch.Cases.
	Index   int
	Verdict Verdict
	// Detail says in words why the case has not passed.
	Detail string
	// Execution is nil if there is none.
	Execution *executor.Execution
	// Err is set for Refused only.
	Err error
}

// Summary counts the cases of a Batch by their Verdict.
type Summary struct {
	Cases    int
	Verdicts map[Verdict]int
	Wall     time.Duration
}

// Check adds what is wrong with b, before any of its cases runs.
func (b Batch) Check(bad *executor.Problems) {
	if n := len(b.Cases); n == 0 || n > MaxCases {
		bad.Add("cases", "must have between 1 and %d elements (got %d)", MaxCases, n)
	}
	if b.Parallel < 0 || b.Parallel > MaxParallel {
		bad.Add("parallel", "must be between 1 and %d (got %d)", MaxParallel, b.Parallel)
	}
	if b.Spec.Session != "" {
		bad.Add("session_id", "must not be given: each case has a sandbox of its own")
	}
	if b.Spec.Durable {
		bad.Add("durable", "must not be given: a batch ends with its caller")
	}
	if len(b.Spec.IdempotencyKey) > MaxKey {
		bad.Add("idempotency_key", "must have at most %d bytes in a batch (got %d)", MaxKey, len(b.Spec.IdempotencyKey))
	}
	ids := map[string]int{}
	for i, c := range b.Cases {
		at := fmt.Sprintf("cases[%d]", i)
		if before, known := ids[c.ID]; known && c.ID != "" {
			bad.Add(at+".id", "duplicate of cases[%d].id", before)
		} else {
			ids[c.ID] = i
		}
		c.Expect.check(at+".expect", bad)
	}
}

func (e Expect) check(at string, bad *executor.Problems) {
	switch e.Compare {
	case CompareDefault, CompareExact, CompareLines, CompareFloat:
	default:
		bad.Add(at+".compare", "must be one of lines, exact, float (got %.40q)", e.Compare)
	}
	if e.Stdout == nil && e.Compare != CompareDefault {
		bad.Add(at+".compare", "must not be given without stdout")
	}
	for name, v := range map[string]float64{"tolerance_abs": e.Tolerance.Abs, "tolerance_rel": e.Tolerance.Rel} {
		switch {
		case !(v >= 0) || math.IsInf(v, 1): //nolint:staticcheck // NaN is bad, too
			bad.Add(at+"."+name, "must be a finite number of at least 0 (got %v)", v)
		case v != 0 && e.Compare != CompareFloat:
			bad.Add(at+"."+name, "must be given with compare float only")
		}
	}
}

// specOf returns the Spec of case i. attempt counts how often its key was found to be that of an Execution that did not end by itself.
func (b Batch) specOf(i, attempt int) executor.Spec {
	s, c := b.Spec, b.Cases[i]
	s.Args = append(append([]string(nil), s.Args...), c.Args...)
	if len(c.Env) > 0 {
		s.Env = maps.Clone(s.Env)
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		maps.Copy(s.Env, c.Env)
	}
	if s.IdempotencyKey != "" {
		s.IdempotencyKey = fmt.Sprintf("%s/%d", s.IdempotencyKey, i)
		if attempt > 1 {
			s.IdempotencyKey += fmt.Sprintf("/%d", attempt)
		}
	}
	return s
}

// judge watches the output of a case and says its Verdict.
type judge struct {
	expect Expect
	stdout Comparer
	stderr []byte // its last bytes
}

// maxLast bounds the last line of stderr that is shown.
const maxLast = 200

func newJudge(e Expect) *judge {
	j := &judge{expect: e}
	if e.Stdout != nil {
		j.stdout = NewComparer(e.Compare, *e.Stdout, e.Tolerance)
	}
	return j
}

// see takes an Event of the case.
func (j *judge) see(e executor.Event) {
	o, ok := e.Body.(executor.Output)
	switch {
	case !ok:
	case o.Stream == executor.Stderr:
		j.stderr = append(j.stderr, o.Data...)
		j.stderr = append(j.stderr[:0], j.stderr[max(0, len(j.stderr)-4*maxLast):]...)
	case j.stdout != nil:
		_, _ = j.stdout.Write(o.Data) // never fails
	}
}

// last returns the last line of stderr behind a colon; "" if there is none.
func (j *judge) last() string {
	text := bytes.TrimSpace(j.stderr)
	line := bytes.TrimSpace(text[bytes.LastIndexByte(text, '\n')+1:])
	if len(line) == 0 {
		return ""
	}
	said := strings.ToValidUTF8(string(line[:min(len(line), maxLast)]), "\uFFFD")
	if len(line) > maxLast {
		said += "…"
	}
	return ": " + said
}

// verdict judges an Execution that has ended.
func (j *judge) verdict(x executor.Execution) (v Verdict, detail string) {
	switch x.Status {
	case executor.StatusTimedOut:
		v = TimedOut
	case executor.StatusOutOfMemory:
		v = OutOfMemory
	case executor.StatusKilled:
		v = Killed
	case executor.StatusSucceeded, executor.StatusFailed:
		return j.ended(x)
	case executor.StatusLost, executor.StatusQueued, executor.StatusRunning, executor.StatusUnknown:
		v = Lost
	}
	return v, failure(x)
}

func failure(x executor.Execution) string {
	if x.Result == nil || x.Result.Failure == nil {
		return ""
	}
	return x.Result.Failure.Message
}

// ended judges a program that has ended by itself, or was not started.
func (j *judge) ended(x executor.Execution) (Verdict, string) {
	switch r := x.Result; {
	case r == nil:
		return Lost, ""
	case r.Failure != nil:
		return Failed, r.Failure.Message
	case r.ExitCode == nil:
		return Failed, "the program was ended by " + cmp.Or(r.Signal, "a signal") + j.last()
	case *r.ExitCode != j.expect.ExitCode:
		return Failed, fmt.Sprintf("exit code: expected %d, got %d", j.expect.ExitCode, *r.ExitCode) + j.last()
	case j.stdout == nil:
		return Passed, ""
	case r.StdoutTruncated:
		return WrongOutput, "stdout has more bytes than output_bytes keeps"
	}
	if detail := j.stdout.Difference(); detail != "" {
		return WrongOutput, detail
	}
	return Passed, ""
}
