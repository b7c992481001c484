package httpfrontend

import (
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
)

// routes are all operations.
func (f *frontend) routes() []route {
	return slices.Concat(f.operations(), f.sessionOperations(), f.scriptOperations())
}

var (
	sessionParam = &huma.Param{Name: "id", In: "path", Required: true, Description: "The Session's id.", Schema: typed(huma.TypeString, ""), Example: exampleSessionID}
	fileParam    = &huma.Param{Name: "path", In: "path", Required: true, Example: "data/rows.csv", Schema: typed(huma.TypeString, ""),
		Description: "The file, relative to the work folder; may hold slashes, escaped or not."}
)

const exampleSessionID = "ctx-6f1c0a3e-8f0b-4c1d-9b1e-2f6f8b6f0a11"

var exampleSession = map[string]any{
	"session_id": exampleSessionID, "name": "analysis", "description": "", "language": "python", "backend": "uv", "generation": 1, "status": "active", "reason": nil,
	"created_at": "2026-11-21T12:00:00Z", "last_used": nil, "expires_at": "2026-11-21T12:30:00Z", "idle_timeout_seconds": 1800, "max_life_seconds": 86400,
	"python_version": "3.12.1", "resolved_requirements": []string{}, "image_digest": nil,
	"limits":   map[string]any{"timeout_seconds": 300, "memory_mb": 1024, "disk_mb": 2048, "cpu_shares": 1024, "pids": 256, "output_bytes": 67108864, "kill_grace_seconds": 1},
	"restarts": 0, "running": nil, "waiting": 0,
}

// jsonBody documents a JSON body.
func jsonBody(schema string, required bool, example any) *huma.RequestBody {
	return &huma.RequestBody{Required: required, Content: map[string]*huma.MediaType{"application/json": {Schema: ref(schema), Example: example}}}
}

// sessionLinks lead from a Session that was opened to what can be asked of it.
func sessionLinks() map[string]*huma.Link {
	m := map[string]*huma.Link{}
	for _, id := range []string{"get-session", "close-session", "restart-session", "interrupt-session", "list-variables", "list-files"} {
		m[id] = &huma.Link{OperationID: id, Parameters: map[string]any{"id": "$response.body#/session_id"}}
	}
	return m
}

