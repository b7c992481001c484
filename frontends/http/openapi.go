package httpfrontend

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
)

// apiVersion is the version of the API, not of the program that serves it (that one is in /healthz).
const apiVersion = "1.0.0"

// newConfig is huma's configuration: no links and $schema in bodies, no pages of its own (its /docs loads scripts from
// elsewhere).
func newConfig() huma.Config {
	c := huma.DefaultConfig("python-executor", apiVersion)
	c.CreateHooks = nil
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.Info.Description = "Runs Python for real: code, files, requirements and limits in, output and a Result out.\n\n" +
		"Errors are application/problem+json (RFC 9457) with a code; 503 and 429 carry Retry-After and mean: again, later."
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.Servers = []*huma.Server{{URL: "/"}}
	c.Tags = []*huma.Tag{
		{Name: "execute", Description: "Run something."},
		{Name: "executions", Description: "What became of it."},
		{Name: "sessions", Description: "State that lives between executions."},
		{Name: "scripts", Description: "Scripts of the server's host, by allow-list."},
		{Name: "server", Description: "The server itself."},
	}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "A token of the configuration. A server without tokens asks for none."},
	}
	return c
}

// statusDocs says what each error status means here.
var statusDocs = map[int]string{
	http.StatusBadRequest:            "The body is broken: malformed multipart, a missing part, metadata that is not JSON.",
	http.StatusUnauthorized:          "No token, or a wrong one.",
	http.StatusForbidden:             "The token lacks a scope; or the request comes from another origin, or was sent to a name that is not loopback on a server without tokens.",
	http.StatusNotFound:              "There is no such thing, or it is somebody else's.",
	http.StatusRequestTimeout:        "The client sent nothing for too long.",
	http.StatusConflict:              "It contradicts the present state.",
	http.StatusGone:                  "Retention has removed it.",
	http.StatusRequestEntityTooLarge: "The body, the metadata, a JSON body or a list is too large.",
	http.StatusUnsupportedMediaType:  "Not a type that is taken here (multipart/form-data, application/json); or something is compressed.",
	http.StatusUnprocessableEntity:   "A field is unknown, wrong, or above the server's maximum; errors names every one.",
	http.StatusTooManyRequests:       "The queue is full, of the server or of the session. Nothing was read of a tar.",
	http.StatusInternalServerError:   "A bug or a broken machine; the server's log has the detail under request_id.",
	http.StatusNotImplemented:        "The backend cannot do or enforce what was asked; errors names it.",
	http.StatusServiceUnavailable:    "A part of the server is away. The same request may succeed later.",
}

var (
	execErrors = []int{400, 404, 408, 409, 413, 415, 422, 429, 501}
	oneErrors  = []int{404, 410}
	// alwaysErrors can befall every operation, tokenErrors every one that needs a token.
	alwaysErrors = []int{403, 500}
	tokenErrors  = []int{401, 503}
)

// operation describes one operation. path holds OpenAPI's form of the path.
type operation struct {
	id, method, path, summary, doc, tag string
	params                              []*huma.Param
	body                                *huma.RequestBody
	success                             int
	answer                              *huma.Response
	errors                              []int
	// open: it needs no token.
	open bool
	// scriptErrors have a body of the test-start specification, too.
	scriptErrors []int
}

func (o operation) huma() *huma.Operation {
	op := &huma.Operation{OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Description: o.doc, Tags: []string{o.tag},
		Parameters: o.params, RequestBody: o.body, Responses: map[string]*huma.Response{strconv.Itoa(o.success): o.answer}}
	statuses := append(slices.Clone(o.errors), alwaysErrors...)
	if !o.open {
		statuses = append(statuses, tokenErrors...)
		op.Security = []map[string][]string{{"bearer": {}}, {}}
	} else {
		op.Security = []map[string][]string{}
	}
	for _, status := range statuses {
		r := &huma.Response{Description: statusDocs[status], Content: map[string]*huma.MediaType{"application/problem+json": {Schema: ref("Problem")}}}
		switch status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			r.Headers = map[string]*huma.Param{"Retry-After": {Description: "Seconds to wait.", Schema: typed(huma.TypeInteger, "")}}
		case http.StatusUnauthorized:
			r.Headers = map[string]*huma.Param{"WWW-Authenticate": {Description: "Bearer.", Schema: typed(huma.TypeString, "")}}
		}
		op.Responses[strconv.Itoa(status)] = r
	}
	for _, status := range o.scriptErrors {
		op.Responses[strconv.Itoa(status)].Content["application/json"] = &huma.MediaType{Schema: scriptErrorSchema()}
	}
	return op
}

