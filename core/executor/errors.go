package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the kind of an Error. The list is closed.
type Code string

// The ten codes.
const (
	// Invalid: the request is wrong, and wrong again if repeated. Fields names what is wrong.
	Invalid Code = "invalid"
	// NotFound: there is no such thing, or it is another owner's.
	NotFound Code = "not_found"
	// Conflict: the request contradicts the present state (another Spec under the same idempotency key).
	Conflict Code = "conflict"
	// Exhausted: a bound is reached (queue, size). Retry later or ask for less.
	Exhausted Code = "exhausted"
	// Unavailable: a part of the server is away, and the same request may succeed later. It means "retry".
	Unavailable Code = "unavailable"
	// Unauthenticated: no token, or a wrong one.
	Unauthenticated Code = "unauthenticated"
	// Denied: the caller has no right to do this.
	Denied Code = "denied"
	// Unimplemented: this backend cannot do or enforce what was asked. Fields names it.
	Unimplemented Code = "unimplemented"
	// Purged: it existed and retention removed it.
	Purged Code = "purged"
	// Internal: a bug or a broken machine. Its detail goes to the log, never to a client.
	Internal Code = "internal"
)

// Codes returns every Code in declaration order. Tables that map codes are tested against it.
func Codes() []Code {
	return []Code{Invalid, NotFound, Conflict, Exhausted, Unavailable, Unauthenticated, Denied, Unimplemented, Purged, Internal}
}

// FieldError names one bad field by its JSON path as a user writes it ("config.memory_mb", "entrypoint").
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error is the one error type that crosses the seams. An error of any other type counts as Internal.
type Error struct {
	// Code is one of Codes.
	Code Code
	// Op is the operation that failed ("submit", "prepare"); may be empty.
	Op string
	// Message is for the reader of the error; it holds no secret.
	Message string
	// Fields lists every bad field, for Invalid, Denied and Unimplemented; may be empty.
	Fields []FieldError
	// ExecutionID is the Execution that the error is about, if it exists.
	ExecutionID string
	// RetryAfter is a hint for Exhausted and Unavailable; 0 = none.
	RetryAfter time.Duration
	// Err is the cause; it does not cross a process boundary.
	Err error
}

// Error implements error: "op: message". An empty message is replaced by the cause, or without a cause by the code.
func (e *Error) Error() string {
	msg := e.Message
	if msg == "" && e.Err != nil {
		msg = e.Err.Error()
	}
	if msg == "" {
		msg = string(e.Code)
	}
	if e.Op != "" {
		return e.Op + ": " + msg
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Code: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Err == nil
}

// Errorf makes an Error whose Message is the formatted text; %w also sets the cause, as with fmt.Errorf.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// FieldErrorf makes an Error of one bad field.
func FieldErrorf(code Code, field, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	return &Error{Code: code, Message: field + ": " + msg, Fields: []FieldError{{Field: field, Message: msg}}}
}

// Problems are the bad fields of a request or a configuration.
type Problems []FieldError

// Add adds a bad field.
func (p *Problems) Add(field, format string, args ...any) {
	*p = append(*p, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// Err returns an Error with p in Fields, and in Message with separator between them; nil if p is empty.
func (p Problems) Err(code Code, op, separator string) error {
	if len(p) == 0 {
		return nil
	}
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Field + ": " + problem.Message
	}
	return &Error{Code: code, Op: op, Message: strings.Join(lines, separator), Fields: p}
}

// CodeOf returns the Code of the first Error in err's tree. A context's end counts as Unavailable, nil as "", and
// anything else as Internal.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Internal
}
