package pyexec

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
)

// Batch is one program and the cases that it is run for. Spec and Input are those of every case; SessionID and Durable must not be set.
// With an IdempotencyKey of its own a repeated Batch takes over the cases that have ended.
type Batch struct {
	Spec
	Cases              []Case `json:"cases" doc:"What to run the program for: 1 to 10000 cases."`
	Parallel           int64  `json:"parallel,omitzero" minimum:"1" maximum:"64" doc:"Cases that wait or run at once. Default: 8."`
	StopAtFirstFailure bool   `json:"stop_at_first_failure,omitzero" doc:"End the batch with the first case that has not passed: those that run are cancelled, the others are skipped."`
}

// Case is one run of the program of a Batch, in a sandbox of its own.
type Case struct {
	ID     string            `json:"id,omitzero" maxLength:"255" doc:"Name of the case, which its record repeats."`
	Args   []string          `json:"args,omitempty" pattern:"^[^\\x00]*$" doc:"Arguments, behind those of the batch."`
	Env    map[string]string `json:"env,omitempty" doc:"Environment variables. They win over those of the batch."`
	Stdin  *string           `json:"stdin,omitempty" doc:"Standard input, as text. Default: that of the batch."`
	Expect *Expect           `json:"expect,omitempty" doc:"When the case has passed. Default: when the program ends with exit code 0."`
}

// Expect says when a Case has passed.
type Expect struct {
	ExitCode     int64   `json:"exit_code,omitzero" minimum:"0" maximum:"255" doc:"Exit code. Default: 0."`
	Stdout       *string `json:"stdout,omitempty" doc:"Standard output, as text. Default: any."`
	Compare      string  `json:"compare,omitzero" enum:"exact,lines,float" doc:"lines (default): without the white space at the end of each line and without empty lines at the end. exact: byte for byte. float: word by word, and two numbers may differ by a tolerance."`
	ToleranceAbs float64 `json:"tolerance_abs,omitzero" minimum:"0" maximum:"1e308" doc:"Largest difference of two numbers. With compare float only."`
	ToleranceRel float64 `json:"tolerance_rel,omitzero" minimum:"0" maximum:"1e308" doc:"Largest difference of two numbers, as a part of the expected one. One of both tolerances is enough. With compare float only."`
}

// The verdicts of a case. A newer server may have others.
const (
	VerdictPassed      = "passed"
	VerdictWrongOutput = "wrong_output"
	VerdictFailed      = "failed"
	VerdictTimedOut    = "timed_out"
	VerdictOutOfMemory = "out_of_memory"
	VerdictKilled      = "killed"
	VerdictLost        = "lost"
	VerdictSkipped     = "skipped"
	VerdictRefused     = "refused"
)

// CaseResult is what has become of a case.
type CaseResult struct {
	Index   int64      `json:"index" doc:"Number of the case in cases, from 0."`
	ID      string     `json:"id" nullable:"true" doc:"Name of the case."`
	Verdict string     `json:"verdict" enum:"passed,wrong_output,failed,timed_out,out_of_memory,killed,lost,skipped,refused" doc:"wrong_output: the exit code is right, stdout is not. failed: another exit code, a signal, or no start. skipped: not run, because another case has not passed. refused: an error of the server, in error. The others: the status of the execution."`
	Detail  string     `json:"detail" nullable:"true" doc:"Why the case has not passed: the limit, the exit code with the last line of stderr, or the first line of stdout that differs with what was expected in it. Long lines are cut, and a mark … says so."`
	Failure *Failure   `json:"error" nullable:"true" doc:"Why the case was refused. null otherwise."`
	Result  *Execution `json:"result" doc:"The Result. null if the case did not run."`
}

// MarshalJSON writes c as the server does.
func (c CaseResult) MarshalJSON() ([]byte, error) { return encode(c, true) }

// BatchSummary is the end of a batch.
type BatchSummary struct {
	Cases           int64            `json:"cases" doc:"Number of cases."`
	Passed          int64            `json:"passed" doc:"Number of cases that have passed."`
	Verdicts        map[string]int64 `json:"verdicts" doc:"Number of cases of each verdict that occurs."`
	DurationSeconds float64          `json:"duration_seconds" doc:"Time from the first case to the last."`
	// Results are the cases in the order of Batch.Cases, if RunBatch had no function for them.
	Results []CaseResult `json:"-"`
}

// RunBatch runs the cases of b and calls handle with each one as it ends, in that order. If handle is nil, the cases and their output are in
// BatchSummary.Results. The end of ctx, or an error of handle, cancels the
// cases that run, and RunBatch returns that error. A case that has not passed is not an error. The call is repeated only before the server
// has accepted the first case. A server that is silent for longer than WithIdleTimeout says is left, and the code is unavailable.
func (c *Client) RunBatch(ctx context.Context, b Batch, in Input, handle func(CaseResult) error) (*BatchSummary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)                                   // the server cancels the cases of a caller that is gone
	resp, err := c.do(ctx, batchSubmission(ctx, b, in)) //nolint:bodyclose // closed below
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if isJSON(resp) { // a batch is answered with lines of JSON
		return nil, foreign(resp, c.base)
	}
	var results []CaseResult
	if handle == nil {
		handle = func(r CaseResult) error {
			results = append(results, r)
			return nil
		}
	}
	broken := func(err error) error {
		if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
			err = cause
		}
		e := c.unreachable(ctx, err)
		e.Status, e.Message = resp.StatusCode, "the batch was cut off: "+err.Error()
		return e
	}
	lines := bufio.NewReaderSize(newIdleReader(resp.Body, c.idle, cancel), 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if err == io.EOF { //nolint:errorlint // the reader's own
				err = io.ErrUnexpectedEOF
			}
			return nil, broken(err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue // a sign of life
		}
		var record struct {
			CaseResult
			Summary *BatchSummary `json:"summary"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			return nil, broken(err)
		}
		if record.Summary != nil {
			slices.SortFunc(results, func(a, b CaseResult) int { return cmp.Compare(a.Index, b.Index) })
			record.Summary.Results = results
			return record.Summary, nil
		}
		if record.Verdict == "" { // each case has one
			return nil, foreign(resp, c.base)
		}
		if err := handle(record.CaseResult); err != nil {
			return nil, err
		}
	}
}

func batchSubmission(ctx context.Context, b Batch, in Input) call {
	if b.IdempotencyKey == "" {
		b.IdempotencyKey = "go-" + rand.Text()
	}
	what := call{operation: "batch", method: http.MethodPost, idempotent: true}
	var err error
	if b.Spec, in, err = in.complete(ctx, b.Spec); err != nil {
		return what.at("", err)
	}
	what.upload, err = newUpload(b, b.Stdin, in)
	if what.upload != nil && in.Folder != "" {
		what.upload.folder, _ = in.Tar.(io.Closer)
	}
	return what.at("/api/v1/exec/batch", err)
}
