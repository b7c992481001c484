package httpfrontend

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// apiVersion is the version of the API. The version of the program is in /healthz.
const apiVersion = "1.0.0"

// newConfig returns the configuration of huma. Bodies have no $schema, and huma serves no page: its /docs loads scripts from other
// servers.
func newConfig() huma.Config {
	c := huma.DefaultConfig("python-executor", apiVersion)
	c.CreateHooks = nil
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.Info.Description = "Runs programs in sandboxes. A request has code or files, requirements and limits. The answer has the output and a Result.\n\n" +
		"Errors are application/problem+json (RFC 9457) with a code. After 503 and 429 the same request may succeed later; Retry-After says when."
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.Servers = []*huma.Server{{URL: "/"}}
	c.Tags = []*huma.Tag{
		{Name: "execute", Description: "Run programs."},
		{Name: "executions", Description: "Read and cancel executions."},
		{Name: "sessions", Description: "Sandboxes with state that outlives an execution."},
		{Name: "scripts", Description: "Allow-listed scripts of the server's host."},
		{Name: "server", Description: "The server itself."},
	}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "A token of the server's configuration. A server without tokens needs none."},
	}
	return c
}

// statusDocs describes the error statuses.
var statusDocs = map[int]string{
	http.StatusBadRequest:            "The body is malformed: broken multipart, a missing part, or metadata that is not JSON.",
	http.StatusUnauthorized:          "The token is missing or wrong.",
	http.StatusForbidden:             "The token lacks a scope. Or the request comes from another origin, or a server without tokens was called by a name that is not loopback.",
	http.StatusNotFound:              "The object does not exist, or another owner has it.",
	http.StatusRequestTimeout:        "The client sent nothing for too long.",
	http.StatusConflict:              "The request contradicts the present state.",
	http.StatusGone:                  "Retention has removed the object.",
	http.StatusRequestEntityTooLarge: "The body, the metadata, a JSON body or a list is too large.",
	http.StatusUnsupportedMediaType:  "The media type must be multipart/form-data or application/json, and nothing may be compressed.",
	http.StatusUnprocessableEntity:   "A field is unknown, wrong, or above the server's maximum. errors names every such field.",
	http.StatusTooManyRequests:       "The queue of the server or of the session is full. The server read nothing of the tar.",
	http.StatusInternalServerError:   "A bug or a broken machine. The server's log has the detail under request_id.",
	http.StatusNotImplemented:        "The backend cannot do or enforce a part of the request. errors names it.",
	http.StatusServiceUnavailable:    "A part of the server is not available. The same request may succeed later.",
}

var (
	execErrors = []int{400, 404, 408, 409, 413, 415, 422, 429, 501}
	oneErrors  = []int{404, 410}
	// alwaysErrors are possible in every operation, tokenErrors in those that need a token.
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
	// open reports whether the operation needs no token.
	open bool
	// scriptErrors also have a body of the test-start specification.
	scriptErrors []int
}

// strictQuery reports whether an unknown query parameter is refused. Requests for probes and pages may have any.
func (o operation) strictQuery() bool {
	return strings.HasPrefix(o.path, "/api/v1/") || len(o.scriptErrors) > 0
}

// queryShape returns the query parameters as the members of a shape.
func (o operation) queryShape() shape {
	s := shape{}
	for _, p := range o.params {
		if p.In == "query" {
			s[p.Name] = &rule{}
		}
	}
	return s
}

func (o operation) huma() *huma.Operation {
	op := &huma.Operation{OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Description: o.doc, Tags: []string{o.tag},
		Parameters: o.params, RequestBody: o.body, Responses: map[string]*huma.Response{strconv.Itoa(o.success): o.answer}}
	statuses := append(slices.Clone(o.errors), alwaysErrors...)
	if o.strictQuery() {
		statuses = append(statuses, http.StatusUnprocessableEntity)
	}
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
	if r := op.Responses[strconv.Itoa(http.StatusServiceUnavailable)]; r != nil && o.body != nil && o.body.Content["application/json"] != nil {
		r.Description += " Or request bodies in memory have used up http.max_buffered_bytes."
	}
	for _, status := range o.scriptErrors {
		op.Responses[strconv.Itoa(status)].Content["application/json"] = &huma.MediaType{Schema: schemaOf[scriptProblem]("")}
	}
	return op
}

