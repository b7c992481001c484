package apijson

import (
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

// Result is an Execution with its output: as it ended, or so far.
type Result struct {
	Head
	Output
	Tail
}

// Summary is a Result without the output: in lists, and in the Event finished.
type Summary struct {
	Head
	Tail
}

// Head is a Result before its output.
type Head struct {
	ExecutionID string          `json:"execution_id"`
	SessionID   *string         `json:"session_id"`
	Status      executor.Status `json:"status"`
	ExitCode    *int            `json:"exit_code"`
	Signal      *string         `json:"signal"`
}

// Output is the output of a Result.
type Output struct {
	// Stdout and Stderr are text: a byte that is not UTF-8 is U+FFFD, and the truth is in the base64, which is null
	// otherwise.
	Stdout       string `json:"stdout"`
	Stderr       string `json:"stderr"`
	StdoutBase64 []byte `json:"stdout_base64"`
	StderrBase64 []byte `json:"stderr_base64"`
	// Displays are the forms of what was displayed, in the order of the log, at most MaxDisplayBytes of them.
	Displays []Display `json:"displays"`
	// DisplaysTruncated: forms are missing, here or already in the log.
	DisplaysTruncated bool `json:"displays_truncated"`
}

// Tail is a Result behind its output.
type Tail struct {
	StdoutBytes          int64          `json:"stdout_bytes"`
	StderrBytes          int64          `json:"stderr_bytes"`
	StdoutTruncated      bool           `json:"stdout_truncated"`
	StderrTruncated      bool           `json:"stderr_truncated"`
	DisplaysDropped      int64          `json:"displays_dropped"`
	SessionState         *SessionState  `json:"session_state"`
	Attempts             int            `json:"attempts"`
	CreatedAt            *time.Time     `json:"created_at"`
	StartedAt            *time.Time     `json:"started_at"`
	FinishedAt           *time.Time     `json:"finished_at"`
	DurationSeconds      *float64       `json:"duration_seconds"`
	CPUSeconds           *float64       `json:"cpu_seconds"`
	PeakMemoryBytes      *int64         `json:"peak_memory_bytes"`
	Phases               Phases         `json:"phases"`
	Backend              *string        `json:"backend"`
	PythonVersion        *string        `json:"python_version"`
	ResolvedRequirements []string       `json:"resolved_requirements"`
	Artifacts            []Artifact     `json:"artifacts"`
	Error                *Failure       `json:"error"`
	MemorySamples        []MemorySample `json:"memory_samples,omitempty"`
	FilesChanged         []Artifact     `json:"files_changed,omitempty"`
	FilesOmitted         int64          `json:"files_omitted,omitempty"`
	ImageDigest          string         `json:"image_digest,omitempty"`
}

// Phases holds how long each phase took, in seconds; null before the end.
type Phases struct {
	QueueSeconds   *float64 `json:"queue_seconds"`
	PrepareSeconds *float64 `json:"prepare_seconds"`
	RunSeconds     *float64 `json:"run_seconds"`
	CollectSeconds *float64 `json:"collect_seconds"`
}

// Artifact is a file that was kept.
type Artifact struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

// Failure says why a program did not get to run, or was lost.
type Failure struct {
	Code    executor.Code   `json:"code"`
	Phase   *executor.Phase `json:"phase"`
	Message string          `json:"message"`
}

// MemorySample is one point of the memory curve.
type MemorySample struct {
	OffsetSeconds float64 `json:"offset_seconds"`
	Bytes         int64   `json:"bytes"`
}

// SessionState is executor.SessionState with a word for "kept", which is empty there.
type SessionState string

// SessionKept is the SessionState of an Execution that left its Session's interpreter as a program may.
const SessionKept SessionState = "kept"

// StateOf returns the word for s.
func StateOf(s executor.SessionState) SessionState {
	if s == executor.SessionStateKept {
		return SessionKept
	}
	return SessionState(s)
}

// ResultOf returns e with its whole output.
func ResultOf(e executor.Execution, stdout, stderr []byte, displays []executor.Display) Result {
	r := Result{Head: HeadOf(e), Tail: TailOf(e), Output: Output{
		Stdout: string(stdout), Stderr: string(stderr), StdoutBase64: unlessText(stdout), StderrBase64: unlessText(stderr),
		Displays: []Display{},
	}}
	var c Collector
	for _, d := range displays {
		r.Displays = append(r.Displays, c.Add(d)...)
	}
	r.DisplaysTruncated = c.Truncated
	return r
}

// SummaryOf returns e without its output.
func SummaryOf(e executor.Execution) Summary { return Summary{HeadOf(e), TailOf(e)} }

// HeadOf returns what stands before the output.
func HeadOf(e executor.Execution) Head {
	h := Head{ExecutionID: e.ID, SessionID: known(e.Spec.Session), Status: e.Status}
	if e.Result != nil {
		h.ExitCode = e.Result.ExitCode
		h.Signal = known(e.Result.Signal)
	}
	return h
}

// TailOf returns what stands behind the output.
func TailOf(e executor.Execution) Tail {
	t := Tail{
		StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes, Attempts: e.Attempts,
		CreatedAt: instant(e.CreatedAt), StartedAt: instant(e.StartedAt), FinishedAt: instant(e.FinishedAt),
		Backend: known(e.Backend),
	}
	if s := e.Started; s != nil {
		t.PythonVersion = known(s.PythonVersion)
		t.ResolvedRequirements = list0(s.Requirements)
	}
	if e.Result != nil {
		t.end(e.Result, !e.StartedAt.IsZero(), e.Spec.Session != "")
	}
	return t
}

// end fills in what is known at the end.
func (t *Tail) end(r *executor.Result, started, inSession bool) {
	t.StdoutBytes, t.StderrBytes = r.StdoutBytes, r.StderrBytes
	t.StdoutTruncated, t.StderrTruncated = r.StdoutTruncated, r.StderrTruncated
	t.DisplaysDropped = r.DisplaysDropped
	if inSession {
		t.SessionState = new(StateOf(r.SessionState))
	}
	if started {
		if r.Wall > 0 || r.Status != executor.StatusLost { // when a program ended that nobody watched is not known
			t.DurationSeconds = seconds(r.Wall)
		}
		if r.CPU >= 0 {
			t.CPUSeconds = seconds(r.CPU)
		}
	}
	if r.PeakMemoryBytes > 0 {
		t.PeakMemoryBytes = &r.PeakMemoryBytes
	}
	t.Phases = Phases{seconds(r.Phases.Queue), seconds(r.Phases.Prepare), seconds(r.Phases.Run), seconds(r.Phases.Collect)}
	if r.PythonVersion != "" {
		t.PythonVersion = &r.PythonVersion
	}
	if started || r.Requirements != nil {
		t.ResolvedRequirements = list0(r.Requirements)
	}
	t.Artifacts = make([]Artifact, len(r.Artifacts))
	for i, a := range r.Artifacts {
		t.Artifacts[i] = Artifact(a)
	}
	if f := r.Failure; f != nil {
		t.Error = &Failure{Code: f.Code, Phase: known(f.Phase), Message: f.Message}
		if f.Code == executor.Internal {
			t.Error.Message = "internal error"
		}
	}
	for _, m := range r.MemorySamples {
		t.MemorySamples = append(t.MemorySamples, MemorySample{m.Offset.Seconds(), m.Bytes})
	}
	for _, f := range r.FilesChanged {
		t.FilesChanged = append(t.FilesChanged, Artifact(f))
	}
	t.FilesOmitted = r.FilesOmitted
	t.ImageDigest = r.ImageDigest
}

// unlessText returns bytes that are not UTF-8: as text they have U+FFFD where they are wrong, so the truth goes beside.
func unlessText(b []byte) []byte {
	if utf8.Valid(b) {
		return nil
	}
	return b
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
