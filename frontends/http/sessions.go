package httpfrontend

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// sessionID returns the id or the name in the path. A text that cannot be either is not found.
func sessionID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if id == "" || len(id) > 256 || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return "", executor.FieldErrorf(executor.NotFound, "session", "no session has that id or name")
	}
	return id, nil
}

// openSession opens a Session and answers when its interpreter is ready. The end of the request abandons the Session.
func (f *frontend) openSession(w http.ResponseWriter, r *http.Request) error {
	var asked pyexec.SessionSpec
	if err := f.sessionRequest(w, r, f.shapes.session, &asked, true); err != nil {
		return err
	}
	opened, err := f.svc.OpenSession(r.Context(), apijson.ToNewSession(asked))
	if err != nil {
		return in("body", err)
	}
	w.Header().Set("Location", "/api/v1/sessions/"+opened.ID)
	return writeJSON(w, http.StatusCreated, apijson.SessionOf(opened))
}

// listSessions answers with the caller's Sessions.
func (f *frontend) listSessions(w http.ResponseWriter, r *http.Request) error {
	list, err := f.svc.ListSessions(r.Context())
	return answer(w, err, apijson.SessionsOf(list))
}

func onSession(h func(w http.ResponseWriter, r *http.Request, id string) error) handler {
	return onID(sessionID, h)
}

// sessionCall returns the handler of a call that takes an id and returns the Session.
func sessionCall(call func(ctx context.Context, id string) (executor.Session, error)) handler {
	return onSession(func(w http.ResponseWriter, r *http.Request, id string) error {
		s, err := call(r.Context(), id)
		return answer(w, err, apijson.SessionOf(s))
	})
}

// closeSession ends a Session.
func (f *frontend) closeSession(w http.ResponseWriter, r *http.Request, id string) error {
	s, err := f.svc.CloseSession(r.Context(), id)
	return answer(w, err, pyexec.Closed{Status: string(s.Status)})
}

// restartSession restarts the interpreter. A request without a body keeps the files.
func (f *frontend) restartSession(w http.ResponseWriter, r *http.Request, id string) error {
	var asked pyexec.Restart
	if err := f.sessionRequest(w, r, f.shapes.restart, &asked, false); err != nil {
		return err
	}
	s, err := f.svc.RestartSession(r.Context(), id, asked.Wipe)
	return answer(w, err, apijson.SessionOf(s))
}

// variables answers with the names of the interpreter.
func (f *frontend) variables(w http.ResponseWriter, r *http.Request, id string) error {
	list, err := f.svc.Variables(r.Context(), id)
	return answer(w, err, apijson.VariablesOf(list))
}

// addRequirements installs requirements and answers with all that are installed then.
func (f *frontend) addRequirements(w http.ResponseWriter, r *http.Request, id string) error {
	var asked pyexec.Requirements
	if err := f.sessionRequest(w, r, f.shapes.requirements, &asked, true); err != nil {
		return err
	}
	resolved, err := f.svc.AddRequirements(r.Context(), id, asked.RequirementsTxt)
	return answer(w, in("body", err), pyexec.Installed{ResolvedRequirements: append([]string{}, resolved...)})
}

// sessionRequest reads a JSON body of the given shape into the struct that into points to. needed reports whether there must be
// a body.
func (f *frontend) sessionRequest(w http.ResponseWriter, r *http.Request, fields shape, into any, needed bool) error {
	_, _, isJSON := mediaTypeOf(r)
	if needed && !isJSON {
		return wrongType(r, "application/json (UTF-8)")
	}
	b, err := f.openBody(w, r, min(metadataMax, f.opts.MaxBodyBytes))
	if err != nil {
		return err
	}
	raw, err := b.whole(b, b.announced)
	switch {
	case err != nil:
		return bodyError("the JSON body", err)
	case len(raw) == 0 && !needed:
		return nil
	case !isJSON:
		return wrongType(r, "application/json (UTF-8)")
	}
	_, err = fields.decode(raw, into, true)
	return in("body", err)
}

// listFiles answers with the entries of a folder.
func (f *frontend) listFiles(w http.ResponseWriter, r *http.Request, id string) error {
	var asked pyexec.FilesOptions
	err := readQuery(r, &asked, func(d *decoder) {
		if p := asked.Path; p != "" && p != "." && !validPath(p) { // these two are the work folder
			d.bad("path", "%s", sessionPathProblem(p))
		}
	})
	if err != nil {
		return err
	}
	list, err := f.svc.ListFiles(r.Context(), id, asked.Path, asked.Recursive)
	return answer(w, in("query", tooMuch(err)), apijson.FilesOf(list))
}

// tooMuch returns err with status 413 if a size is exhausted. With 429 a client would wait and try again, which does not help.
func tooMuch(err error) error {
	if e, ok := errors.AsType[*executor.Error](err); ok && e.Code == executor.Exhausted {
		return &requestError{status: http.StatusRequestEntityTooLarge, err: e}
	}
	return err
}