func jsonAnswer(doc string, schema *huma.Schema, example any) *huma.Response {
	return &huma.Response{Description: doc, Content: map[string]*huma.MediaType{"application/json": {Schema: schema, Example: example}}}
}

func bytesAnswer(doc, mediaType string) *huma.Response {
	return &huma.Response{Description: doc, Content: map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}
}

const exampleID = "exe_01j9zq3k5h8v6t2m4n7p0r1s3w"

var idParam = &huma.Param{Name: "id", In: "path", Required: true, Description: "Id of the execution.", Schema: typed(huma.TypeString, ""), Example: exampleID}

func query(name, doc string, schema *huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: schema}
}

// batchBody describes both forms of a request for a batch.
func batchBody() *huma.RequestBody {
	body := execBody()
	body.Description = "As for a single program, with cases. The metadata and their cases have at most 32 MiB. All cases read one tar, which is kept on disk meanwhile."
	body.Content["multipart/form-data"].Schema.Properties["metadata"] = ref("BatchMetadata")
	body.Content["application/json"] = &huma.MediaType{Schema: ref("BatchRequest"), Example: map[string]any{"code": "print(2 * int(input()))",
		"cases": []map[string]any{{"stdin": "21\n", "expect": map[string]any{"stdout": "42", "compare": "lines"}}}}}
	return body
}

// batchEnd is the last record of a batch.
type batchEnd struct {
	Summary pyexec.BatchSummary `json:"summary"`
}

// execBody describes both forms of a request to execute.
func execBody() *huma.RequestBody {
	parts := &huma.Schema{Type: huma.TypeObject, Required: []string{"metadata"}, AdditionalProperties: false, Properties: map[string]*huma.Schema{
		"metadata": ref("Metadata"),
		"tar":      {Type: huma.TypeString, Format: "binary", Description: "An uncompressed tar of the work folder. Optional with code or command."},
		"stdin":    {Type: huma.TypeString, Format: "binary", Description: "The program's standard input, as bytes."},
	}}
	return &huma.RequestBody{
		Required: true,
		Description: "multipart/form-data with metadata, tar and optionally stdin. With metadata first, the tar is streamed and touches no disk. " +
			"Or application/json (at most 32 MiB) with the fields of the metadata and code, command or files.",
		Content: map[string]*huma.MediaType{
			"multipart/form-data": {Schema: parts, Encoding: map[string]*huma.Encoding{
				"metadata": {ContentType: "application/json"},
				"tar":      {ContentType: "application/x-tar"},
				"stdin":    {ContentType: "application/octet-stream"},
			}},
			"application/json": {Schema: ref("ExecRequest"), Examples: map[string]*huma.Example{
				"code":  {Summary: "A line of code", Value: pyexec.Spec{Code: "print(1)"}},
				"files": {Summary: "Files and limits", Value: map[string]any{"files": map[string]any{"main.py": "import sys\nprint(sys.argv)\n"}, "args": []string{"a"}, "config": map[string]any{"timeout_seconds": 10, "memory_mb": 256}}},
			}},
		},
	}
}

// links returns the links from an answer with an execution_id to the operations on that execution.
func links() map[string]*huma.Link {
	m := map[string]*huma.Link{}
	for _, id := range []string{"get-execution", "cancel-execution", "follow-events", "read-logs", "get-artifacts"} {
		m[id] = &huma.Link{OperationID: id, Parameters: map[string]any{"id": "$response.body#/execution_id"}}
	}
	return m
}

