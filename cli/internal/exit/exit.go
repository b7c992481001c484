package exit

import (
	"errors"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
)

// The statuses that are not the program's own.
const (
	OK = 0
	// Negative means that a check found a problem (doctor, config check, plugin check).
	Negative = 1
	// TimedOut means that the timeout ended the program. timeout(1) has the same status.
	TimedOut = 124
	// Ours means that python-executor failed, so that the program did not run or its end is unknown: bad flags, a missing file,
	// an unreachable server, a failed preparation, lost.
	Ours = 125
	// NotExecutable and NotFound mean that the command could not be executed, or found. env(1) has the same statuses.
	NotExecutable = 126
	NotFound      = 127
	// Interrupted means Ctrl-C.
	Interrupted = 128 + 2
	// Killed means out of memory, or cancelled.
	Killed = 128 + 9
	// BrokenPipe means that the reader of standard output is gone.
	BrokenPipe = 128 + 13
)

// Error carries a status of its own, and may have no text to show.
type Error struct {
	Status int
	Err    error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// With makes err end the command with status; a nil err ends it silently. Status OK without err is nil.
func With(status int, err error) error {
	if status == OK && err == nil {
		return nil
	}
	return &Error{status, err}
}

// Of returns the status for a command's error, and whether there is a message to show.
func Of(err error) (status int, message string) {
	if err == nil {
		return OK, ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Err == nil {
			return e.Status, ""
		}
		return e.Status, err.Error()
	}
	if e, ok := err.(*executor.Error); ok && e.Message != "" { //nolint:errorlint // the text of an error around e stays
		return Ours, e.Message // the operation, such as "submit", is a word of the engine
	}
	return Ours, err.Error()
}

// OfResult returns the status for a Result.
func OfResult(r executor.Result) int {
	switch r.Status {
	case executor.StatusSucceeded:
		if r.Failure != nil {
			return Ours
		}
		return OK
	case executor.StatusTimedOut:
		return TimedOut
	case executor.StatusOutOfMemory, executor.StatusKilled:
		return Killed
	case executor.StatusFailed:
		return ofFailed(r)
	default:
		return Ours
	}
}

func ofFailed(r executor.Result) int {
	if f := r.Failure; f != nil && r.HitLimit() == nil {
		switch {
		case f.Phase == executor.PhaseStart && f.Code == executor.Invalid:
			return NotExecutable
		case f.Phase == executor.PhaseStart && f.Code == executor.NotFound:
			return NotFound
		default:
			return Ours
		}
	}
	if r.Signal != "" {
		if n := executor.SignalNumber(r.Signal); n > 0 {
			return 128 + n
		}
		return Killed
	}
	if r.ExitCode == nil {
		return Ours
	}
	// A status has one byte. A failure must not become status 0.
	if code := *r.ExitCode & 0xff; code != 0 {
		return code
	}
	return Negative
}
