package pyexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The codes of an Error. The list is closed.
const (
	CodeInvalid         = "invalid"
	CodeNotFound        = "not_found"
	CodeConflict        = "conflict"
	CodeExhausted       = "exhausted"
	CodeUnavailable     = "unavailable"
	CodeUnauthenticated = "unauthenticated"
	CodeDenied          = "denied"
	CodeUnimplemented   = "unimplemented"
	CodePurged          = "purged"
	CodeInternal        = "internal"
)

// maxProblem bounds how much of an error's body is read.
const maxProblem = 1 << 20

// Error is what the server answered, or why it could not be reached (Code unavailable, Status 0).
type Error struct {
	Code string
	// Status is the HTTP status; 0 if there was no answer.
	Status  int
	Message string
	// Fields lists every bad field.
	Fields []FieldError
	// ExecutionID is the Execution that the error is about; may be empty.
	ExecutionID string
	// RequestID names the request in the server's log; may be empty.
	RequestID string
	// RetryAfter is the server's hint; 0 = none.
	RetryAfter time.Duration
	// Err is the cause where there was no answer.
	Err error
}

// FieldError names one bad field as its author wrote it.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Message == "" {
		b.WriteString(e.Code)
	}
	for _, f := range e.Fields {
		if !strings.Contains(e.Message, f.Message) {
			fmt.Fprintf(&b, "; %s: %s", f.Field, f.Message)
		}
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the Code of the first Error in err's tree, "" for nil, and "internal" for anything else.
func CodeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

type problem struct {
	Title       string       `json:"title"`
	Detail      string       `json:"detail"`
	Code        string       `json:"code"`
	Errors      []FieldError `json:"errors"`
	ExecutionID string       `json:"execution_id"`
	RequestID   string       `json:"request_id"`
}

// responseError reads an error from an answer, RFC 9457 or not. It does not close the body.
func responseError(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // anything else is not ours
	var p problem
	if mediaType == "application/problem+json" || mediaType == "application/json" {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
		if err != nil || json.Unmarshal(raw, &p) != nil {
			p = problem{}
		}
	}
	e.Code, e.Fields, e.ExecutionID, e.RequestID = p.Code, p.Errors, p.ExecutionID, p.RequestID
	if e.Code == "" {
		e.Code = codeOfStatus(resp.StatusCode)
	}
	e.Message = p.Detail
	if e.Message == "" {
		e.Message = p.Title
	}
	if e.Message == "" {
		e.Message = "the server answered " + resp.Status
	}
	return e
}

// unreachable turns a failed exchange into an Error; the end of the caller's ctx stays visible in it.
func unreachable(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	return &Error{Code: CodeUnavailable, Message: err.Error(), Err: err}
}

func codeOfStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return CodeUnauthenticated
	case http.StatusForbidden:
		return CodeDenied
	case http.StatusNotFound:
		return CodeNotFound
	case http.StatusConflict:
		return CodeConflict
	case http.StatusGone:
		return CodePurged
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return CodeExhausted
	case http.StatusNotImplemented:
		return CodeUnimplemented
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return CodeUnavailable
	}
	if status >= 400 && status < 500 {
		return CodeInvalid
	}
	return CodeInternal
}

// retryAfter reads seconds or a date; 0 if it is neither.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, min(seconds, 86400))) * time.Second
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}
