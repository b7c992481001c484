package httpfrontend

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// scriptOperations returns the operations on the scripts of the host, with the paths of the test-start specification.
func (f *frontend) scriptOperations() []route {
	const tag = "scripts"
	failures := []int{400, 403, 404, 408, 409, 410, 413, 415, 422, 429, 501}
	own := []int{400, 403, 408, 422}
	text := func(doc string) *huma.Schema { return typed(huma.TypeString, doc) }
	request := schemaOf[scriptRequest]("")
	request.AdditionalProperties = false
	return []route{
		{handler: f.runScript, operation: operation{id: "run-script", method: http.MethodPost, path: "/actions/run_script", tag: tag,
			summary: "Run an allow-listed script and wait", doc: "Needs the scope scripts. A client that disconnects kills the script.",
			body:    &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: request}}},
			success: 200, answer: jsonAnswer("The script has ended.", schemaOf[scriptResult](""), nil), errors: failures, scriptErrors: own}},
		{handler: f.listAllowed, operation: operation{id: "list-allowed-scripts", method: http.MethodPost, path: "/actions/list_allowed", tag: tag,
			summary: "List the allowed scripts", success: 200, answer: jsonAnswer("The list.", schemaOf[allowedScripts](""), nil),
			errors: []int{400, 403, 408, 422, 501}, scriptErrors: own}},
		{handler: f.streamScript, operation: operation{id: "stream-script", method: http.MethodGet, path: "/sse/run_script_stream", tag: tag,
			summary: "Run an allow-listed script and stream its lines",
			doc:     "Events: ping {t}, stdout {line}, stderr {line}, end {exitCode, duration_ms, truncated, logPath}, error {code, message, and those of end if the script has run}. Errors before it starts are HTTP statuses.",
			params: []*huma.Param{query("path", "A script of list_allowed.", text("")), query("args", "Repeated, or a JSON array.", &huma.Schema{Type: huma.TypeArray, Items: text("")}),
				query("timeout_ms", "", &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(1.0)})},
			success: 200, answer: &huma.Response{Description: "The events.", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: text("")}}},
			errors: failures, scriptErrors: own}},
	}
}

// allowedScript is a script that may be run.
type allowedScript struct {
	Path        string   `json:"path"`
	AllowedArgs []string `json:"allowedArgs"`
	DefaultArgs []string `json:"defaultArgs,omitempty"`
}

// allowedScripts is the answer to list_allowed.
type allowedScripts struct {
	Scripts []allowedScript `json:"scripts"`
}

// listAllowed answers with what may be run.
func (f *frontend) listAllowed(w http.ResponseWriter, r *http.Request) error {
	list, err := f.svc.Scripts(r.Context())
	if err != nil {
		return err
	}
	out := make([]allowedScript, len(list))
	for i, s := range list {
		out[i] = allowedScript{s.Path, append([]string{}, s.AllowedArgs...), s.DefaultArgs}
	}
	return writeJSON(w, http.StatusOK, allowedScripts{out})
}

// scriptProblem is a scriptError in JSON. It has the fields of scriptResult if the script has run, which is so for E_TIMEOUT.
type scriptProblem struct {
	Error struct {
		Code    string `json:"code" enum:"E_FORBIDDEN,E_BAD_ARG,E_TIMEOUT,E_EXEC,E_POLICY"`
		Message string `json:"message"`
	} `json:"error"`
	ExitCode   *int    `json:"exitCode,omitempty" doc:"Of a script that has run: -n means that signal n killed it."`
	DurationMS *int64  `json:"duration_ms,omitempty" doc:"Of a script that has run."`
	Stdout     *string `json:"stdout,omitempty" doc:"What a script that has run had written."`
	Stderr     *string `json:"stderr,omitempty" doc:"What a script that has run had written."`
	Truncated  *bool   `json:"truncated,omitempty" doc:"Whether output, or long lines of it, are missing."`
	LogPath    string  `json:"logPath,omitempty" doc:"File of the server with the output, if it keeps one."`
}
