package httpfrontend

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// scriptErrorSchema is an error of the test-start specification.
func scriptErrorSchema() *huma.Schema {
	codes := []any{scriptForbidden, scriptBadArg, scriptTimeout, scriptExec, scriptPolicy}
	return object("", prop{name: "error", schema: object("",
		prop{name: "code", schema: &huma.Schema{Type: huma.TypeString, Enum: codes}},
		prop{name: "message", schema: typed(huma.TypeString, "")})})
}

// scriptOperations are those on the host's scripts, where the test-start specification has them.
func (f *frontend) scriptOperations() []route {
	const tag = "scripts"
	failures := []int{400, 403, 404, 408, 409, 410, 413, 415, 422, 429, 501}
	own := []int{400, 403, 408, 422}
	text := func(doc string) *huma.Schema { return typed(huma.TypeString, doc) }
	request := &huma.Schema{Type: huma.TypeObject, Required: []string{"path"}, AdditionalProperties: false, Properties: map[string]*huma.Schema{
		"path":       text("One of list_allowed."),
		"args":       array(text("A flag of the list, or its value."), "Flags by name: --flag, --flag=value, or --flag and value."),
		"env":        {Type: huma.TypeObject, AdditionalProperties: text(""), Description: "Variables of the list."},
		"timeout_ms": {Type: huma.TypeInteger, Format: "int64", Minimum: new(0.0), Description: "0: the server's."},
	}}
	result := object("",
		prop{name: "exitCode", schema: typed(huma.TypeInteger, "-n: it was killed by signal n.")},
		prop{name: "duration_ms", schema: typed(huma.TypeInteger, "")},
		prop{name: "stdout", schema: text("")}, prop{name: "stderr", schema: text("")},
		prop{name: "truncated", schema: typed(huma.TypeBoolean, "Output, or long lines of it, are missing.")},
		prop{name: "logPath", schema: text("The file of the server with the output, if it keeps one."), optional: true})
	script := object("", prop{name: "path", schema: text("")}, prop{name: "allowedArgs", schema: array(text(""), "")},
		prop{name: "defaultArgs", schema: array(text(""), ""), optional: true})
	return []route{
		{handler: f.scripts(f.runScript), operation: operation{id: "run-script", method: http.MethodPost, path: "/actions/run_script", tag: tag,
			summary: "Run an allowed script and wait", doc: "Needs the scope scripts. A client that disconnects kills it.",
			body:    &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: request}}},
			success: 200, answer: jsonAnswer("It has ended.", result, nil), errors: failures, scriptErrors: own}},
		{handler: f.scripts(f.listAllowed), operation: operation{id: "list-allowed-scripts", method: http.MethodPost, path: "/actions/list_allowed", tag: tag,
			summary: "What may be run", success: 200, answer: jsonAnswer("The list.", object("", prop{name: "scripts", schema: array(script, "")}), nil),
			errors: []int{400, 403, 408, 422, 501}, scriptErrors: own}},
		{handler: f.scripts(f.streamScript), operation: operation{id: "stream-script", method: http.MethodGet, path: "/sse/run_script_stream", tag: tag,
			summary: "Run an allowed script and stream its lines",
			doc:     "Events: ping {t}, stdout {line}, stderr {line}, end {exitCode, duration_ms, truncated, logPath}, error {code, message}. Errors before it starts are HTTP statuses.",
			params: []*huma.Param{query("path", "One of list_allowed.", text("")), query("args", "Repeated, or one JSON array.", array(text(""), "")),
				query("timeout_ms", "", &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(1.0)})},
			success: 200, answer: &huma.Response{Description: "The events.", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: text("")}}},
			errors: failures, scriptErrors: own}},
	}
}
