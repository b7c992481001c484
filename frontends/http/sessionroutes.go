package httpfrontend

import (
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// routes returns all operations.
func (f *frontend) routes() []route {
	return slices.Concat(f.operations(), f.sessionOperations(), f.scriptOperations())
}

var (
	sessionParam = &huma.Param{Name: "id", In: "path", Required: true, Description: "Id of the session.", Schema: typed(huma.TypeString, ""), Example: exampleSessionID}
	fileParam    = &huma.Param{Name: "path", In: "path", Required: true, Example: "data/rows.csv", Schema: typed(huma.TypeString, ""),
		Description: "Path of the file, relative to the work folder. It may contain slashes, escaped or not."}
)

const exampleSessionID = "ctx-6f1c0a3e-8f0b-4c1d-9b1e-2f6f8b6f0a11"

// exampleSession is the Session in the description.
func exampleSession() pyexec.Session {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return pyexec.Session{
		SessionID: exampleSessionID, Name: "analysis", Language: "python", Backend: "uv", Generation: 1, Status: pyexec.SessionActive,
		CreatedAt: at, ExpiresAt: at.Add(30 * time.Minute), IdleTimeoutSeconds: 1800, MaxLifeSeconds: 86400, PythonVersion: "3.12.1", ResolvedRequirements: []string{},
		Limits: pyexec.Limits{TimeoutSeconds: 300, MemoryMB: 1024, DiskMB: 2048, CPUShares: 1024, PIDs: 256, OutputBytes: 67108864, KillGraceSeconds: 1},
	}
}

// jsonBody describes a JSON body.
func jsonBody(schema string, required bool, example any) *huma.RequestBody {
	return &huma.RequestBody{Required: required, Content: map[string]*huma.MediaType{"application/json": {Schema: ref(schema), Example: example}}}
}

// sessionLinks returns the links from a new session to the operations on it.
func sessionLinks() map[string]*huma.Link {
	m := map[string]*huma.Link{}
	for _, id := range []string{"get-session", "close-session", "restart-session", "interrupt-session", "list-variables", "list-files"} {
		m[id] = &huma.Link{OperationID: id, Parameters: map[string]any{"id": "$response.body#/session_id"}}
	}
	return m
}

// sessionOperations returns the operations on sessions.
func (f *frontend) sessionOperations() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	const all, one, tag = "/api/v1/sessions", "/api/v1/sessions/{id}", "sessions"
	const files, file = one + "/files", one + "/files/{path}"
	const filePattern = one + "/files/{path...}"
	answer := func(doc string) *huma.Response { return jsonAnswer(doc, ref("Session"), exampleSession()) }
	opened := answer("The session is open.")
	opened.Links = sessionLinks()
	opened.Headers = map[string]*huma.Param{"Location": {Description: "URL of the session.", Schema: typed(huma.TypeString, "")}}
	bodyErrors := []int{400, 408, 413, 415, 422}
	with := func(more ...int) []int { return append(more, bodyErrors...) }
	id, path := []*huma.Param{sessionParam}, []*huma.Param{sessionParam, fileParam}
	read := bytesAnswer("The file.", "application/octet-stream")
	read.Headers = map[string]*huma.Param{
		"Content-Length": {Description: "Size of the file.", Schema: typed(huma.TypeInteger, "")},
		modeHeader:       {Description: "Permission bits of the file, in octal.", Schema: typed(huma.TypeString, "")},
	}
	return []route{
		{handler: f.openSession, operation: operation{id: "open-session", method: post, path: all, tag: tag, summary: "Open a session",
			doc:  "A session is a sandbox that outlives an execution. Executions with its session_id share its interpreter and its files, one at a time, in order. The answer comes when the interpreter is ready.",
			body: jsonBody("SessionRequest", true, pyexec.SessionSpec{Name: "analysis"}), success: 201, answer: opened, errors: with(429, 501)}},
		{handler: f.listSessions, operation: operation{id: "list-sessions", method: get, path: all, tag: tag, summary: "List sessions, newest first",
			doc: "Active and lost sessions, and those that were closed recently.", success: 200, errors: []int{501},
			answer: jsonAnswer("The sessions.", schemaOf[pyexec.SessionList](""), nil)}},
		{handler: sessionCall(f.svc.GetSession), operation: operation{id: "get-session", method: get, path: one, tag: tag, summary: "Get a session", params: id,
			success: 200, answer: answer("The session."), errors: []int{404, 501}}},
		{handler: onSession(f.closeSession), operation: operation{id: "close-session", method: del, path: one, tag: tag, summary: "Close a session",
			doc: "The running execution is killed and the files are removed. A closed session stays closed.", params: id, success: 200, errors: []int{404, 501},
			answer: jsonAnswer("The session is closed.", schemaOf[pyexec.Closed](""), pyexec.Closed{Status: pyexec.SessionClosed})}},
		{handler: onSession(f.restartSession), operation: operation{id: "restart-session", method: post, path: one + "/restart", tag: tag, summary: "Restart the interpreter",
			doc:    "Names and imports are lost and the running execution is killed. Waiting executions stay, and so do the files unless wipe is true. A lost session is active again if its sandbox still exists.",
			params: id, body: jsonBody("RestartRequest", false, pyexec.Restart{}), success: 200, answer: answer("The interpreter is restarted."), errors: with(404, 409, 501)}},
		{handler: sessionCall(f.svc.InterruptSession), operation: operation{id: "interrupt-session", method: post, path: one + "/interrupt", tag: tag, summary: "Interrupt the running execution",
			doc:    "The answer comes when the execution has ended. The interpreter keeps its state unless it does not stop in time (session_state of the execution). If nothing runs, the call has no effect.",
			params: id, success: 200, answer: answer("The execution has ended."), errors: []int{404, 409, 501}}},
		{handler: onSession(f.variables), operation: operation{id: "list-variables", method: get, path: one + "/variables", tag: tag, summary: "List the names of the interpreter",
			doc: "Waits for the running execution. At most 1,000 names.", params: id, success: 200, errors: []int{404, 409, 429, 501},
			answer: jsonAnswer("The names.", schemaOf[pyexec.VariableList](""), nil)}},
		{handler: onSession(f.addRequirements), operation: operation{id: "add-requirements", method: post, path: one + "/requirements", tag: tag, summary: "Install requirements",
			doc: "The interpreter is not restarted. Waits for the running execution. If a requirement cannot be installed (422), nothing has changed.", params: id,
			body: jsonBody("RequirementsRequest", true, pyexec.Requirements{RequirementsTxt: "idna"}), success: 200, errors: with(404, 409, 429, 501),
			answer: jsonAnswer("The requirements are installed.", schemaOf[pyexec.Installed](""), nil)}},
		{handler: onSession(f.listFiles), operation: operation{id: "list-files", method: get, path: files, tag: tag, summary: "List files",
			params:  append([]*huma.Param{sessionParam}, queryParams[pyexec.FilesOptions]()...),
			success: 200, errors: []int{404, 409, 413, 422, 501},
			answer: jsonAnswer("At most 10,000 files. More are 413.", schemaOf[pyexec.FileList](""), nil)}},
		{handler: onFile(f.readFile), pattern: filePattern, operation: operation{id: "read-file", method: get, path: file, tag: tag, summary: "Download a file",
			params: path, success: 200, answer: read, errors: []int{404, 409, 422, 501}}},
		{handler: onFile(f.writeFile), pattern: filePattern, operation: operation{id: "write-file", method: put, path: file, tag: tag, summary: "Upload a file",
			doc:    "The body is the file. It replaces an existing file as a whole or not at all. Missing folders are made. mode sets its permission bits. With directory a folder is made. A file that is too large for the server or for the disk of the session is 413.",
			params: append(path[:2:2], queryParams[pyexec.WriteOptions]()...), body: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}},
			success: 200, answer: jsonAnswer("The file is written.", ref("File"), nil), errors: with(404, 409, 501)}},
		{handler: onFile(f.removeFile), pattern: filePattern, operation: operation{id: "remove-file", method: del, path: file, tag: tag, summary: "Remove a file or a folder",
			doc: "A folder is removed with everything in it.", params: path, success: 204, answer: &huma.Response{Description: "The file or folder is removed."}, errors: []int{404, 409, 422, 501}}},
	}
}
