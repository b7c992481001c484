package httpfrontend

import (
	"net/http"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// pathID returns the id in the path. A text that cannot be an id is not found.
func pathID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	ok := id != "" && len(id) <= 128
	for i := 0; ok && i < len(id); i++ {
		ok = id[i] > ' ' && id[i] < 0x7f
	}
	if !ok {
		return "", executor.Errorf(executor.NotFound, "no execution has that id")
	}
	return id, nil
}

// onID returns the handler of an operation on the object with the id in the path.
func onID(idOf func(*http.Request) (string, error), h func(w http.ResponseWriter, r *http.Request, id string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := idOf(r)
		if err != nil {
			return err
		}
		return h(w, r, id)
	}
}

func onExecution(h func(w http.ResponseWriter, r *http.Request, id string) error) handler {
	return onID(pathID, h)
}

// getExecution answers with the state of an Execution and its output so far.
func (f *frontend) getExecution(w http.ResponseWriter, r *http.Request, id string) error {
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
func (f *frontend) cancelExecution(w http.ResponseWriter, r *http.Request, id string) error {
	e, err := f.svc.Cancel(r.Context(), id)
	out := pyexec.Cancelled{Status: string(e.Status)}
	if e.Status != executor.StatusKilled {
		out.Message = "the execution had ended before it could be killed"
	}
	return answer(w, err, out)
}

// listExecutions answers with a page of Executions without their output.
func (f *frontend) listExecutions(w http.ResponseWriter, r *http.Request) error {
	var asked pyexec.ListOptions
	if err := readQuery(r, &asked); err != nil {
		return err
	}
	filter := executor.Filter{Limit: asked.Limit, After: asked.After}
	for _, status := range asked.Statuses {
		filter.Statuses = append(filter.Statuses, executor.Status(status))
	}
	page, err := f.svc.List(r.Context(), filter)
	if err != nil {
		return in("query", err)
	}
	next := ""
	if len(page) > 0 {
		// Another page may follow. It is named only if it is not empty.
		last := page[len(page)-1].ID
		filter.After, filter.Limit = last, 1
		more, err := f.svc.List(r.Context(), filter)
		if err != nil {
			return in("query", err)
		}
		if len(more) > 0 {
			next = last
		}
	}
	return writeJSON(w, http.StatusOK, apijson.PageOf(page, next))
}
