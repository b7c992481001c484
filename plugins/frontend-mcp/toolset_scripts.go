package mcpfrontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// The error codes of the toolset scripts.
const (
	scriptForbidden = "E_FORBIDDEN"
	scriptBadArg    = "E_BAD_ARG"
	scriptTimeout   = "E_TIMEOUT"
	scriptExec      = "E_EXEC"
	scriptPolicy    = "E_POLICY"
)

// textOrNumber is an argument of a script. A JSON number is passed on as it is written.
type textOrNumber string

// UnmarshalJSON implements json.Unmarshaler.
func (t *textOrNumber) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		*t = textOrNumber(v)
	case json.Number:
		*t = textOrNumber(v.String())
	default:
		return fmt.Errorf("args: must be strings or numbers")
	}
	return nil
}

type runHostScriptArgs struct {
	Path      string            `json:"path" jsonschema:"From list_allowed"`
	Args      []textOrNumber    `json:"args,omitempty" jsonschema:"Like --port, 8080"`
	Env       map[string]string `json:"env,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	cpuArgs
}

type runHostScriptResult struct {
	ExitCode   int    `json:"exitCode"`
	DurationMS int64  `json:"duration_ms"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Truncated  bool   `json:"truncated"`
	LogPath    string `json:"logPath,omitempty"`
	// Error is set in the result of a call that is an error. The other fields are then those of a script that was killed, or zero.
	Error *scriptProblem `json:"error,omitempty"`
}

// scriptProblem is an error in the form of the toolset's specification.
type scriptProblem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// hostScriptNames maps the fields of a Spec to the arguments of run_script.
var hostScriptNames = map[string]string{"script": "path", "config.timeout_seconds": "timeout_ms", executor.FieldCPUTime: "cpu_seconds"}

type listAllowedArgs struct{}

type allowedScript struct {
	Path        string   `json:"path"`
	AllowedArgs []string `json:"allowedArgs"`
	DefaultArgs []string `json:"defaultArgs,omitempty"`
}

type listAllowedResult struct {
	Scripts []allowedScript `json:"scripts"`
	Error   *scriptProblem  `json:"error,omitempty"`
}

// maxScriptOutput is the maximum of scripts.max_output_bytes (TSM_MAX_OUTPUT_BYTES), at which the backend cuts each stream. Nothing
// else cuts the output of a script.
const maxScriptOutput = 1 << 30

// hostScripts is the toolset scripts. It runs scripts of the host that the configuration allows.
type hostScripts struct{ *tools }

func (t *tools) startScripts(context.Context) func() { return hostScripts{t}.add }

// add adds the tools.
func (s hostScripts) add() {
	bad := func(err error) *mcp.CallToolResult { return scriptFailure(scriptBadArg, "%v", err) }
	noList := func(err error) *mcp.CallToolResult { return asList(bad(err)) }
	addTool[runHostScriptArgs, runHostScriptResult](s.tools, tool{
		name: "run_script", destructive: true, note: s.note,
		description: "Run a script of the server's host, without a shell and without a sandbox. Live output: GET /sse/run_script_stream.",
	}, bad, s.run)
	addTool[listAllowedArgs, listAllowedResult](s.tools, tool{
		name: "list_allowed", readOnly: true, note: s.note,
		description: "List the scripts that run_script may run, and their flags.",
	}, noList, s.list)
}

// scriptFailure returns an error of run_script in the form of the toolset's specification. Its structured content has the fields that
// the schema requires.
func scriptFailure(code, format string, args ...any) *mcp.CallToolResult {
	return scriptFailureOf(runHostScriptResult{ExitCode: -1}, code, fmt.Sprintf(format, args...))
}

// scriptFailureOf is scriptFailure for a script that has run.
func scriptFailureOf(r runHostScriptResult, code, message string) *mcp.CallToolResult {
	r.Error = &scriptProblem{code, message}
	failed := mcp.NewToolResultError(text(map[string]any{"error": r.Error}))
	failed.StructuredContent = r
	return failed
}

// asList returns an error of run_script as one of list_allowed.
func asList(failed *mcp.CallToolResult) *mcp.CallToolResult {
	if r, ok := failed.StructuredContent.(runHostScriptResult); ok {
		failed.StructuredContent = listAllowedResult{Scripts: []allowedScript{}, Error: r.Error}
	}
	return failed
}