func jsonAnswer(doc string, schema *huma.Schema, example any) *huma.Response {
	return &huma.Response{Description: doc, Content: map[string]*huma.MediaType{"application/json": {Schema: schema, Example: example}}}
}

func bytesAnswer(doc, mediaType string) *huma.Response {
	return &huma.Response{Description: doc, Content: map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}
}

var idParam = &huma.Param{Name: "id", In: "path", Required: true, Description: "The Execution's id.", Schema: typed(huma.TypeString, ""), Example: "exe_01j9zq3k5h8v6t2m4n7p0r1s3w"}

func query(name, doc string, schema *huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: schema}
}

// execBody documents both forms of a request to execute.
func execBody() *huma.RequestBody {
	parts := &huma.Schema{Type: huma.TypeObject, Required: []string{"metadata"}, AdditionalProperties: false, Properties: map[string]*huma.Schema{
		"metadata": ref("Metadata"),
		"tar":      {Type: huma.TypeString, Format: "binary", Description: "An uncompressed tar of the work folder. May be left out with code or command."},
		"stdin":    {Type: huma.TypeString, Format: "binary", Description: "The program's standard input, as bytes."},
	}}
	return &huma.RequestBody{
		Required: true,
		Description: "multipart/form-data with metadata and tar in either order (metadata first is streamed and touches no disk) and optionally stdin; " +
			"or application/json (at most 32 MiB) with the metadata's fields and code, command or files.",
		Content: map[string]*huma.MediaType{
			"multipart/form-data": {Schema: parts, Encoding: map[string]*huma.Encoding{
				"metadata": {ContentType: "application/json"},
				"tar":      {ContentType: "application/x-tar"},
				"stdin":    {ContentType: "application/octet-stream"},
			}},
			"application/json": {Schema: ref("ExecRequest"), Examples: map[string]*huma.Example{
				"code":  {Summary: "A line of code", Value: map[string]any{"code": "print(1)"}},
				"files": {Summary: "Files and limits", Value: map[string]any{"files": map[string]any{"main.py": "import sys\nprint(sys.argv)\n"}, "args": []string{"a"}, "config": map[string]any{"timeout_seconds": 10, "memory_mb": 256}}},
			}},
		},
	}
}

// links lead from an answer that has an execution_id to what can be asked about it.
func links() map[string]*huma.Link {
	m := map[string]*huma.Link{}
	for _, id := range []string{"get-execution", "cancel-execution", "follow-events", "read-logs", "get-artifacts"} {
		m[id] = &huma.Link{OperationID: id, Parameters: map[string]any{"id": "$response.body#/execution_id"}}
	}
	return m
}

var exampleResult = map[string]any{
	"execution_id": "exe_01j9zq3k5h8v6t2m4n7p0r1s3w", "session_id": nil, "status": "succeeded", "exit_code": 0, "signal": nil, "stdout": "1\n", "stderr": "",
	"stdout_base64": nil, "stderr_base64": nil, "displays": []any{}, "displays_truncated": false, "displays_dropped": 0, "session_state": nil, "stdout_bytes": 2, "stderr_bytes": 0, "stdout_truncated": false, "stderr_truncated": false, "attempts": 1,
	"created_at": "2026-11-21T12:00:00Z", "started_at": "2026-11-21T12:00:00.004Z", "finished_at": "2026-11-21T12:00:00.031Z",
	"duration_seconds": 0.025, "cpu_seconds": 0.019, "peak_memory_bytes": 9437184,
	"phases":  map[string]any{"queue_seconds": 0.0, "prepare_seconds": 0.004, "run_seconds": 0.025, "collect_seconds": 0.001},
	"backend": "uv", "python_version": "3.12.1", "resolved_requirements": []string{}, "artifacts": []any{}, "error": nil,
}

