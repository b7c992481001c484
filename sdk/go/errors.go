package pyexec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// Error is an error that the server answered, or the reason why the server was not reached (Code unavailable, Status 0).
type Error struct {
	Code string
	// Status is the HTTP status. 0: there was no answer.
	Status  int
	Message string
	// Fields lists every bad field.
	Fields []FieldError
	// ExecutionID is the Execution that the error is about. It may be empty.
	ExecutionID string
	// RequestID names the request in the server's log. It may be empty.
	RequestID string
	// RetryAfter is the pause that the server asks for. 0: none.
	RetryAfter time.Duration
	// Err is the cause if there was no answer.
	Err error
}

// FieldError names one bad field as a user writes it.
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

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type        string         `json:"type" format:"uri-reference" doc:"Always about:blank."`
	Title       string         `json:"title" doc:"The status in words."`
	Status      int            `json:"status" doc:"The HTTP status."`
	Detail      string         `json:"detail" doc:"What is wrong."`
	Code        string         `json:"code" enum:"invalid,not_found,conflict,exhausted,unavailable,unauthenticated,denied,unimplemented,purged,internal" doc:"unavailable: the same request may succeed later."`
	Errors      []ProblemField `json:"errors,omitempty" doc:"Every bad field."`
	ExecutionID string         `json:"execution_id,omitzero" doc:"Execution that the error is about, if there is one."`
	RequestID   string         `json:"request_id" doc:"Name of the request in the server's log."`
}

// ProblemField names one bad field of a request.
type ProblemField struct {
	Field    string `json:"field" doc:"The field as a user writes it, \"config.memory_mb\"."`
	Location string `json:"location" doc:"The field with the part of the request before it, \"metadata.config.memory_mb\"."`
	Message  string `json:"message"`
}

// responseError reads an error from an answer, which need not be RFC 9457. It does not close the body.
func responseError(resp *http.Response, server *url.URL) *Error {
	e := &Error{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	var p Problem
	if isJSON(resp) { // anything else is not ours
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
		if err != nil || json.Unmarshal(raw, &p) != nil {
			p = Problem{}
		}
	}
	if p.Code == "" { // every error of the server has one
		return foreign(resp, server)
	}
	e.Code, e.ExecutionID, e.RequestID = p.Code, p.ExecutionID, p.RequestID
	for _, f := range p.Errors {
		e.Fields = append(e.Fields, FieldError{Field: f.Field, Message: f.Message})
	}
	if e.Message = cmp.Or(p.Detail, p.Title); e.Message == "" {
		e.Message = "the server answered " + resp.Status
	}
	return e
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

// retryAfter reads seconds or a date. It returns 0 for anything else.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, min(seconds, 86400))) * time.Second
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}
