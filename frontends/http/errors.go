package httpfrontend

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// requestError is an error with a status that differs from the one of its Code, or with the part of the request that has its
// fields.
type requestError struct {
	status int
	where  string
	err    *executor.Error
}

func (e *requestError) Error() string { return e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }

// refuse returns an error with a status of its own.
func refuse(status int, code executor.Code, format string, args ...any) *requestError {
	return &requestError{status: status, err: executor.Errorf(code, format, args...)}
}

// in adds to an executor.Error the part of the request that has its fields. Other errors stay as they are.
func in(where string, err error) error {
	if e, ok := errors.AsType[*requestError](err); ok {
		if e.where == "" {
			e.where = where
		}
		return err
	}
	if e, ok := errors.AsType[*executor.Error](err); ok {
		return &requestError{where: where, err: e}
	}
	return err
}

// about returns err with the id of the Execution that it is about.
func about(id string, err error) error {
	e, ok := errors.AsType[*executor.Error](err)
	switch {
	case !ok:
		e = &executor.Error{Code: executor.CodeOf(err), Err: err}
	case e.ExecutionID == id:
		return err
	}
	with := *e
	with.ExecutionID = id
	out := &requestError{err: &with}
	if r, ok := errors.AsType[*requestError](err); ok {
		out.status, out.where = r.status, r.where
	}
	return out
}

// httpStatus returns the status of a Code. The table is total.
func httpStatus(c executor.Code) int {
	switch c {
	case executor.Invalid:
		return http.StatusUnprocessableEntity
	case executor.NotFound:
		return http.StatusNotFound
	case executor.Conflict:
		return http.StatusConflict
	case executor.Exhausted:
		return http.StatusTooManyRequests
	case executor.Unavailable:
		return http.StatusServiceUnavailable
	case executor.Unauthenticated:
		return http.StatusUnauthorized
	case executor.Denied:
		return http.StatusForbidden
	case executor.Unimplemented:
		return http.StatusNotImplemented
	case executor.Purged:
		return http.StatusGone
	case executor.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// problemOf describes err for a client. It hides the details of internal errors.
func problemOf(err error, requestID string) (pyexec.Problem, http.Header) {
	code := executor.CodeOf(err)
	p := pyexec.Problem{Type: "about:blank", Code: string(code), RequestID: requestID, Status: httpStatus(code)}
	where := "request"
	var retry time.Duration
	if r, ok := errors.AsType[*requestError](err); ok {
		if r.status != 0 {
			p.Status = r.status
		}
		if r.where != "" {
			where = r.where
		}
	}
	if e, ok := errors.AsType[*executor.Error](err); ok {
		p.Detail, p.ExecutionID, retry = e.Message, e.ExecutionID, e.RetryAfter
		for _, f := range e.Fields {
			if f.Field == "session" && !strings.HasPrefix(f.Message, "unknown ") { // its name in the API
				f.Field = "session_id"
				p.Detail = strings.Replace(p.Detail, "session: "+f.Message, "session_id: "+f.Message, 1)
			}
			location := where + "." + f.Field
			if where == "body" && f.Field == where { // all of it
				location = where
			}
			p.Errors = append(p.Errors, pyexec.ProblemField{Field: f.Field, Location: location, Message: f.Message})
		}
	}
	switch {
	case p.Code == pyexec.CodeInternal:
		p.Detail, p.Errors = "internal error", nil
	case p.Detail == "" && p.Code == pyexec.CodeUnavailable:
		p.Detail = "not available now, try again"
	case p.Detail == "":
		p.Detail = http.StatusText(p.Status)
	}
	p.Title = http.StatusText(p.Status)
	h := http.Header{}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="python-executor"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds := max(1, int(math.Ceil(retry.Seconds())))
		h.Set("Retry-After", strconv.Itoa(seconds))
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		// The rest of the body is not worth reading.
		h.Set("Connection", "close")
	}
	return p, h
}

// writeProblem answers with err. If the answer has begun it cuts the connection, so that the client does not take a part for the
// whole.
func (f *frontend) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p, header := problemOf(err, requestID(r.Context()))
	if strings.HasPrefix(r.URL.Path, "/api/v1/sessions/") { // its id is in no other part of such a request
		for i := range p.Errors {
			if p.Errors[i].Field == "session_id" {
				p.Errors[i].Location = "path.session_id"
			}
		}
	}
	if p.Status >= http.StatusInternalServerError && p.Code == pyexec.CodeInternal {
		f.log.ErrorContext(r.Context(), "request failed", "request_id", p.RequestID, "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if rec, ok := w.(*recorder); ok && rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	body, jsonErr := json.Marshal(p)
	if jsonErr != nil {
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal"}`)
	}
	for key, values := range header {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Del("Content-Disposition")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client is gone if this fails
}

// bodyError returns the error of a failed read of the request's body. what names the part that was read.
func bodyError(what string, err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, executor.Exhausted, "the request body must have at most %d bytes", tooLarge.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(http.StatusRequestTimeout, executor.Unavailable, "the client sent nothing for too long while the server read %s", what)
	}
	if e, ok := errors.AsType[*requestError](err); ok {
		return e
	}
	if buffered.ErrFull(err) {
		return err
	}
	return refuse(http.StatusBadRequest, executor.Invalid, "%s cannot be read: the body is malformed or ended early", what)
}
