package httpfrontend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// pathID returns the id of the path. What cannot be an id is not found.
func pathID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	ok := id != "" && len(id) <= 128
	for i := 0; ok && i < len(id); i++ {
		ok = id[i] > ' ' && id[i] < 0x7f
	}
	if !ok {
		return "", executor.Errorf(executor.NotFound, "there is no such execution")
	}
	return id, nil
}

// getExecution answers with the state of an Execution and its output so far.
func (f *frontend) getExecution(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	e, err := f.svc.Get(r.Context(), id)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return f.writeResult(w, e, f.loggedOutput(r.Context(), e))
}

// cancelExecution ends an Execution.
func (f *frontend) cancelExecution(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	e, err := f.svc.Cancel(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]executor.Status{"status": e.Status})
}

const (
	defaultPage = 50
	maxPage     = 500
)

// listExecutions answers with a page of Executions without their output.
func (f *frontend) listExecutions(w http.ResponseWriter, r *http.Request) error {
	filter, err := filterOf(r)
	if err != nil {
		return err
	}
	page, err := f.svc.List(r.Context(), filter)
	if err != nil {
		return in("query", err)
	}
	out := struct {
		Executions []json.RawMessage `json:"executions"`
		Next       *string           `json:"next"`
	}{Executions: make([]json.RawMessage, 0, len(page))}
	for _, e := range page {
		raw, err := summary(e)
		if err != nil {
			return fmt.Errorf("encode %s: %w", e.ID, err)
		}
		out.Executions = append(out.Executions, raw)
	}
	if len(page) > 0 {
		// Any page but an empty one may be followed by another. Its reader is not sent to an empty one.
		last := page[len(page)-1].ID
		filter.After, filter.Limit = last, 1
		more, err := f.svc.List(r.Context(), filter)
		if err != nil {
			return in("query", err)
		}
		if len(more) > 0 {
			out.Next = &last
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

// filterOf reads the query of a list.
func filterOf(r *http.Request) (executor.Filter, error) {
	q, err := queryOf(r)
	if err != nil {
		return executor.Filter{}, err
	}
	filter := executor.Filter{Limit: defaultPage, After: q.Get("after")}
	var bad []executor.FieldError
	for _, value := range q["status"] {
		for name := range strings.SplitSeq(value, ",") {
			s := executor.Status(name)
			if !slices.Contains(executor.Statuses(), s) {
				bad = append(bad, executor.FieldError{Field: "status", Message: fmt.Sprintf("is no status: %.40q", name)})
				continue
			}
			filter.Statuses = append(filter.Statuses, s)
		}
	}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > maxPage {
			bad = append(bad, executor.FieldError{Field: "limit", Message: fmt.Sprintf("must be a number from 1 to %d", maxPage)})
		}
		filter.Limit = n
	}
	return filter, queryError(bad)
}

// queryOf reads the query of a request. What is no query is refused: a parameter that is not understood is not left out.
func queryOf(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, executor.Errorf(executor.Invalid, "the query cannot be read: %w", err)
	}
	return q, nil
}

// queryError makes one error of the bad parameters of a query; nil if there are none.
func queryError(bad []executor.FieldError) error {
	if len(bad) == 0 {
		return nil
	}
	msgs := make([]string, len(bad))
	for i, b := range bad {
		msgs[i] = b.Field + ": " + b.Message
	}
	return in("query", &executor.Error{Code: executor.Invalid, Message: strings.Join(msgs, "; "), Fields: bad})
}
