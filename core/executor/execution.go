package executor

import (
	"io"
	"os"
	"time"
)

// Status is the state of an Execution.
type Status string

// The statuses. Queued and Running are not terminal, all others are.
const (
	StatusUnknown Status = ""
	// StatusQueued: accepted, and not started: it waits for a slot, or is being prepared.
	StatusQueued Status = "queued"
	// StatusRunning: the program has started.
	StatusRunning Status = "running"
	// StatusSucceeded: exit code 0.
	StatusSucceeded Status = "succeeded"
	// StatusFailed: another exit code, a signal of its own, or a failed preparation (Result.Failure says which phase).
	StatusFailed Status = "failed"
	// StatusTimedOut: Limits.Timeout or Limits.CPUTime ended it. Result.Failure.Field says which.
	StatusTimedOut Status = "timed_out"
	// StatusOutOfMemory: Limits.MemoryBytes ended it.
	StatusOutOfMemory Status = "out_of_memory"
	// StatusKilled: Cancel, or a caller that went away, ended it.
	StatusKilled Status = "killed"
	// StatusLost: the server lost it, because a backend or the core died. It may have run. Retryable.
	StatusLost Status = "lost"
)

// Statuses returns every Status but StatusUnknown, in the order of a life.
func Statuses() []Status {
	return []Status{StatusQueued, StatusRunning, StatusSucceeded, StatusFailed, StatusTimedOut, StatusOutOfMemory, StatusKilled, StatusLost}
}

// Terminal reports whether s is the last status of an Execution.
func (s Status) Terminal() bool {
	return s != StatusUnknown && s != StatusQueued && s != StatusRunning
}

// Execution is one run of a Spec, as its owner sees it.
type Execution struct {
	// ID is "exe_" and 26 lower-case letters and digits; ids sort by creation time.
	ID    string `json:"id"`
	Owner string `json:"owner"`
	// Spec as asked for, in brief (Spec.Brief).
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
	// Backend that runs or ran it.
	Backend string `json:"backend,omitzero"`
	// Attempts counts how often it was handed to a backend. With more than 1 the program may have run more than once.
	Attempts  int       `json:"attempts"`
	CreatedAt time.Time `json:"created_at"`
	// StartedAt is when the program started; zero before.
	StartedAt time.Time `json:"started_at,omitzero"`
	// FinishedAt is zero until Status is terminal.
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// Started is the last attempt's Started event; nil before.
	Started *Started `json:"started,omitempty"`
	// StdoutBytes and StderrBytes are the lengths of the output in the log so far.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// LastSeq is the number of its last Event.
	LastSeq uint64 `json:"last_seq"`
	// Result is nil until Status is terminal.
	Result *Result `json:"result,omitempty"`
}

// Filter selects Executions for List. The zero Filter selects the first page of all of the owner's.
type Filter struct {
	// Owner is set by the Engine from the Principal. A Service ignores the value of its caller.
	Owner string
	// Statuses keeps only these; empty: all.
	Statuses []Status
	// After is the id of the last Execution of the page before; empty: start at the newest.
	After string
	// Limit is the maximum size of a page; 0 = 50, at most 500.
	Limit int
}

// Source is a byte stream that can be opened: a Workspace's tar, or a program's standard input.
type Source struct {
	// Open returns the stream from its beginning. A Source that is not Replayable is opened at most once. The caller of Open closes
	// the stream; Close ends a Read that waits.
	Open func() (io.ReadCloser, error)
	// Digest is "sha256:<hex>" of the content when known.
	Digest string
	// SizeBytes is the length when known, else -1.
	SizeBytes int64
	// Replayable: Open may be called again.
	Replayable bool
	// Path is the name of a local file with the same content; empty if there is none.
	Path string
}

// FileStream is a stream, returned by Source.Open, whose bytes come out of a file or a socket of this machine. A caller that only passes
// the bytes on to another process can pass the descriptor on instead.
type FileStream interface {
	io.ReadCloser
	// TakeFile gives the descriptor to the caller, who closes it. It returns nil if there is none, or none any more; then Read has
	// the bytes. After TakeFile the bytes that were not read yet are read from the descriptor, to its end. Read then only waits for
	// the end of the stream: io.EOF, or the reason why the descriptor does not have all bytes.
	TakeFile() *os.File
}

// Input is the Workspace and the standard input of a Submit. Stdin is opened only after Workspace was read to its end, so both may be parts
// of one stream. A nil Stdin is empty and closed.
type Input struct {
	Workspace *Source
	Stdin     *Source
	// Accepted, if not nil, is called at most once, before Submit returns and before a streamed input is read: the Execution exists
	// and its Events can be followed. A caller needs it where the log is a window and the program reads a long Stdin, because Submit
	// returns only when Stdin was consumed. It does not cross a process boundary.
	Accepted func(Execution)
	// Lasting reports whether both Sources are Replayable and can be opened until the Execution has ended. No copy of them is made
	// then, and Submit returns when the Execution is accepted. A Durable Spec needs a copy all the same. It does not cross a process
	// boundary.
	Lasting bool
}