// hostScriptError returns the answer to an error with that code about that field. It has the error codes of the
// specification.
func (s hostScripts) hostScriptError(code executor.Code, field string, err error) *mcp.CallToolResult {
	switch {
	case code == executor.Denied:
		return scriptFailure(scriptForbidden, "%v", err)
	case field == "script":
		return scriptFailure(scriptPolicy, "%v", err)
	case code == executor.Invalid:
		return scriptFailure(scriptBadArg, "%v", err)
	case code == executor.Internal:
		s.log.Error("tool failed", "tool", "run_script", "error", err)
		return scriptFailure(scriptExec, "internal error; the server's log says more")
	}
	return scriptFailure(scriptExec, "%v", err)
}

// note adds a call whose arguments are refused to the audit log, with those of them that could be read.
func (s hostScripts) note(ctx context.Context, request mcp.CallToolRequest) {
	given := request.GetArguments()
	refused := executor.RefusedScript{Tool: request.Params.Name, Code: executor.Invalid}
	refused.Path, _ = given["path"].(string)
	list, _ := given["args"].([]any)
	for _, arg := range list {
		refused.Args = append(refused.Args, fmt.Sprint(arg))
	}
	executor.NoteRefusedScript(ctx, s.svc, refused)
}

func (s hostScripts) run(ctx context.Context, request mcp.CallToolRequest, a runHostScriptArgs) (*mcp.CallToolResult, error) {
	switch {
	case a.Path == "":
		s.note(ctx, request)
		return scriptFailure(scriptBadArg, "path: must not be empty"), nil
	case a.TimeoutMS < 0:
		s.note(ctx, request)
		return scriptFailure(scriptBadArg, "timeout_ms: must not be negative (got %d)", a.TimeoutMS), nil
	}
	spec := executor.Spec{Script: a.Path, Env: a.Env, Limits: executor.Limits{Timeout: duration(a.TimeoutMS, time.Millisecond)}}
	if err := a.bound(&spec.Limits); err != nil {
		s.note(ctx, request)
		return scriptFailure(scriptBadArg, "%v", err), nil
	}
	for _, arg := range a.Args {
		spec.Args = append(spec.Args, string(arg))
	}
	o, err := s.tools.run(ctx, spec, executor.Input{}, newProgress(ctx, request), maxScriptOutput)
	if err != nil {
		return s.hostScriptError(executor.CodeOf(err), fieldOf(err), argumentError(err, hostScriptNames)), nil
	}
	r := o.result
	if f := r.Failure; f != nil && r.HitLimit() == nil {
		if f.Phase == executor.PhaseStart {
			return scriptFailure(scriptExec, "%s", f.Message), nil
		}
		field, message := failure(f, hostScriptNames)
		return s.hostScriptError(f.Code, field, executor.Errorf(f.Code, "%s", message)), nil
	}
	out := runHostScriptResult{
		ExitCode: exitCode(r), DurationMS: r.Wall.Milliseconds(), Stdout: o.stdout.text(""), Stderr: o.stderr.text(""),
		Truncated: r.StdoutTruncated || r.StderrTruncated, LogPath: r.LogPath,
	}
	if r.Status == executor.StatusTimedOut {
		message := fmt.Sprintf("the script was killed after %d ms. %s It had written:\n%s%s", out.DurationMS, limitReached(r, "timeout_ms"), out.Stdout, out.Stderr)
		return scriptFailureOf(out, scriptTimeout, message), nil
	}
	return structured(out, "")
}

// fieldOf returns the first field that an error names, or "".
func fieldOf(err error) string {
	if e, ok := errors.AsType[*executor.Error](err); ok && len(e.Fields) > 0 {
		return e.Fields[0].Field
	}
	return ""
}

func (s hostScripts) list(ctx context.Context, _ mcp.CallToolRequest, _ listAllowedArgs) (*mcp.CallToolResult, error) {
	list, err := s.svc.Scripts(ctx)
	if err != nil {
		return asList(s.hostScriptError(executor.CodeOf(err), "", err)), nil
	}
	out := listAllowedResult{Scripts: []allowedScript{}}
	for _, script := range list {
		out.Scripts = append(out.Scripts, allowedScript{script.Path, append([]string{}, script.AllowedArgs...), script.DefaultArgs})
	}
	return structured(out, "")
}
