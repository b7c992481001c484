package pyexec

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// The statuses of an Execution. A newer server may have others.
const (
	StatusQueued      = "queued"
	StatusRunning     = "running"
	StatusSucceeded   = "succeeded"
	StatusFailed      = "failed"
	StatusTimedOut    = "timed_out"
	StatusOutOfMemory = "out_of_memory"
	StatusKilled      = "killed"
	StatusLost        = "lost"
)

// Execution is one run, as the server tells it: while it runs with the output so far, at its end with the result.
type Execution struct {
	ExecutionID string `json:"execution_id"`
	// SessionID is the Session it ran in; empty: a sandbox of its own.
	SessionID string `json:"session_id"`
	Status    string `json:"status"`
	// ExitCode is nil if it ended by a signal, has not ended, or never ran.
	ExitCode *int `json:"exit_code"`
	// Signal is the name of the signal that ended it ("SIGKILL"); empty if none did.
	Signal string `json:"signal"`
	// Stdout and Stderr are the output as text. Bytes that are not UTF-8 are U+FFFD here; StdoutBase64 and StderrBase64
	// then hold the truth, decoded. StdoutData and StderrData return it in every case.
	Stdout       string `json:"stdout"`
	Stderr       string `json:"stderr"`
	StdoutBase64 []byte `json:"stdout_base64"`
	StderrBase64 []byte `json:"stderr_base64"`
	// Displays are the rich values that its code displayed, in order, each in one or more forms. DisplaysTruncated: forms
	// are missing, because they were too large together; DisplaysDropped counts values that were too many. Events has all.
	Displays          []DisplayForm `json:"displays"`
	DisplaysTruncated bool          `json:"displays_truncated"`
	DisplaysDropped   int64         `json:"displays_dropped"`
	// SessionState is what became of the Session's interpreter (SessionStateKept, …); empty before the end and without a
	// Session.
	SessionState string `json:"session_state"`
	// StdoutBytes and StderrBytes count what was written, kept or not.
	StdoutBytes     int64 `json:"stdout_bytes"`
	StderrBytes     int64 `json:"stderr_bytes"`
	StdoutTruncated bool  `json:"stdout_truncated"`
	StderrTruncated bool  `json:"stderr_truncated"`
	// StartedAt and FinishedAt are zero before.
	CreatedAt  time.Time `json:"created_at"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	// DurationSeconds, CPUSeconds and PeakMemoryBytes are nil while unknown.
	DurationSeconds *float64 `json:"duration_seconds"`
	CPUSeconds      *float64 `json:"cpu_seconds"`
	PeakMemoryBytes *int64   `json:"peak_memory_bytes"`
	Phases          Phases   `json:"phases"`
	Backend         string   `json:"backend"`
	PythonVersion   string   `json:"python_version"`
	// ResolvedRequirements is what was installed ("requests==2.32.3").
	ResolvedRequirements []string   `json:"resolved_requirements"`
	Artifacts            []Artifact `json:"artifacts"`
	// Failure says why a program did not get to run, or was lost; nil when it simply ended.
	Failure *Failure `json:"error"`
	// Attempts counts the starts; more than 1 means that the program may have run more than once.
	Attempts int `json:"attempts"`
	// ImageDigest and MemorySamples are there where the backend has them.
	ImageDigest   string         `json:"image_digest"`
	MemorySamples []MemorySample `json:"memory_samples"`
	// FilesChanged are the files of the session that were made or changed, where Spec.FilesChanged asked; FilesOmitted counts
	// those that are too many to name.
	FilesChanged []Artifact `json:"files_changed,omitempty"`
	FilesOmitted int64      `json:"files_omitted,omitzero"`
}

// DisplayForm is one form of a displayed value. Forms with the same Display are of one value.
type DisplayForm struct {
	// MIME is its type: "text/plain", "text/html", "image/png", ….
	MIME string
	Data []byte
	// Value: it is the value of the code's last expression; else the code displayed it.
	Value bool
	// Display numbers the values from 0.
	Display int
}

type displayFormJSON struct {
	MIME    string  `json:"mime"`
	Data    *string `json:"data,omitempty"`
	Base64  *[]byte `json:"base64,omitempty"`
	Value   bool    `json:"value"`
	Display int     `json:"display"`
}

// UnmarshalJSON reads {"mime","data"|"base64","value","display"}.
func (d *DisplayForm) UnmarshalJSON(raw []byte) error {
	var wire displayFormJSON
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	*d = DisplayForm{MIME: wire.MIME, Value: wire.Value, Display: wire.Display}
	switch {
	case wire.Base64 != nil:
		d.Data = *wire.Base64
	case wire.Data != nil:
		d.Data = []byte(*wire.Data)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d DisplayForm) MarshalJSON() ([]byte, error) {
	wire := displayFormJSON{MIME: d.MIME, Value: d.Value, Display: d.Display}
	if utf8.Valid(d.Data) {
		wire.Data = new(string(d.Data))
	} else {
		wire.Base64 = &d.Data
	}
	return json.Marshal(wire)
}

// Phases holds how long each phase took, in seconds; nil while unknown.
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
	Code string `json:"code"`
	// Phase is "queue", "prepare", "start", "run" or "collect".
	Phase   string `json:"phase"`
	Message string `json:"message"`
}

// MemorySample is one point of the memory curve.
type MemorySample struct {
	OffsetSeconds float64 `json:"offset_seconds"`
	Bytes         int64   `json:"bytes"`
}

// Finished reports whether e has ended: its status is neither queued nor running.
func (e *Execution) Finished() bool {
	return e.Status != "" && e.Status != StatusQueued && e.Status != StatusRunning
}

// StdoutData returns the program's standard output, byte for byte.
func (e *Execution) StdoutData() []byte { return outputData(e.Stdout, e.StdoutBase64) }

// StderrData returns the program's standard error, byte for byte.
func (e *Execution) StderrData() []byte { return outputData(e.Stderr, e.StderrBase64) }

func outputData(text string, truth []byte) []byte {
	if len(truth) > 0 {
		return truth
	}
	return []byte(text)
}

// Backend describes a backend of the server.
type Backend struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Version string `json:"version"`
	Healthy bool   `json:"healthy"`
	Message string `json:"message"`
	// Capacity is how many jobs it can run at once; 0 = no bound of its own.
	Capacity int `json:"capacity"`
	// Capabilities holds what the backend promises, by name, as the server sends it.
	Capabilities map[string]any `json:"capabilities"`
	// Warnings name every default that is not enforced.
	Warnings []string           `json:"warnings"`
	Details  map[string]string  `json:"details"`
	Metrics  map[string]float64 `json:"metrics"`
}

// Health is the server's answer to Health.
type Health struct {
	OK      bool   `json:"ok"`
	Name    string `json:"name"`
	Version string `json:"version"`
}