// sessionOperations are those on Sessions.
func (f *frontend) sessionOperations() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	const all, one, tag = "/api/v1/sessions", "/api/v1/sessions/{id}", "sessions"
	const files, file = one + "/files", one + "/files/{path}"
	const filePattern = one + "/files/{path...}"
	answer := func(doc string) *huma.Response { return jsonAnswer(doc, ref("Session"), exampleSession) }
	opened := answer("It is open.")
	opened.Links = sessionLinks()
	opened.Headers = map[string]*huma.Param{"Location": {Description: "Where to ask for it.", Schema: typed(huma.TypeString, "")}}
	bodyErrors := []int{400, 408, 413, 415, 422}
	with := func(more ...int) []int { return append(more, bodyErrors...) }
	id, path := []*huma.Param{sessionParam}, []*huma.Param{sessionParam, fileParam}
	read := bytesAnswer("The file.", "application/octet-stream")
	read.Headers = map[string]*huma.Param{
		"Content-Length": {Description: "Its size.", Schema: typed(huma.TypeInteger, "")},
		modeHeader:       {Description: "Its permission bits, in octal.", Schema: typed(huma.TypeString, "")},
	}
	return []route{
		{handler: f.openSession, operation: operation{id: "open-session", method: post, path: all, tag: tag, summary: "Open a session",
			doc:  "A sandbox that outlives an execution: executions with its session_id share its interpreter and its files, one at a time, in order. Answers when the interpreter is ready.",
			body: jsonBody("SessionRequest", true, map[string]any{"name": "analysis"}), success: 201, answer: opened, errors: with(429, 501)}},
		{handler: f.listSessions, operation: operation{id: "list-sessions", method: get, path: all, tag: tag, summary: "List, newest first",
			doc: "The active and lost ones, and those that were closed not long ago.", success: 200, errors: []int{501},
			answer: jsonAnswer("Them.", object("", prop{name: "sessions", schema: array(ref("Session"), "Newest first.")}), nil)}},
		{handler: f.onSession(f.svc.GetSession), operation: operation{id: "get-session", method: get, path: one, tag: tag, summary: "Its state", params: id,
			success: 200, answer: answer("The session."), errors: []int{404, 501}}},
		{handler: f.closeSession, operation: operation{id: "close-session", method: del, path: one, tag: tag, summary: "Close it",
			doc: "What runs is killed, its files are removed. One that was closed before stays so.", params: id, success: 200, errors: []int{404, 501},
			answer: jsonAnswer("It is closed.", object("", prop{name: "status", schema: oneOf("", sessionStatuses)}), map[string]any{"status": "closed"})}},
		{handler: f.restartSession, operation: operation{id: "restart-session", method: post, path: one + "/restart", tag: tag, summary: "Start its interpreter anew",
			doc:    "Names and imports are gone and what runs is killed; what waits goes on, and the files stay unless wipe. Brings a lost session back where its sandbox is still there.",
			params: id, body: jsonBody("RestartRequest", false, map[string]any{"wipe": false}), success: 200, answer: answer("It is restarted."), errors: with(404, 409, 501)}},
		{handler: f.onSession(f.svc.InterruptSession), operation: operation{id: "interrupt-session", method: post, path: one + "/interrupt", tag: tag, summary: "Stop what runs in it",
			doc:    "Answers when that has ended. The interpreter keeps its state, unless it does not stop in time (session_state of the execution). Nothing runs, nothing happens.",
			params: id, success: 200, answer: answer("Nothing of before runs any more."), errors: []int{404, 409, 501}}},
		{handler: f.variables, operation: operation{id: "list-variables", method: get, path: one + "/variables", tag: tag, summary: "The names of its interpreter",
			doc: "Waits for what runs in it. At most 1,000.", params: id, success: 200, errors: []int{404, 409, 429, 501},
			answer: jsonAnswer("Them.", object("", prop{name: "variables", schema: array(variableSchema(), "Sorted by name.")}), nil)}},
		{handler: f.addRequirements, operation: operation{id: "add-requirements", method: post, path: one + "/requirements", tag: tag, summary: "Install more",
			doc: "Without a restart. Waits for what runs in it. If they cannot be had, nothing has changed (422).", params: id,
			body: jsonBody("RequirementsRequest", true, map[string]any{"requirements_txt": "idna"}), success: 200, errors: with(404, 409, 429, 501),
			answer: jsonAnswer("They are there.", object("", prop{name: "resolved_requirements", schema: array(typed(huma.TypeString, ""), "All there are now.")}), nil)}},
		{handler: f.listFiles, operation: operation{id: "list-files", method: get, path: files, tag: tag, summary: "List its files",
			params: []*huma.Param{sessionParam, query("path", "The folder; default: the work folder.", typed(huma.TypeString, "")),
				query("recursive", "All below it.", &huma.Schema{Type: huma.TypeBoolean, Default: false})},
			success: 200, errors: []int{404, 409, 413, 422, 501},
			answer: jsonAnswer("At most 10,000; more is 413.", object("", prop{name: "files", schema: array(ref("File"), "Sorted by path.")}), nil)}},
		{handler: f.readFile, pattern: filePattern, operation: operation{id: "read-file", method: get, path: file, tag: tag, summary: "Download a file",
			params: path, success: 200, answer: read, errors: []int{404, 409, 422, 501}}},
		{handler: f.writeFile, pattern: filePattern, operation: operation{id: "write-file", method: put, path: file, tag: tag, summary: "Upload a file",
			doc:    "The body is the file. It replaces what is there, whole or not at all; folders on its way are made. Too large for the server or for the session's disk is 413.",
			params: path, body: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}},
			success: 200, answer: jsonAnswer("It is there.", ref("File"), nil), errors: with(404, 409, 501)}},
		{handler: f.removeFile, pattern: filePattern, operation: operation{id: "remove-file", method: del, path: file, tag: tag, summary: "Remove a file or a folder",
			doc: "A folder goes with all that is in it.", params: path, success: 204, answer: &huma.Response{Description: "It is gone."}, errors: []int{404, 409, 422, 501}}},
	}
}

var sessionStatuses = []executor.SessionStatus{executor.SessionActive, executor.SessionLost, executor.SessionClosed}

