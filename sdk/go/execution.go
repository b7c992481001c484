package pyexec

import (
	"bytes"
	"encoding/json"
	"time"
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

// Execution is one run as the server reports it: with the output so far while it runs, with its result at the end. A member
// that the server does not know yet is zero here and null in JSON.
type Execution struct {
	ExecutionID string `json:"execution_id" doc:"Id of the execution, \"exe_…\"."`
	SessionID   string `json:"session_id" nullable:"true" doc:"Session of the execution. null: it has a sandbox of its own."`
	Status      string `json:"status" enum:"queued,running,succeeded,failed,timed_out,out_of_memory,killed,lost" doc:"All but queued and running are final."`
	ExitCode    *int   `json:"exit_code" doc:"Exit code of the program. null if the program has not ended, never ran, or ended by a signal."`
	Signal      string `json:"signal" nullable:"true" doc:"Name of the signal that ended the program, \"SIGKILL\"."`

	// StdoutData and StderrData return the output byte for byte, in every case.
	Stdout       string `json:"stdout" part:"output" doc:"Standard output so far, as text. Bytes that are not UTF-8 are replaced by U+FFFD."`
	Stderr       string `json:"stderr" part:"output" doc:"Standard error so far, as text. Bytes that are not UTF-8 are replaced by U+FFFD."`
	StdoutBase64 []byte `json:"stdout_base64" part:"output" nullable:"true" doc:"The bytes of stdout. null if they are UTF-8."`
	StderrBase64 []byte `json:"stderr_base64" part:"output" nullable:"true" doc:"The bytes of stderr. null if they are UTF-8."`
	// Events has every form, also those that are missing here.
	Displays          []DisplayForm `json:"displays" part:"output" doc:"Values that the code displayed so far, in order, each in every form it has. A form has data or base64. At most 8 MiB of forms; the events have all."`
	DisplaysTruncated bool          `json:"displays_truncated" part:"output" doc:"Whether forms are missing in displays or are cut."`

	StdoutBytes          int64          `json:"stdout_bytes" doc:"Bytes that the program wrote to stdout, kept or not."`
	StderrBytes          int64          `json:"stderr_bytes" doc:"Bytes that the program wrote to stderr, kept or not."`
	StdoutTruncated      bool           `json:"stdout_truncated" doc:"Whether output_bytes cut the stream."`
	StderrTruncated      bool           `json:"stderr_truncated" doc:"Whether output_bytes cut the stream."`
	DisplaysDropped      int64          `json:"displays_dropped" doc:"Number of displayed values beyond the maximum. Nothing keeps them."`
	SessionState         string         `json:"session_state" nullable:"true" enum:"kept,restarted,lost" doc:"State of the session's interpreter after the execution. kept: its names are there. restarted: it did not stop in time; its names are gone, its files are there. lost: it died. null before the end and without a session."`
	Attempts             int            `json:"attempts" doc:"Number of starts. With more than 1 the program may have run more than once."`
	CreatedAt            time.Time      `json:"created_at" nullable:"true" doc:"When the server accepted the execution."`
	StartedAt            time.Time      `json:"started_at" nullable:"true" doc:"When the program started."`
	FinishedAt           time.Time      `json:"finished_at" nullable:"true" doc:"When the execution ended."`
	DurationSeconds      *float64       `json:"duration_seconds" doc:"Time from the start of the program to its end. null if the execution was lost and nobody saw its end."`
	CPUSeconds           *float64       `json:"cpu_seconds" doc:"User and system time of all processes of the program."`
	PeakMemoryBytes      *int64         `json:"peak_memory_bytes" doc:"Highest memory use of all processes of the program together."`
	PeakResidentBytes    *int64         `json:"peak_resident_bytes" doc:"Highest resident memory of the main process, or of a child that it has waited for if that had more (ru_maxrss). Memory that it shares with other processes counts, so it may be more than peak_memory_bytes. In a session: of the interpreter since its start. null if unknown."`
	Phases               Phases         `json:"phases" doc:"Duration of each phase."`
	Backend              string         `json:"backend" nullable:"true" doc:"Name of the backend."`
	PythonVersion        string         `json:"python_version" nullable:"true" doc:"Full version of the interpreter, \"3.12.1\"."`
	Start                string         `json:"start" nullable:"true" doc:"How the program was started: exec (a new process of its interpreter) or fork (a copy of an interpreter that had started already). null before the start."`
	ResolvedRequirements []string       `json:"resolved_requirements" nullable:"true" doc:"Installed requirements, \"requests==2.32.3\"."`
	Artifacts            []Artifact     `json:"artifacts" nullable:"true" doc:"Files that were kept. null before the end."`
	Failure              *Failure       `json:"error" nullable:"true" doc:"Why the program did not run, which limit of time, memory or disk ended it (field names it), or that it was lost. null otherwise."`
	Hint                 string         `json:"hint,omitzero" doc:"Usual cause of the failure of the program, and what to do. Absent if none is known."`
	MemorySamples        []MemorySample `json:"memory_samples,omitempty" doc:"Memory use over time. Present only with sample_interval_seconds."`
	FilesChanged         []Artifact     `json:"files_changed,omitempty" doc:"Present only with files_changed: files of the session that were made or changed since the execution before that asked, without hidden ones, at most 100."`
	FilesOmitted         int64          `json:"files_omitted,omitzero" doc:"Number of changed files beyond those in files_changed."`
	ImageDigest          string         `json:"image_digest,omitzero" doc:"Digest of the image. Present only on backends with images."`
}

// MarshalJSON writes e as the server does.
func (e Execution) MarshalJSON() ([]byte, error) { return encode(e, true) }

// summary is an Execution that is written without its output.
type summary Execution

// MarshalJSON writes s without its output.
func (s summary) MarshalJSON() ([]byte, error) { return encode(s, false) }

// DisplayForm is one form of a displayed value. Forms with the same Display are of one value.
type DisplayForm struct {
	// MIME is the type of the form: "text/plain", "text/html", "image/png", ….
	MIME string
	Data []byte
	// Value reports whether the value is that of the code's last expression; otherwise the code displayed it.
	Value bool
	// Display numbers the values from 0.
	Display int
}

// DisplayFormJSON is a DisplayForm in JSON.
type DisplayFormJSON struct {
	MIME    string  `json:"mime" doc:"Type of the form, \"image/png\"."`
	Data    *string `json:"data,omitempty" doc:"The form, if it is text."`
	Base64  *[]byte `json:"base64,omitempty" doc:"The form, if it is not text."`
	Value   bool    `json:"value" doc:"Whether the value is that of the last expression. Otherwise the code displayed it."`
	Display int     `json:"display" doc:"Number of the value, from 0. All forms of one value have the same."`
}

// UnmarshalJSON reads {"mime","data"|"base64","value","display"}.
func (d *DisplayForm) UnmarshalJSON(raw []byte) error {
	var wire DisplayFormJSON
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
	wire := DisplayFormJSON{MIME: d.MIME, Value: d.Value, Display: d.Display}
	if isText(d.MIME, d.Data) {
		wire.Data = new(string(d.Data))
	} else {
		wire.Base64 = new(notNil(d.Data))
	}
	var b bytes.Buffer
	err := newEncoder(&b).Encode(wire)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Phases holds how long each phase took, in seconds; nil while unknown.
type Phases struct {
	QueueSeconds   *float64 `json:"queue_seconds"`
	PrepareSeconds *float64 `json:"prepare_seconds"`
	RunSeconds     *float64 `json:"run_seconds"`
	CollectSeconds *float64 `json:"collect_seconds"`
}

// Artifact is a file of the work folder.
type Artifact struct {
	Path      string `json:"path" doc:"Path relative to the work folder."`
	SizeBytes int64  `json:"size_bytes"`
}

// Failure says why a program did not run, which limit ended it, or that it was lost.
type Failure struct {
	Code    string `json:"code" enum:"invalid,not_found,conflict,exhausted,unavailable,unauthenticated,denied,unimplemented,purged,internal"`
	Phase   string `json:"phase" nullable:"true" doc:"queue, prepare, start, run or collect."`
	Message string `json:"message"`
	Field   string `json:"field,omitzero" doc:"Part of the request that the failure is about, such as config.memory_mb, if one is known."`
}

// MarshalJSON writes f as the server does.
func (f Failure) MarshalJSON() ([]byte, error) { return encode(f, true) }

// MemorySample is one point of the memory curve.
type MemorySample struct {
	OffsetSeconds float64 `json:"offset_seconds" doc:"Time since started_at."`
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

// Page is a part of a list.
type Page struct {
	Executions []Execution `json:"executions" doc:"Newest first."`
	// Next is empty on the last page.
	Next string `json:"next" nullable:"true" doc:"Value of after for the next page. null: this page is the last."`
}

// MarshalJSON writes p as the server does: its Executions have no output.
func (p Page) MarshalJSON() ([]byte, error) {
	list := make([]summary, len(p.Executions))
	for i, e := range p.Executions {
		list[i] = summary(e)
	}
	return encode(struct {
		Executions []summary `json:"executions"`
		Next       string    `json:"next" nullable:"true"`
	}{list, p.Next}, true)
}

// Accepted is the answer to an asynchronous call.
type Accepted struct {
	ExecutionID string `json:"execution_id"`
}

// Cancelled is the answer to the call that cancels an Execution.
type Cancelled struct {
	Status string `json:"status" enum:"queued,running,succeeded,failed,timed_out,out_of_memory,killed,lost"`
	// Message says why Status is not killed; empty: it is.
	Message string `json:"message,omitzero" doc:"Why the status is not killed. Absent if it is."`
}

// Backend describes a backend of the server.
type Backend struct {
	Name       string `json:"name" doc:"Name in the server's configuration."`
	Type       string `json:"type" doc:"Implementation: uv, docker, …."`
	Version    string `json:"version"`
	Generation int    `json:"generation,omitzero" doc:"Number of starts of the backend's process."`
	Healthy    bool   `json:"healthy" doc:"Whether executions are expected to succeed."`
	Message    string `json:"message,omitzero" doc:"Why the backend is not healthy."`
	Capacity   int    `json:"capacity" doc:"Number of executions that can run at once. 0: the backend has no bound of its own."`
	// Capabilities holds what the backend promises, by name, as the server sends it.
	Capabilities map[string]any     `json:"capabilities"`
	Images       []string           `json:"images,omitempty" doc:"Names of images that are accepted without the capability images."`
	Warnings     []string           `json:"warnings,omitempty" doc:"Defaults that are not enforced on this server."`
	Details      map[string]string  `json:"details,omitempty"`
	Metrics      map[string]float64 `json:"metrics,omitempty"`
}

// Health is the server's answer to Health.
type Health struct {
	OK      bool   `json:"ok"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (e Execution) id() string { return e.ExecutionID }

func (a Accepted) id() string { return a.ExecutionID }
