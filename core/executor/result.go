package executor

import "time"

// Phase is a part of an Execution's life.
type Phase string

// The phases.
const (
	PhaseNone    Phase = ""
	PhaseQueue   Phase = "queue"
	PhasePrepare Phase = "prepare"
	PhaseStart   Phase = "start"
	PhaseRun     Phase = "run"
	PhaseCollect Phase = "collect"
)

// Failure says why a program was not started, which limit it exceeded, or why its Artifacts are not whole. It is data, not an error: it is
// in a Result with Status failed, timed_out, out_of_memory, lost or killed.
type Failure struct {
	// Code: invalid (bad tar, bad requirement, an argv that cannot be executed), not_found (an argv that does not exist),
	// unavailable (lost), exhausted (a limit or a bound), internal.
	Code    Code   `json:"code"`
	Phase   Phase  `json:"phase"`
	Message string `json:"message"`
	// Field names the part of the request that is at fault, as FieldError.Field does: "tar", "requirements_txt",
	// "entrypoint", …; empty if none or unknown.
	Field string `json:"field,omitzero"`
}

// Phases holds how long each phase took.
type Phases struct {
	Queue   time.Duration `json:"queue"`
	Prepare time.Duration `json:"prepare"`
	Run     time.Duration `json:"run"`
	Collect time.Duration `json:"collect"`
}

// MaxFilesChanged is the maximum number of files in Result.FilesChanged.
const MaxFilesChanged = 100

// MaxArtifactNames bounds the bytes of the names of an Execution's Artifacts, all together.
const MaxArtifactNames = 4 << 20

// Artifact is a collected file. In Result.FilesChanged it is a file that is only named.
type Artifact struct {
	// Path is relative to the work folder, with slashes.
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

// MemorySample is one point of the memory curve.
type MemorySample struct {
	// Offset is the time since Started.
	Offset time.Duration `json:"offset"`
	Bytes  int64         `json:"bytes"`
}

// Result is the outcome of an Execution. Its output is in the log.
type Result struct {
	// Status is terminal.
	Status Status `json:"status"`
	// ExitCode is the exit code of the program; nil if it ended by a signal or never ran.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the name of the signal that ended the program ("SIGKILL"); empty if none did.
	Signal string `json:"signal,omitzero"`
	// Failure is set when the user's input was at fault, when the program reached its limit of time, memory or disk, or when the
	// Execution was lost. It is nil when the program just ended.
	Failure *Failure `json:"failure,omitempty"`
	// Hint names the usual cause of the end of a program that has failed, and what to do; empty if none is known. The Engine sets it.
	Hint string `json:"hint,omitzero"`
	// Wall is the time from Started to the program's end.
	Wall time.Duration `json:"wall"`
	// CPU is user and system time of all its processes; negative = unknown.
	CPU time.Duration `json:"cpu"`
	// PeakMemoryBytes is the highest memory use of all processes of the program together, or of its main process where Info says
	// so; 0 = unknown.
	PeakMemoryBytes int64 `json:"peak_memory_bytes"`
	// PeakResidentBytes is the highest resident memory (RSS) of the main process, or of a child that it has waited for if that had more, as
	// getrusage(2) gives it (ru_maxrss): the kernel counts what the process before an execve had, too. Pages that it shares with other
	// processes count, so it may be more than PeakMemoryBytes. In a Session it is that of the interpreter since its start. 0 = unknown.
	PeakResidentBytes int64  `json:"peak_resident_bytes,omitzero"`
	Phases            Phases `json:"phases"`
	// StdoutBytes and StderrBytes count all bytes written, kept or not.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutTruncated and StderrTruncated: Limits.OutputBytes cut the stream.
	StdoutTruncated bool `json:"stdout_truncated"`
	StderrTruncated bool `json:"stderr_truncated"`
	// PythonVersion is the full version of the Python that ran ("3.12.1"); empty if none ran or it is unknown.
	PythonVersion string `json:"python_version,omitzero"`
	// Requirements is the resolved list ("requests==2.32.3"), sorted.
	Requirements []string `json:"requirements,omitempty"`
	// ImageDigest is the image's digest, for backends with images.
	ImageDigest string `json:"image_digest,omitzero"`
	// SessionState is the state of the Session's interpreter after the Execution.
	SessionState SessionState `json:"session_state,omitzero"`
	// DisplaysDropped counts Displays beyond MaxDisplays.
	DisplaysDropped int64          `json:"displays_dropped,omitzero"`
	MemorySamples   []MemorySample `json:"memory_samples,omitempty"`
	// LogPath is the file of the host that holds what an allow-listed script wrote; empty for everything else.
	LogPath string `json:"log_path,omitzero"`
	// Artifacts lists what was collected, in collection order.
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// FilesChanged are the regular files of the Session's work folder that were made or changed since the end of the last Execution
	// that asked for them; if there was none, since the beginning of this one. They are sorted by path, at most MaxFilesChanged. A
	// link to such a file counts, too. Hidden files, the content of hidden folders (a name that begins with a dot) and __pycache__
	// are left out. In a large folder a backend may compare the times of the files only. With more than 10,000 files none is named.
	FilesChanged []Artifact `json:"files_changed,omitempty"`
	// FilesOmitted counts the changed files beyond MaxFilesChanged.
	FilesOmitted int64 `json:"files_omitted,omitzero"`
}

// HitLimit returns the Failure of a program that ran and ended because its time was over or its memory or disk was full; Field names the
// limit. It returns nil for every other program.
func (r Result) HitLimit() *Failure {
	f := r.Failure
	ran := r.Status == StatusTimedOut || (r.Status == StatusFailed || r.Status == StatusOutOfMemory) && (r.ExitCode != nil || r.Signal != "")
	if !ran || f == nil || f.Code != Exhausted || f.Phase != PhaseRun {
		return nil
	}
	return f
}
