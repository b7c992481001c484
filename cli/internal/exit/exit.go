package exit

import (
	"errors"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
)

// The statuses that are not the program's own.
const (
	OK = 0
	// Negative: a check found something wrong (doctor, config check, plugin check).
	Negative = 1
	// TimedOut: the timeout ended the program, as timeout(1) says it.
	TimedOut = 124
	// Ours: we failed, the program did not run or its fate is unknown: bad flags, a missing file, an unreachable server, a
	// failed preparation, lost.
	Ours = 125
	// NotExecutable and NotFound: the command could not be executed, or found, as env(1) says it.
	NotExecutable = 126
	NotFound      = 127
	// Interrupted: Ctrl-C.
	Interrupted = 128 + 2
	// Killed: out of memory, or cancelled.
	Killed = 128 + 9
	// BrokenPipe: whoever read our standard output went away.
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

// Of returns the status of what a command returned, and whether there is a message to show.
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
	return Ours, err.Error()
}

// OfResult returns the status of a program's end.
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
	if f := r.Failure; f != nil {
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
	// A status is one byte; a failure must not look like a success.
	if code := *r.ExitCode & 0xff; code != 0 {
		return code
	}
	return Negative
}
