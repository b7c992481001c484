package httpfrontend

import (
	"encoding/json"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// resultHead and resultTail are the Result of the API around its output. Together with the output's members they are
// Result below; a test compares.
type resultHead struct {
	ExecutionID string          `json:"execution_id"`
	Status      executor.Status `json:"status"`
	ExitCode    *int            `json:"exit_code"`
	Signal      *string         `json:"signal"`
}

type resultTail struct {
	StdoutBytes          int64          `json:"stdout_bytes"`
	StderrBytes          int64          `json:"stderr_bytes"`
	StdoutTruncated      bool           `json:"stdout_truncated"`
	StderrTruncated      bool           `json:"stderr_truncated"`
	Attempts             int            `json:"attempts"`
	CreatedAt            *time.Time     `json:"created_at"`
	StartedAt            *time.Time     `json:"started_at"`
	FinishedAt           *time.Time     `json:"finished_at"`
	DurationSeconds      *float64       `json:"duration_seconds"`
	CPUSeconds           *float64       `json:"cpu_seconds"`
	PeakMemoryBytes      *int64         `json:"peak_memory_bytes"`
	Phases               resultPhases   `json:"phases"`
	Backend              *string        `json:"backend"`
	PythonVersion        *string        `json:"python_version"`
	ResolvedRequirements []string       `json:"resolved_requirements"`
	Artifacts            []artifact     `json:"artifacts"`
	Error                *resultError   `json:"error"`
	MemorySamples        []memorySample `json:"memory_samples,omitempty"`
	ImageDigest          string         `json:"image_digest,omitempty"`
}

type resultPhases struct {
	QueueSeconds   *float64 `json:"queue_seconds"`
	PrepareSeconds *float64 `json:"prepare_seconds"`
	RunSeconds     *float64 `json:"run_seconds"`
	CollectSeconds *float64 `json:"collect_seconds"`
}

type artifact struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

type resultError struct {
	Code    executor.Code   `json:"code"`
	Phase   *executor.Phase `json:"phase"`
	Message string          `json:"message"`
}

type memorySample struct {
	OffsetSeconds float64 `json:"offset_seconds"`
	Bytes         int64   `json:"bytes"`
}

// headOf and tailOf turn an Execution into its JSON. What is not known (yet) is null.
func headOf(e executor.Execution) resultHead {
	h := resultHead{ExecutionID: e.ID, Status: e.Status}
	if e.Result != nil {
		h.ExitCode = e.Result.ExitCode
		h.Signal = known(e.Result.Signal)
	}
	return h
}

func tailOf(e executor.Execution) resultTail {
	t := resultTail{
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes, Attempts: e.Attempts,
		CreatedAt: instant(e.CreatedAt), StartedAt: instant(e.StartedAt), FinishedAt: instant(e.FinishedAt),
		Backend: known(e.Backend),
	}
	if s := e.Started; s != nil {
		t.PythonVersion = known(s.PythonVersion)
		t.ResolvedRequirements = list0(s.Requirements)
	}
	r := e.Result
	if r == nil {
		return t
	}
	t.StdoutBytes, t.StderrBytes = r.StdoutBytes, r.StderrBytes
	t.StdoutTruncated, t.StderrTruncated = r.StdoutTruncated, r.StderrTruncated
	started := !e.StartedAt.IsZero()
	if started {
		t.DurationSeconds = seconds(r.Wall)
		if r.CPU >= 0 {
			t.CPUSeconds = seconds(r.CPU)
		}
	}
	if r.PeakMemoryBytes > 0 {
		t.PeakMemoryBytes = &r.PeakMemoryBytes
	}
	t.Phases = resultPhases{seconds(r.Phases.Queue), seconds(r.Phases.Prepare), seconds(r.Phases.Run), seconds(r.Phases.Collect)}
	if r.PythonVersion != "" {
		t.PythonVersion = &r.PythonVersion
	}
	if started || r.Requirements != nil {
		t.ResolvedRequirements = list0(r.Requirements)
	}
	t.Artifacts = make([]artifact, len(r.Artifacts))
	for i, a := range r.Artifacts {
		t.Artifacts[i] = artifact(a)
	}
	if f := r.Failure; f != nil {
		t.Error = &resultError{Code: f.Code, Phase: known(f.Phase), Message: f.Message}
		if f.Code == executor.Internal {
			t.Error.Message = "internal error"
		}
	}
	for _, m := range r.MemorySamples {
		t.MemorySamples = append(t.MemorySamples, memorySample{m.Offset.Seconds(), m.Bytes})
	}
	t.ImageDigest = r.ImageDigest
	return t
}

// summary is the Result without its output: in lists, and in the Event finished.
func summary(e executor.Execution) (json.RawMessage, error) {
	head, tail, err := marshalParts(e)
	if err != nil {
		return nil, err
	}
	return append(append(head, ','), tail...), nil
}

// marshalParts returns the members before the output with the opening brace, and those behind it with the closing one.
func marshalParts(e executor.Execution) (head, tail []byte, err error) {
	if head, err = json.Marshal(headOf(e)); err != nil {
		return nil, nil, err
	}
	if tail, err = json.Marshal(tailOf(e)); err != nil {
		return nil, nil, err
	}
	return head[:len(head)-1], tail[1:], nil
}

// known returns nil for the zero value, which stands for "unknown" in the contract.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func seconds(d time.Duration) *float64 { return new(d.Seconds()) }

// list0 is a list that is known, even if it is empty.
func list0(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}