// exampleResult is the Result in the description.
func exampleResult() pyexec.Execution {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return pyexec.Execution{
		ExecutionID: exampleID, Status: pyexec.StatusSucceeded, ExitCode: new(0), Stdout: "1\n", Displays: []pyexec.DisplayForm{}, StdoutBytes: 2, Attempts: 1,
		CreatedAt: at, StartedAt: at.Add(4 * time.Millisecond), FinishedAt: at.Add(31 * time.Millisecond), DurationSeconds: new(0.025), CPUSeconds: new(0.019),
		PeakMemoryBytes: new(int64(9437184)), PeakResidentBytes: new(int64(14680064)),
		Phases:  pyexec.Phases{QueueSeconds: new(0.0), PrepareSeconds: new(0.004), RunSeconds: new(0.025), CollectSeconds: new(0.001)},
		Backend: "uv", PythonVersion: "3.12.1", Start: "fork", ResolvedRequirements: []string{}, Artifacts: []pyexec.Artifact{},
	}
}

// operations returns the operations on executions and on the server, with their handlers.
func (f *frontend) operations() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	const one = "/api/v1/executions/{id}"
	result := jsonAnswer("The Result.", ref("Result"), exampleResult())
	ran := jsonAnswer("The Result.", ref("Result"), exampleResult())
	ran.Links = links()
	return []route{
		{handler: f.execSync, operation: operation{id: "exec-sync", method: post, path: "/api/v1/exec/sync", tag: "execute", summary: "Run a program and wait for its Result",
			doc: "A program that fails or is lost is 200: status and exit_code tell. A broken or hostile tar is 422 with the execution_id. " +
				"A client that disconnects kills its execution.",
			body: execBody(), success: 200, answer: ran, errors: append([]int{410}, execErrors...)}},
		{handler: f.execBatch, operation: operation{id: "exec-batch", method: post, path: "/api/v1/exec/batch", tag: "execute", summary: "Run a program for many cases and judge each of them",
			doc: "The answer is NDJSON: a record for each case as it ends, and last the summary. Without the summary the answer is not whole. An empty line comes at least every 15 s. " +
				"Each case is an execution with its own id, sandbox and log. What is wrong before the first case is accepted is a problem, and no case has run. " +
				"A client that disconnects cancels the cases that run. With an idempotency_key (at most 240 bytes) a repeated batch takes over the cases that have ended, and runs the others.",
			body: batchBody(), success: 200, answer: &huma.Response{Description: "The records.", Content: map[string]*huma.MediaType{"application/x-ndjson": {Schema: ref("BatchRecord")}}},
			errors: execErrors}},
		{handler: f.execAsync, operation: operation{id: "exec-async", method: post, path: "/api/v1/exec/async", tag: "execute", summary: "Accept a program and return the id of its execution",
			doc: "The answer comes when the Spec and the tar are on the server's disk.", body: execBody(), success: 202,
			answer: &huma.Response{Description: "Accepted.", Links: links(), Headers: map[string]*huma.Param{"Location": {Description: "URL of the execution.", Schema: typed(huma.TypeString, "")}},
				Content: map[string]*huma.MediaType{"application/json": {Schema: schemaOf[pyexec.Accepted]("")}}}, errors: execErrors}},
		{handler: f.listExecutions, operation: operation{id: "list-executions", method: get, path: "/api/v1/executions", tag: "executions", summary: "List executions, newest first",
			params: queryParams[pyexec.ListOptions](), success: 200, answer: jsonAnswer("A page.", ref("ExecutionList"), nil), errors: []int{422}}},
		{handler: onExecution(f.getExecution), operation: operation{id: "get-execution", method: get, path: one, tag: "executions", summary: "Get the state and the output so far",
			params: []*huma.Param{idParam}, success: 200, answer: result, errors: oneErrors}},
		{handler: onExecution(f.cancelExecution), operation: operation{id: "cancel-execution", method: del, path: one, tag: "executions", summary: "Cancel an execution",
			doc: "The answer comes when the execution has ended. An execution that had already ended keeps its status.", params: []*huma.Param{idParam}, success: 200,
			answer: jsonAnswer("The final status.", schemaOf[pyexec.Cancelled](""), pyexec.Cancelled{Status: pyexec.StatusKilled}), errors: oneErrors}},
		{handler: onExecution(f.events), operation: operation{id: "follow-events", method: get, path: one + "/events", tag: "executions", summary: "Follow the events (Server-Sent Events)",
			doc: "id is the number of the event. event is its kind: queued, progress, started, output, display or finished; later versions may add kinds. data is JSON. " +
				"output: {stream, offset, data} or {stream, offset, data_base64}, with earlier: true if it was written before this execution began. " +
				"display: {data: {type: text or {base64}}, value}. finished: the Result without the output. A comment comes at least every 15 s. The stream ends after finished.",
			params: []*huma.Param{idParam, query("after", "Number of the last event that the client has.", &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(0.0)}),
				{Name: "Last-Event-ID", In: "header", Description: "As after. It has precedence over after.", Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(0.0)}}},
			success: 200, answer: &huma.Response{Description: "The events.", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: schemaOf[sentEvent]("One event.")}}},
			errors: append([]int{422}, oneErrors...)}},
		{handler: onExecution(f.logs), operation: operation{id: "read-logs", method: get, path: one + "/logs", tag: "executions", summary: "Read the raw output",
			params:  append([]*huma.Param{idParam}, queryParams[pyexec.LogsOptions]()...),
			success: 200, answer: bytesAnswer("The bytes, in the order in which they were written.", "application/octet-stream"), errors: append([]int{422}, oneErrors...)}},
		{handler: onExecution(f.artifacts), operation: operation{id: "get-artifacts", method: get, path: one + "/artifacts", tag: "executions", summary: "Download all artifacts as a tar",
			params: []*huma.Param{idParam}, success: 200, answer: bytesAnswer("An uncompressed tar.", "application/x-tar"), errors: append([]int{409}, oneErrors...)}},
		{handler: onExecution(f.artifact), pattern: one + "/artifacts/{path...}", operation: operation{id: "get-artifact", method: get, path: one + "/artifacts/{path}", tag: "executions", summary: "Download an artifact",
			params:  []*huma.Param{idParam, {Name: "path", In: "path", Required: true, Description: "Path as in artifacts. It may contain slashes.", Schema: typed(huma.TypeString, ""), Example: "report.txt"}},
			success: 200, answer: bytesAnswer("The file.", "application/octet-stream"), errors: append([]int{409}, oneErrors...)}},
		{handler: f.backends, operation: operation{id: "list-backends", method: get, path: "/api/v1/backends", tag: "server", summary: "List the backends and their capabilities",
			success: 200, answer: jsonAnswer("Every configured backend.", ref("Backends"), nil)}},
		{handler: f.healthz, operation: operation{id: "healthz", method: get, path: "/healthz", tag: "server", summary: "Check that the process is up", open: true, success: 200,
			answer: jsonAnswer("The process is up.", schemaOf[pyexec.Health](""),
				pyexec.Health{OK: true, Name: programName, Version: "1.0.0"})}},
		{handler: f.readyz, operation: operation{id: "readyz", method: get, path: "/readyz", tag: "server", summary: "Check that executions are accepted", open: true, success: 200,
			answer: jsonAnswer("Executions are accepted.", schemaOf[readiness](""), readiness{Ready: true}), errors: []int{503}}},
		{handler: f.metrics, operation: operation{id: "metrics", method: get, path: "/metrics", tag: "server", summary: "Read Prometheus metrics", doc: "Needs the scope admin if the server has tokens.", success: 200,
			answer: &huma.Response{Description: "The metrics.", Content: map[string]*huma.MediaType{"text/plain": {Schema: typed(huma.TypeString, "")}}}, errors: []int{404}}},
		{handler: f.openAPI, operation: operation{id: "openapi", method: get, path: "/openapi.json", tag: "server", summary: "Read this description", open: true, success: 200,
			answer: jsonAnswer("OpenAPI 3.1.", typed(huma.TypeObject, ""), nil)}},
		{handler: f.docsPage, operation: operation{id: "docs", method: get, path: "/docs", tag: "server", summary: "Read this description as a page", open: true, success: 200,
			answer: &huma.Response{Description: "A page.", Content: map[string]*huma.MediaType{"text/html": {Schema: typed(huma.TypeString, "")}}}}},
	}
}
