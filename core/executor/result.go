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

// Failure says why a program did not get to run or its result is not whole. It is data, not an error: it stands in a
// Result with Status failed (or lost, killed).
type Failure struct {
	// Code: invalid (bad tar, bad requirement, an argv that cannot be executed), not_found (an argv that does not exist),
	// unavailable (lost), exhausted, internal.
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

// MaxFilesChanged is how many files Result.FilesChanged has at most.
const MaxFilesChanged = 100

// Artifact is one collected file, or in Result.FilesChanged one that is only named.
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

// Result is how an Execution ended. Output bytes are in the log, not here.
type Result struct {
	// Status is terminal.
	Status Status `json:"status"`
	// ExitCode is the program's; nil if it ended by a signal or never ran.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the name of the signal that ended it ("SIGKILL"); empty if none did.
	Signal string `json:"signal,omitzero"`
	// Failure is set when our part failed on the user's input, or we lost it; nil when the program simply ended.
	Failure *Failure `json:"failure,omitempty"`
	// Wall is the time from Started to the program's end.
	Wall time.Duration `json:"wall"`
	// CPU is user and system time of all its processes; negative = unknown.
	CPU time.Duration `json:"cpu"`
	// PeakMemoryBytes is the highest memory use of all its processes together, or of the main process where Info says
	// so; 0 = unknown.
	PeakMemoryBytes int64  `json:"peak_memory_bytes"`
	Phases          Phases `json:"phases"`
	// StdoutBytes and StderrBytes count all bytes written, kept or not.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutTruncated and StderrTruncated: Limits.OutputBytes cut the stream.
	StdoutTruncated bool `json:"stdout_truncated"`
	StderrTruncated bool `json:"stderr_truncated"`
	// PythonVersion is the full version that ran ("3.12.1"); empty if none did or it is unknown.
	PythonVersion string `json:"python_version,omitzero"`
	// Requirements is the resolved list ("requests==2.32.3"), sorted.
	Requirements []string `json:"requirements,omitempty"`
	// ImageDigest is the image's digest, for backends with images.
	ImageDigest string `json:"image_digest,omitzero"`
	// SessionState is what became of the Session's interpreter; empty: kept, or no Session.
	SessionState SessionState `json:"session_state,omitzero"`
	// DisplaysDropped counts Displays beyond MaxDisplays.
	DisplaysDropped int64          `json:"displays_dropped,omitzero"`
	MemorySamples   []MemorySample `json:"memory_samples,omitempty"`
	// LogPath is the file of the host that holds what an allow-listed script wrote; empty for everything else.
	LogPath string `json:"log_path,omitzero"`
	// Artifacts lists what was collected, in collection order.
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// FilesChanged are the regular files of the Session's work folder that were made or changed, by whomever, since the
	// Execution before that asked for them ended, or, if there was none, since this one began; sorted by path, at most
	// MaxFilesChanged. A link to such a file in the folder is one, too. Hidden files, what lies in hidden folders (a name that
	// begins with a dot) and __pycache__ are left out. Where the folder holds more files than a backend remembers, it may go by
	// the times of the files; of more than 10,000 none is named.
	FilesChanged []Artifact `json:"files_changed,omitempty"`
	// FilesOmitted counts those beyond MaxFilesChanged.
	FilesOmitted int64 `json:"files_omitted,omitzero"`
}
