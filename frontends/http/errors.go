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
)

// problem is the body of every error, RFC 9457 with members of our own.
type problem struct {
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Status      int            `json:"status"`
	Detail      string         `json:"detail"`
	Code        executor.Code  `json:"code"`
	Errors      []problemField `json:"errors,omitempty"`
	ExecutionID string         `json:"execution_id,omitempty"`
	RequestID   string         `json:"request_id"`
}

// problemField names one bad field: Field as its author wrote it, Location with the part of the request before it.
type problemField struct {
	Field    string `json:"field"`
	Location string `json:"location"`
	Message  string `json:"message"`
}

// requestError is an error of which this edge knows more than its Code: another status than the table's, and the part of
// the request that its fields are in.
type requestError struct {
	status int
	where  string
	err    *executor.Error
}

func (e *requestError) Error() string { return e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }

// refuse makes an error with a status of its own.
func refuse(status int, code executor.Code, format string, args ...any) *requestError {
	return &requestError{status: status, err: executor.Errorf(code, format, args...)}
}

// in says which part of the request the fields of an executor.Error are in; other errors stay as they are.
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

// httpStatus is the total table from Code to status.
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

// problemOf describes err for a client. What is internal stays inside.
func problemOf(err error, requestID string) (problem, http.Header) {
	p := problem{Type: "about:blank", Code: executor.CodeOf(err), RequestID: requestID}
	p.Status = httpStatus(p.Code)
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
			if f.Field == "session" { // as it is called here
				f.Field = "session_id"
				p.Detail = strings.Replace(p.Detail, "session: "+f.Message, "session_id: "+f.Message, 1)
			}
			p.Errors = append(p.Errors, problemField{Field: f.Field, Location: where + "." + f.Field, Message: f.Message})
		}
	}
	switch {
	case p.Code == executor.Internal:
		p.Detail, p.Errors = "internal error", nil
	case p.Detail == "" && p.Code == executor.Unavailable:
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

// writeProblem answers with err. A request whose answer has begun is cut, so that the client does not take a part for the
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
	if p.Status >= http.StatusInternalServerError && p.Code == executor.Internal {
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

// bodyError says what a failed read of the request's body means. what is what was being read.
func bodyError(what string, err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, executor.Exhausted, "the request body is larger than %d bytes", tooLarge.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(http.StatusRequestTimeout, executor.Unavailable, "nothing was received for too long while reading %s", what)
	}
	if e, ok := errors.AsType[*requestError](err); ok {
		return e
	}
	if buffered.ErrFull(err) {
		return err
	}
	return refuse(http.StatusBadRequest, executor.Invalid, "%s cannot be read: the body is broken or ended early", what)
}
