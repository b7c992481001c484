package apijson

import (
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// ResultOf returns e with its whole output.
func ResultOf(e executor.Execution, stdout, stderr []byte, displays []executor.Display) pyexec.Execution {
	out := ExecutionOf(e)
	out.Stdout, out.Stderr, out.StdoutBase64, out.StderrBase64 = string(stdout), string(stderr), unlessText(stdout), unlessText(stderr)
	var c Collector
	out.Displays = []pyexec.DisplayForm{}
	for _, d := range displays {
		out.Displays = append(out.Displays, c.Add(d)...)
	}
	out.DisplaysTruncated = c.Truncated
	return out
}

// ExecutionOf returns e without its output.
func ExecutionOf(e executor.Execution) pyexec.Execution {
	out := pyexec.Execution{
		ExecutionID: e.ID, SessionID: e.Spec.Session, Status: string(e.Status), StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes,
		Attempts: e.Attempts, CreatedAt: e.CreatedAt.UTC(), StartedAt: e.StartedAt.UTC(), FinishedAt: e.FinishedAt.UTC(), Backend: e.Backend,
	}
	if s := e.Started; s != nil {
		out.PythonVersion, out.Start, out.ResolvedRequirements = s.PythonVersion, string(s.Start), notNil(s.Requirements)
	}
	if e.Result != nil {
		end(&out, e.Result, !e.StartedAt.IsZero())
	}
	return out
}

// PageOf returns the API's form of a page of a list.
func PageOf(list []executor.Execution, next string) pyexec.Page {
	return pyexec.Page{Executions: convert(list, ExecutionOf), Next: next}
}

// end sets what is known at the end of an Execution.
func end(out *pyexec.Execution, r *executor.Result, started bool) {
	out.ExitCode, out.Signal, out.Hint, out.ImageDigest = r.ExitCode, r.Signal, r.Hint, r.ImageDigest
	out.StdoutBytes, out.StderrBytes = r.StdoutBytes, r.StderrBytes
	out.StdoutTruncated, out.StderrTruncated = r.StdoutTruncated, r.StderrTruncated
	out.DisplaysDropped, out.FilesOmitted = r.DisplaysDropped, r.FilesOmitted
	if out.SessionID != "" {
		out.SessionState = stateOf(r.SessionState)
	}
	if started {
		if r.Wall > 0 || r.Status != executor.StatusLost { // the end of a lost program is unknown if nobody watched it
			out.DurationSeconds = secondsOf(r.Wall)
		}
		if r.CPU >= 0 {
			out.CPUSeconds = secondsOf(r.CPU)
		}
	}
	if r.PeakMemoryBytes > 0 {
		out.PeakMemoryBytes = &r.PeakMemoryBytes
	}
	if r.PeakResidentBytes > 0 {
		out.PeakResidentBytes = &r.PeakResidentBytes
	}
	out.Phases = pyexec.Phases{QueueSeconds: secondsOf(r.Phases.Queue), PrepareSeconds: secondsOf(r.Phases.Prepare),
		RunSeconds: secondsOf(r.Phases.Run), CollectSeconds: secondsOf(r.Phases.Collect)}
	if r.PythonVersion != "" {
		out.PythonVersion = r.PythonVersion
	}
	if started || r.Requirements != nil {
		out.ResolvedRequirements = notNil(r.Requirements)
	}
	out.Artifacts = make([]pyexec.Artifact, len(r.Artifacts))
	for i, a := range r.Artifacts {
		out.Artifacts[i] = pyexec.Artifact(a)
	}
	if f := r.Failure; f != nil {
		out.Failure = &pyexec.Failure{Code: string(f.Code), Phase: string(f.Phase), Message: f.Message, Field: f.Field}
		if f.Code == executor.Internal {
			out.Failure.Message = "internal error"
		}
	}
	for _, m := range r.MemorySamples {
		out.MemorySamples = append(out.MemorySamples, pyexec.MemorySample{OffsetSeconds: m.Offset.Seconds(), Bytes: m.Bytes})
	}
	for _, f := range r.FilesChanged {
		out.FilesChanged = append(out.FilesChanged, pyexec.Artifact(f))
	}
}

// stateOf returns the API's name for s.
func stateOf(s executor.SessionState) string {
	if s == executor.SessionStateKept {
		return pyexec.SessionStateKept
	}
	return string(s)
}

// ToExecution returns e without its output. Owner, Spec (but Session) and LastSeq are not in the API and stay zero.
func ToExecution(e pyexec.Execution) executor.Execution {
	out := executor.Execution{
		ID: e.ExecutionID, Status: executor.Status(e.Status), Backend: e.Backend, Attempts: e.Attempts,
		CreatedAt: e.CreatedAt, StartedAt: e.StartedAt, FinishedAt: e.FinishedAt,
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes, Spec: executor.Spec{Session: e.SessionID},
	}
	if !e.StartedAt.IsZero() {
		out.Started = &executor.Started{PythonVersion: e.PythonVersion, Start: executor.StartKind(e.Start), Requirements: e.ResolvedRequirements}
	}
	if e.Finished() {
		r := toResult(e)
		out.Result = &r
	}
	return out
}

func toResult(e pyexec.Execution) executor.Result {
	r := executor.Result{
		Status: executor.Status(e.Status), ExitCode: e.ExitCode, Signal: e.Signal, Hint: e.Hint,
		Wall: toDuration(e.DurationSeconds, 0), CPU: toDuration(e.CPUSeconds, -1),
		Phases: executor.Phases{
			Queue: toDuration(e.Phases.QueueSeconds, 0), Prepare: toDuration(e.Phases.PrepareSeconds, 0),
			Run: toDuration(e.Phases.RunSeconds, 0), Collect: toDuration(e.Phases.CollectSeconds, 0),
		},
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes,
		StdoutTruncated: e.StdoutTruncated, StderrTruncated: e.StderrTruncated,
		PythonVersion: e.PythonVersion, Requirements: e.ResolvedRequirements, ImageDigest: e.ImageDigest,
		DisplaysDropped: e.DisplaysDropped, FilesOmitted: e.FilesOmitted,
	}
	if e.PeakMemoryBytes != nil {
		r.PeakMemoryBytes = *e.PeakMemoryBytes
	}
	if e.PeakResidentBytes != nil {
		r.PeakResidentBytes = *e.PeakResidentBytes
	}
	if e.SessionState != pyexec.SessionStateKept {
		r.SessionState = executor.SessionState(e.SessionState)
	}
	if f := e.Failure; f != nil {
		r.Failure = &executor.Failure{Code: executor.Code(f.Code), Phase: executor.Phase(f.Phase), Message: f.Message, Field: f.Field}
	}
	for _, a := range e.Artifacts {
		r.Artifacts = append(r.Artifacts, executor.Artifact(a))
	}
	for _, f := range e.FilesChanged {
		r.FilesChanged = append(r.FilesChanged, executor.Artifact(f))
	}
	for _, m := range e.MemorySamples {
		r.MemorySamples = append(r.MemorySamples, executor.MemorySample{Offset: seconds(m.OffsetSeconds), Bytes: m.Bytes})
	}
	return r
}

// unlessText returns b if it is not UTF-8, else nil.
func unlessText(b []byte) []byte {
	if utf8.Valid(b) {
		return nil
	}
	return b
}

// notNil returns list, so that an empty list is [] in JSON instead of null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func secondsOf(d time.Duration) *float64 { return new(d.Seconds()) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// toDuration returns unknown for nil.
func toDuration(s *float64, unknown time.Duration) time.Duration {
	if s == nil {
		return unknown
	}
	return seconds(*s)
}