// variableSchema describes a name of an interpreter.
func variableSchema() *huma.Schema {
	return object("",
		prop{name: "name", schema: typed(huma.TypeString, "")},
		prop{name: "type", schema: typed(huma.TypeString, "As the language names it.")},
		prop{name: "preview", schema: typed(huma.TypeString, "A short text form, at most 200 characters.")})
}

// sessionComponents are the schemas of Sessions.
func sessionComponents(m map[string]*huma.Schema, l LimitRange) {
	str, integer, number := huma.TypeString, huma.TypeInteger, huma.TypeNumber
	requests := map[string]struct {
		fields []field
		doc    string
	}{
		"SessionRequest":      {sessionFields(l), "What a session has for its whole life. A value null is an absent one; an unknown key is 422."},
		"RestartRequest":      {restartFields(), "How to restart."},
		"RequirementsRequest": {requirementsFields(), "What to install."},
	}
	for name, r := range requests {
		m[name] = objectSchema(r.fields)
		m[name].Description = r.doc
	}
	needed := m["RequirementsRequest"]
	needed.Required = []string{"requirements_txt"}
	needed.Properties["requirements_txt"].Nullable = false
	needed.Properties["requirements_txt"].Pattern = `^[^\x00]*[^\x00\s][^\x00]*$`
	m["Session"] = object("A sandbox that outlives an execution. Every member is there; what is unknown is null.",
		prop{name: "session_id", schema: typed(str, "Its id, \"ctx-…\".")},
		prop{name: "name", schema: typed(str, "")},
		prop{name: "description", schema: typed(str, "")},
		prop{name: "language", schema: oneOf("", []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell})},
		prop{name: "backend", schema: nullable(typed(str, "The backend that holds it."))},
		prop{name: "generation", schema: nullable(typed(integer, "Which process of the backend holds it, counted from 1."))},
		prop{name: "status", schema: oneOf("active; lost: its interpreter died or its sandbox is gone; closed.", sessionStatuses)},
		prop{name: "reason", schema: nullable(typed(str, "Why it is lost or closed."))},
		prop{name: "created_at", schema: nullable(formatted(str, "date-time", ""))},
		prop{name: "last_used", schema: nullable(formatted(str, "date-time", "The end of its last execution or file operation."))},
		prop{name: "expires_at", schema: nullable(formatted(str, "date-time", "When it is closed unless it is used; null: never, or it is busy."))},
		prop{name: "idle_timeout_seconds", schema: nullable(typed(number, "It is closed when it was not used for so long."))},
		prop{name: "max_life_seconds", schema: nullable(typed(number, "It is closed then, whatever happens."))},
		prop{name: "python_version", schema: nullable(typed(str, "The full version of its interpreter."))},
		prop{name: "resolved_requirements", schema: array(typed(str, ""), "What is installed, \"requests==2.32.3\".")},
		prop{name: "image_digest", schema: nullable(typed(str, "Digest of its image, on backends with images."))},
		prop{name: "limits", schema: object("What holds for it; timeout_seconds, output_bytes and kill_grace_seconds are the defaults of its executions.",
			prop{name: "timeout_seconds", schema: typed(number, "")}, prop{name: "memory_mb", schema: typed(number, "")},
			prop{name: "disk_mb", schema: typed(number, "")}, prop{name: "cpu_shares", schema: typed(integer, "")},
			prop{name: "pids", schema: typed(integer, "")}, prop{name: "output_bytes", schema: formatted(integer, "int64", "")},
			prop{name: "kill_grace_seconds", schema: typed(number, "")})},
		prop{name: "restarts", schema: typed(integer, "How often its interpreter was started again.")},
		prop{name: "running", schema: nullable(typed(str, "The execution that runs in it now."))},
		prop{name: "waiting", schema: typed(integer, "How many executions wait behind it.")},
	)
	m["File"] = object("An entry of a work folder.",
		prop{name: "path", schema: typed(str, "Relative to the work folder, with slashes.")},
		prop{name: "directory", schema: typed(huma.TypeBoolean, "")},
		prop{name: "size_bytes", schema: formatted(integer, "int64", "")},
		prop{name: "mode", schema: typed(integer, "Its permission bits, as a number.")},
		prop{name: "mod_time", schema: nullable(formatted(str, "date-time", ""))})
}
