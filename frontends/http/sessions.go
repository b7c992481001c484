package httpfrontend

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/apijson"
)

// sessionID returns the id of the path. What cannot be an id is not found.
func sessionID(r *http.Request) (string, error) {
	id, err := pathID(r)
	if err != nil {
		return "", executor.FieldErrorf(executor.NotFound, "session", "no session has that id")
	}
	return id, nil
}

// openSession opens a Session and answers when its interpreter is ready. The end of the request gives it up.
func (f *frontend) openSession(w http.ResponseWriter, r *http.Request) error {
	asked, err := f.sessionRequest(w, r, f.metadata.session, true)
	if err != nil {
		return err
	}
	s := asked.session
	s.Spec = asked.spec
	s.Language = asked.spec.Language
	opened, err := f.svc.OpenSession(r.Context(), s)
	if err != nil {
		return in("body", err)
	}
	w.Header().Set("Location", "/api/v1/sessions/"+opened.ID)
	return writeJSON(w, http.StatusCreated, apijson.SessionOf(opened))
}

// listSessions answers with the caller's Sessions.
func (f *frontend) listSessions(w http.ResponseWriter, r *http.Request) error {
	list, err := f.svc.ListSessions(r.Context())
	if err != nil {
		return err
	}
	out := make([]apijson.Session, len(list))
	for i, s := range list {
		out[i] = apijson.SessionOf(s)
	}
	return writeJSON(w, http.StatusOK, map[string][]apijson.Session{"sessions": out})
}

// onSession makes a handler of a call that takes an id and answers with the Session.
func (f *frontend) onSession(call func(ctx context.Context, id string) (executor.Session, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := sessionID(r)
		if err != nil {
			return err
		}
		s, err := call(r.Context(), id)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, apijson.SessionOf(s))
	}
}

// closeSession ends a Session.
func (f *frontend) closeSession(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	s, err := f.svc.CloseSession(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]executor.SessionStatus{"status": s.Status})
}

// restartSession starts its interpreter anew. A request without a body keeps the files.
func (f *frontend) restartSession(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	asked, err := f.sessionRequest(w, r, f.metadata.restart, false)
	if err != nil {
		return err
	}
	s, err := f.svc.RestartSession(r.Context(), id, asked.wipe)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, apijson.SessionOf(s))
}

// variables answers with the names of the interpreter.
func (f *frontend) variables(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	list, err := f.svc.Variables(r.Context(), id)
	if err != nil {
		return err
	}
	out := make([]apijson.Variable, len(list))
	for i, v := range list {
		out[i] = apijson.VariableOf(v)
	}
	return writeJSON(w, http.StatusOK, map[string][]apijson.Variable{"variables": out})
}

// addRequirements installs more and answers with all there is then.
func (f *frontend) addRequirements(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	asked, err := f.sessionRequest(w, r, f.metadata.requirements, true)
	if err != nil {
		return err
	}
	if strings.TrimSpace(asked.spec.Requirements) == "" {
		return in("body", executor.FieldErrorf(executor.Invalid, "requirements_txt", "is missing"))
	}
	resolved, err := f.svc.AddRequirements(r.Context(), id, asked.spec.Requirements)
	if err != nil {
		return in("body", err)
	}
	return writeJSON(w, http.StatusOK, map[string][]string{"resolved_requirements": list0(resolved)})
}

// sessionRequest reads a JSON body of known fields. needed: there must be one.
func (f *frontend) sessionRequest(w http.ResponseWriter, r *http.Request, known map[string]field, needed bool) (*submission, error) {
	contentType := r.Header.Get("Content-Type")
	mediaType, params, err := mime.ParseMediaType(contentType)
	isJSON := err == nil && mediaType == "application/json" && (params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8"))
	notJSONType := refuse(http.StatusUnsupportedMediaType, executor.Invalid, "the Content-Type must be application/json (UTF-8), not %.80q", contentType)
	if needed && !isJSON {
		return nil, notJSONType
	}
	b, err := f.openBody(w, r, min(metadataMax, f.opts.MaxBodyBytes))
	if err != nil {
		return nil, err
	}
	raw, err := b.whole(b, b.announced)
	switch {
	case err != nil:
		return nil, bodyError("the JSON body", err)
	case len(raw) == 0 && !needed:
		return &submission{}, nil
	case !isJSON:
		return nil, notJSONType
	}
	s, err := decodeFields(raw, known, true)
	return s, in("body", err)
}

// listFiles answers with the entries of a folder.
func (f *frontend) listFiles(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionID(r)
	if err != nil {
		return err
	}
	path, recursive, err := filesQuery(r)
	if err != nil {
		return err
	}
	list, err := f.svc.ListFiles(r.Context(), id, path, recursive)
	if err != nil {
		return in("query", tooMuch(err))
	}
	out := make([]apijson.File, len(list))
	for i, file := range list {
		out[i] = apijson.FileOf(file)
	}
	return writeJSON(w, http.StatusOK, map[string][]apijson.File{"files": out})
}

// tooMuch makes 413 of a size that is exhausted: to wait and ask again, as 429 says, would not help.
func tooMuch(err error) error {
	e, ok := errors.AsType[*executor.Error](err)
	if _, decided := errors.AsType[*requestError](err); ok && !decided && e.Code == executor.Exhausted {
		return &requestError{status: http.StatusRequestEntityTooLarge, err: e}
	}
	return err
}