// operations are all operations with their handlers and the patterns of their paths where those differ.
func (f *frontend) operations() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	const one = "/api/v1/executions/{id}"
	result := jsonAnswer("The Result.", ref("Result"), exampleResult)
	ran := jsonAnswer("The Result.", ref("Result"), exampleResult)
	ran.Links = links()
	return []route{
		{handler: f.execSync, operation: operation{id: "exec-sync", method: post, path: "/api/v1/exec/sync", tag: "execute", summary: "Run and wait for the Result",
			doc: "A program that fails is 200: its status and exit_code say so, and so is one that was lost (status lost). A tar that is broken or hostile is 422 with the execution_id. " +
				"A client that disconnects kills its Execution.",
			body: execBody(), success: 200, answer: ran, errors: append([]int{410}, execErrors...)}},
		{handler: f.execAsync, operation: operation{id: "exec-async", method: post, path: "/api/v1/exec/async", tag: "execute", summary: "Accept and return the id",
			doc: "Returned when the Spec and the tar are on the server's disk.", body: execBody(), success: 202,
			answer: &huma.Response{Description: "Accepted.", Links: links(), Headers: map[string]*huma.Param{"Location": {Description: "Where to ask for it.", Schema: typed(huma.TypeString, "")}},
				Content: map[string]*huma.MediaType{"application/json": {Schema: object("", prop{name: "execution_id", schema: typed(huma.TypeString, "")})}}}, errors: execErrors}},
		{handler: f.listExecutions, operation: operation{id: "list-executions", method: get, path: "/api/v1/executions", tag: "executions", summary: "List, newest first",
			params: []*huma.Param{
				query("status", "Only these statuses; may be given more than once.", array(oneOf("", executor.Statuses()), "")),
				query("limit", "The most that a page holds. A page may be shorter; next says whether another one follows.", &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(float64(maxPage)), Default: defaultPage}),
				query("after", "next of the page before.", &huma.Schema{Type: huma.TypeString, Pattern: `^(exe_[0-9a-z]{26})?$`}),
			}, success: 200, answer: jsonAnswer("A page.", ref("ExecutionList"), nil), errors: []int{422}}},
		{handler: f.getExecution, operation: operation{id: "get-execution", method: get, path: one, tag: "executions", summary: "The state and the output so far",
			params: []*huma.Param{idParam}, success: 200, answer: result, errors: oneErrors}},
		{handler: f.cancelExecution, operation: operation{id: "cancel-execution", method: del, path: one, tag: "executions", summary: "Kill it",
			doc: "Answers when it has ended. One that had ended already keeps its status.", params: []*huma.Param{idParam}, success: 200,
			answer: jsonAnswer("How it ended.", object("", prop{name: "status", schema: oneOf("", executor.Statuses())}), map[string]any{"status": "killed"}), errors: oneErrors}},
		{handler: f.events, operation: operation{id: "follow-events", method: get, path: one + "/events", tag: "executions", summary: "Follow what happens (Server-Sent Events)",
			doc: "id is the Event's number, event its kind (queued, progress, started, output, display, finished; unknown ones may come), data JSON. " +
				"output: {stream, offset, data} or {stream, offset, data_base64}, and earlier: true where it was written before this execution began; " +
				"display: {data: {type: text or {base64}}, value}; finished: the Result without the output. A comment at least every 15 s. Ends after finished.",
			params: []*huma.Param{idParam, query("after", "Go on behind this event.", &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(0.0)}),
				{Name: "Last-Event-ID", In: "header", Description: "As after, and wins over it.", Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(0.0)}}},
			success: 200, answer: &huma.Response{Description: "The events.", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: object("One event.",
				prop{name: "id", schema: typed(huma.TypeString, "The Event's number.")},
				prop{name: "event", schema: typed(huma.TypeString, "Its kind.")},
				prop{name: "data", schema: typed(huma.TypeString, "JSON.")})}}},
			errors: append([]int{422}, oneErrors...)}},
		{handler: f.logs, operation: operation{id: "read-logs", method: get, path: one + "/logs", tag: "executions", summary: "The raw output",
			params: []*huma.Param{idParam,
				query("stream", "", &huma.Schema{Type: huma.TypeString, Enum: []any{"stdout", "stderr", "both"}, Default: "both"}),
				query("follow", "Stay until the end.", &huma.Schema{Type: huma.TypeBoolean, Default: false})},
			success: 200, answer: bytesAnswer("The bytes, in the order they were written.", "application/octet-stream"), errors: append([]int{422}, oneErrors...)}},
		{handler: f.artifacts, operation: operation{id: "get-artifacts", method: get, path: one + "/artifacts", tag: "executions", summary: "All artifacts, as a tar",
			params: []*huma.Param{idParam}, success: 200, answer: bytesAnswer("An uncompressed tar.", "application/x-tar"), errors: append([]int{409}, oneErrors...)}},
		{handler: f.artifact, pattern: one + "/artifacts/{path...}", operation: operation{id: "get-artifact", method: get, path: one + "/artifacts/{path}", tag: "executions", summary: "One artifact",
			params:  []*huma.Param{idParam, {Name: "path", In: "path", Required: true, Description: "Its path as in artifacts; may hold slashes.", Schema: typed(huma.TypeString, ""), Example: "report.txt"}},
			success: 200, answer: bytesAnswer("The file.", "application/octet-stream"), errors: append([]int{409}, oneErrors...)}},
		{handler: f.backends, operation: operation{id: "list-backends", method: get, path: "/api/v1/backends", tag: "server", summary: "The backends and what they promise",
			success: 200, answer: jsonAnswer("Every configured backend.", ref("Backends"), nil)}},
		{handler: f.healthz, operation: operation{id: "healthz", method: get, path: "/healthz", tag: "server", summary: "The process is up", open: true, success: 200,
			answer: jsonAnswer("It is.", object("", prop{name: "ok", schema: typed(huma.TypeBoolean, "")}, prop{name: "name", schema: typed(huma.TypeString, "")}, prop{name: "version", schema: typed(huma.TypeString, "")}),
				map[string]any{"ok": true, "name": programName, "version": "1.0.0"})}},
		{handler: f.readyz, operation: operation{id: "readyz", method: get, path: "/readyz", tag: "server", summary: "Work would be accepted", open: true, success: 200,
			answer: jsonAnswer("It would.", object("", prop{name: "ready", schema: typed(huma.TypeBoolean, "")}), map[string]any{"ready": true}), errors: []int{503}}},
		{handler: f.metrics, operation: operation{id: "metrics", method: get, path: "/metrics", tag: "server", summary: "Prometheus metrics", doc: "Needs the scope admin where there are tokens.", success: 200,
			answer: &huma.Response{Description: "The metrics.", Content: map[string]*huma.MediaType{"text/plain": {Schema: typed(huma.TypeString, "")}}}, errors: []int{404}}},
		{handler: f.openAPI, operation: operation{id: "openapi", method: get, path: "/openapi.json", tag: "server", summary: "This description", open: true, success: 200,
			answer: jsonAnswer("OpenAPI 3.1.", typed(huma.TypeObject, ""), nil)}},
		{handler: f.docsPage, operation: operation{id: "docs", method: get, path: "/docs", tag: "server", summary: "This description, for people", open: true, success: 200,
			answer: &huma.Response{Description: "A page.", Content: map[string]*huma.MediaType{"text/html": {Schema: typed(huma.TypeString, "")}}}}},
	}
}
