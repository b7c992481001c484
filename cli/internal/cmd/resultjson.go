package cmd

import (
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

// summary is an Execution without its output, as the HTTP API has it in lists: every field always there, null when
// unknown. The vectors in testdata/wire hold it to that.
type summary struct {
	ExecutionID          string              `json:"execution_id"`
	Status               executor.Status     `json:"status"`
	ExitCode             *int                `json:"exit_code"`
	Signal               *string             `json:"signal"`
	StdoutBytes          int64               `json:"stdout_bytes"`
	StderrBytes          int64               `json:"stderr_bytes"`
	StdoutTruncated      bool                `json:"stdout_truncated"`
	StderrTruncated      bool                `json:"stderr_truncated"`
	Attempts             int                 `json:"attempts"`
	CreatedAt            *time.Time          `json:"created_at"`
	StartedAt            *time.Time          `json:"started_at"`
	FinishedAt           *time.Time          `json:"finished_at"`
	DurationSeconds      *float64            `json:"duration_seconds"`
	CPUSeconds           *float64            `json:"cpu_seconds"`
	PeakMemoryBytes      *int64              `json:"peak_memory_bytes"`
	Phases               resultPhases        `json:"phases"`
	Backend              *string             `json:"backend"`
	PythonVersion        *string             `json:"python_version"`
	ResolvedRequirements []string            `json:"resolved_requirements"`
	Artifacts            []executor.Artifact `json:"artifacts"`
	Error                *resultError        `json:"error"`
	MemorySamples        []memorySample      `json:"memory_samples,omitempty"`
	ImageDigest          string              `json:"image_digest,omitempty"`
}

// result is an Execution with its output.
type result struct {
	summary
	Stdout       string `json:"stdout"`
	StdoutBase64 []byte `json:"stdout_base64"`
	Stderr       string `json:"stderr"`
	StderrBase64 []byte `json:"stderr_base64"`
}

type memorySample struct {
	OffsetSeconds float64 `json:"offset_seconds"`
	Bytes         int64   `json:"bytes"`
}

type resultPhases struct {
	Queue   *float64 `json:"queue_seconds"`
	Prepare *float64 `json:"prepare_seconds"`
	Run     *float64 `json:"run_seconds"`
	Collect *float64 `json:"collect_seconds"`
}

type resultError struct {
	Code    executor.Code   `json:"code"`
	Phase   *executor.Phase `json:"phase"`
	Message string          `json:"message"`
}

// resultOf builds the JSON form of e with its output.
func resultOf(e executor.Execution, stdout, stderr []byte) result {
	return result{
		summary: summaryOf(e), Stdout: string(stdout), Stderr: string(stderr),
		StdoutBase64: unlessText(stdout), StderrBase64: unlessText(stderr),
	}
}

// unlessText returns bytes that are not UTF-8: as text they have U+FFFD where they are wrong, so the truth goes beside.
func unlessText(b []byte) []byte {
	if utf8.Valid(b) {
		return nil
	}
	return b
}

func summaryOf(e executor.Execution) summary {
	s := summary{
		ExecutionID: e.ID, Status: e.Status, Backend: known(e.Backend), Attempts: e.Attempts,
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes,
		CreatedAt: moment(e.CreatedAt), StartedAt: moment(e.StartedAt), FinishedAt: moment(e.FinishedAt),
	}
	if e.Started != nil {
		s.PythonVersion = known(e.Started.PythonVersion)
		s.ResolvedRequirements = append([]string{}, e.Started.Requirements...)
	}
	if e.Result != nil {
		s.end(e.Result, !e.StartedAt.IsZero())
	}
	return s
}

func (s *summary) end(r *executor.Result, started bool) {
	s.ExitCode, s.Signal = r.ExitCode, known(r.Signal)
	s.StdoutBytes, s.StderrBytes = r.StdoutBytes, r.StderrBytes
	s.StdoutTruncated, s.StderrTruncated = r.StdoutTruncated, r.StderrTruncated
	s.Phases = resultPhases{seconds(r.Phases.Queue), seconds(r.Phases.Prepare), seconds(r.Phases.Run), seconds(r.Phases.Collect)}
	if started {
		s.DurationSeconds = seconds(r.Wall)
		if r.CPU >= 0 {
			s.CPUSeconds = seconds(r.CPU)
		}
	}
	s.PeakMemoryBytes = known(r.PeakMemoryBytes)
	if r.PythonVersion != "" {
		s.PythonVersion = &r.PythonVersion
	}
	if started || r.Requirements != nil {
		s.ResolvedRequirements = append([]string{}, r.Requirements...)
	}
	s.Artifacts = append([]executor.Artifact{}, r.Artifacts...)
	if f := r.Failure; f != nil {
		s.Error = &resultError{f.Code, known(f.Phase), f.Message}
	}
	for _, m := range r.MemorySamples {
		s.MemorySamples = append(s.MemorySamples, memorySample{m.Offset.Seconds(), m.Bytes})
	}
	s.ImageDigest = r.ImageDigest
}

func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
