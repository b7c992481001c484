package httpfrontend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/strictjson"
)

// The endpoints of the test-start specification, which run allow-listed scripts of the host. Names and errors are those of the
// specification.

const (
	// maxScriptBody bounds a request to run a script.
	maxScriptBody = 1 << 20
	// maxSeconds keeps a number of seconds within time.Duration.
	maxSeconds = 1 << 32
)

// The error codes of the specification.
const (
	scriptForbidden = "E_FORBIDDEN"
	scriptBadArg    = "E_BAD_ARG"
	scriptTimeout   = "E_TIMEOUT"
	scriptExec      = "E_EXEC"
	scriptPolicy    = "E_POLICY"
)

// scriptRequest is a request to run a script.
type scriptRequest struct {
	Path      string            `json:"path" doc:"A script of list_allowed."`
	Args      scriptArgs        `json:"args" required:"false" doc:"Flags of the list and their values: --flag, --flag=value, or --flag and value."`
	Env       map[string]string `json:"env" required:"false" doc:"Variables of the list."`
	TimeoutMS wholeNumber       `json:"timeout_ms" required:"false" minimum:"0" doc:"0: the server's timeout."`
}

// wholeNumber is a whole number in any form: 5000.0 is 5000, as in JSON Schema.
type wholeNumber int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *wholeNumber) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	whole, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, floatErr := strconv.ParseFloat(string(raw), 64)
		if floatErr != nil || f != math.Trunc(f) || math.Abs(f) > maxSeconds*1000 {
			return fmt.Errorf("timeout_ms must be a whole number, at most %d (got %s)", int64(maxSeconds*1000), kindOf(raw))
		}
		whole = int64(f)
	}
	*n = wholeNumber(whole)
	return nil
}

// scriptArgs are the arguments of a script. A number is passed on as it is written.
type scriptArgs []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *scriptArgs) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var list []any
	if err := d.Decode(&list); err != nil {
		return fmt.Errorf("args must be a list of texts or numbers (got %s)", kindOf(raw))
	}
	*a = make([]string, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case string:
			(*a)[i] = v
		case json.Number:
			(*a)[i] = v.String()
		default:
			return fmt.Errorf("args[%d] must be text or a number", i)
		}
	}
	return nil
}

// scriptResult is the answer to a script that has ended.
type scriptResult struct {
	ExitCode   int    `json:"exitCode" doc:"-n: signal n killed the script."`
	DurationMS int64  `json:"duration_ms"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Truncated  bool   `json:"truncated" doc:"Whether output, or long lines of it, are missing."`
	LogPath    string `json:"logPath,omitempty" doc:"File of the server with the output, if it keeps one."`
}

// end returns r as the event that ends a stream, which has had the output.
func (r scriptResult) end() map[string]any {
	end := map[string]any{"exitCode": r.ExitCode, "duration_ms": r.DurationMS, "truncated": r.Truncated}
	if r.LogPath != "" {
		end["logPath"] = r.LogPath
	}
	return end
}

// scriptError is an error with a code of the specification.
type scriptError struct {
	code    string
	message string
	// result is that of a script that has run; nil: it has not.
	result *scriptResult
}

func (e *scriptError) Error() string { return e.code + ": " + e.message }

// problem returns e in JSON.
func (e *scriptError) problem() scriptProblem {
	var p scriptProblem
	p.Error.Code, p.Error.Message = e.code, e.message
	if r := e.result; r != nil {
		p.ExitCode, p.DurationMS, p.Stdout, p.Stderr, p.Truncated, p.LogPath = &r.ExitCode, &r.DurationMS, &r.Stdout, &r.Stderr, &r.Truncated, r.LogPath
	}
	return p
}

// scriptStatus returns the HTTP status of a code.
func scriptStatus(code string) int {
	switch code {
	case scriptForbidden, scriptPolicy:
		return http.StatusForbidden
	case scriptBadArg:
		return http.StatusBadRequest
	case scriptTimeout:
		return http.StatusRequestTimeout
	default:
		return http.StatusUnprocessableEntity
	}
}

// scriptNames maps the fields of a Spec to the fields of a request.
var scriptNames = map[string]string{"script": "path", "config.timeout_seconds": "timeout_ms"}

// scriptErrorOf returns an error about field as a scriptError; nil if the specification has no code for it.
func scriptErrorOf(code executor.Code, field, message string) *scriptError {
	if rest, ok := strings.CutPrefix(message, field+": "); ok && scriptNames[field] != "" {
		message = scriptNames[field] + ": " + rest
	}
	switch {
	case code == executor.Denied:
		return &scriptError{code: scriptForbidden, message: message}
	case field == "script":
		return &scriptError{code: scriptPolicy, message: message}
	case code == executor.Invalid:
		return &scriptError{code: scriptBadArg, message: message}
	}
	return nil
}

func asScriptError(err error) error {
	e, ok := errors.AsType[*executor.Error](err)
	if !ok {
		return err
	}
	field := ""
	if len(e.Fields) > 0 {
		field = e.Fields[0].Field
	}
	if s := scriptErrorOf(e.Code, field, cmp.Or(e.Message, e.Error())); s != nil {
		return s
	}
	return err
}

// scripts returns h with answers to its scriptErrors.
func (f *frontend) scripts(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := asScriptError(h(w, r))
		if s, ok := errors.AsType[*scriptError](err); ok {
			return writeJSON(w, scriptStatus(s.code), s.problem())
		}
		return err
	}
}

// decode reads a body. Its errors do not name Go types.
func (asked *scriptRequest) decode(raw []byte) error {
	if err := strictjson.CheckText(raw, "the body"); err != nil {
		return err
	}
	err := strictjson.Decode(raw, asked)
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what := map[string]string{"path": "path must be text", "env": "env must be an object of texts"}
		field, _, _ := strings.Cut(kind.Field, ".")
		return fmt.Errorf("%s (got %s)", cmp.Or(what[field], "the body must be an object"), kind.Value)
	}
	if name, ok := errors.AsType[strictjson.UnknownField](err); ok {
		known := []string{"path", "args", "env", "timeout_ms"}
		hint := "must be one of " + strings.Join(known, ", ")
		if near := executor.Nearest(string(name), known); near != "" {
			hint = "did you mean " + near + "?"
		}
		return fmt.Errorf("the body: %w: %s", err, hint)
	}
	if err != nil {
		return fmt.Errorf("the body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// refusedScript adds a request that is refused because of err to the audit log of scripts. It returns err. asked is what could be read.
func (f *frontend) refusedScript(r *http.Request, asked scriptRequest, err error) error {
	code := executor.Invalid
	if typed, ok := errors.AsType[*executor.Error](err); ok {
		code = typed.Code
	}
	executor.NoteRefusedScript(r.Context(), f.svc, executor.RefusedScript{Tool: path.Base(r.URL.Path), Path: asked.Path, Args: asked.Args, Code: code})
	return err
}

// runScript runs a script and answers when it has ended.
func (f *frontend) runScript(w http.ResponseWriter, r *http.Request) error {
	var asked scriptRequest
	b, err := f.openBody(w, r, maxScriptBody)
	if err != nil {
		return f.refusedScript(r, asked, err)
	}
	raw, err := b.whole(b, b.announced)
	if errors.Is(err, os.ErrDeadlineExceeded) || buffered.ErrFull(err) {
		return f.refusedScript(r, asked, bodyError("the body", err))
	}
	if err != nil {
		return f.refusedScript(r, asked, &scriptError{code: scriptBadArg, message: "the body did not come whole, or is too large"})
	}
	if err := asked.decode(raw); err != nil {
		return f.refusedScript(r, asked, &scriptError{code: scriptBadArg, message: err.Error()})
	}
	run, err := f.startScript(r.Context(), r, asked)
	if err != nil {
		return err
	}
	var stdout, stderr []byte
	result, err := f.followScript(r.Context(), run, nil, func(o executor.Output) error {
		if o.Stream == executor.Stderr {
			stderr = append(stderr, o.Data...)
		} else {
			stdout = append(stdout, o.Data...)
		}
		return nil
	})
	failed, ran := errors.AsType[*scriptError](err)
	if ran = ran && failed.result != nil; ran {
		result = *failed.result
	} else if err != nil {
		return err
	}
	result.Stdout, result.Stderr = strings.ToValidUTF8(string(stdout), "\uFFFD"), strings.ToValidUTF8(string(stderr), "\uFFFD")
	if ran {
		failed.result = &result
		return failed
	}
	return writeJSON(w, http.StatusOK, result)
}

// startScript submits a script.
func (f *frontend) startScript(ctx context.Context, r *http.Request, asked scriptRequest) (executor.Execution, error) {
	switch {
	case asked.Path == "":
		return executor.Execution{}, f.refusedScript(r, asked, &scriptError{code: scriptBadArg, message: "path must not be empty"})
	case asked.TimeoutMS < 0 || asked.TimeoutMS > maxSeconds*1000:
		return executor.Execution{}, f.refusedScript(r, asked, &scriptError{code: scriptBadArg, message: fmt.Sprintf("timeout_ms must be positive and at most %d", int64(maxSeconds*1000))})
	}
	return f.svc.Submit(ctx, executor.Spec{
		Script: asked.Path, Args: asked.Args, Env: asked.Env,
		Limits: executor.Limits{Timeout: time.Duration(asked.TimeoutMS) * time.Millisecond},
	}, executor.Input{})
}

// followScript calls output with the output of a script until the script ends. started, if not nil, is called when the script has
// started. An error kills the script, because no other caller waits for it.
func (f *frontend) followScript(ctx context.Context, x executor.Execution, started func() error, output func(executor.Output) error) (scriptResult, error) {
	began := time.Now()
	var end *executor.Result
	for e, err := range f.svc.Events(ctx, x.ID, 0) {
		if err == nil {
			switch b := e.Body.(type) {
			case executor.Started:
				if started != nil {
					err = started()
				}
			case executor.Output:
				err = output(b)
			case executor.Finished:
				end = &b.Result
			}
		}
		if err != nil {
			f.kill(ctx, x.ID)
			return scriptResult{}, err
		}
	}
	if end == nil {
		return scriptResult{}, executor.Errorf(executor.Unavailable, "the log ended early")
	}
	return scriptEnd(*end, time.Since(began))
}

// scriptEnd returns r in the form of the specification.
func scriptEnd(r executor.Result, took time.Duration) (scriptResult, error) {
	if r.Failure != nil && r.HitLimit() == nil {
		if s := scriptErrorOf(r.Failure.Code, r.Failure.Field, r.Failure.Message); s != nil && r.Failure.Phase != executor.PhaseStart {
			return scriptResult{}, s
		}
		return scriptResult{}, &scriptError{code: scriptExec, message: r.Failure.Message}
	}
	out := scriptResult{
		DurationMS: took.Milliseconds(), Truncated: r.StdoutTruncated || r.StderrTruncated, LogPath: r.LogPath, ExitCode: -1,
	}
	if n := executor.SignalNumber(r.Signal); n > 0 {
		out.ExitCode = -n
	}
	if r.Wall > 0 {
		out.DurationMS = r.Wall.Milliseconds()
	}
	if r.ExitCode != nil {
		out.ExitCode = *r.ExitCode
	}
	if r.Status == executor.StatusTimedOut {
		return out, &scriptError{code: scriptTimeout, message: fmt.Sprintf("the script was killed after %d ms", out.DurationMS), result: &out}
	}
	return out, nil
}

// streamScript runs a script and streams its lines. Before the script has started, an error is an HTTP status.
func (f *frontend) streamScript(w http.ResponseWriter, r *http.Request) error {
	if !fromNoOtherPage(r) {
		return f.refusedScript(r, scriptRequest{}, executor.Errorf(executor.Denied, "a page of another server must not start a script"))
	}
	asked, err := scriptQuery(r)
	if err != nil {
		return f.refusedScript(r, asked, err)
	}
	x, err := f.startScript(executor.WithTool(r.Context(), "run_script_stream"), r, asked) // the name in the audit
	if err != nil {
		return err
	}
	s := &scriptStream{eventStream: newEventStream(w)}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	stop := f.beating(ctx, cancel, func() error {
		if !s.begun() {
			return nil
		}
		return s.ping()
	})
	result, err := f.followScript(ctx, x, s.ping, s.lines)
	stop()
	if err = asScriptError(err); err != nil {
		e, ok := errors.AsType[*scriptError](err)
		if !s.begun() {
			return err
		}
		if !ok {
			e = &scriptError{code: scriptExec, message: "the script was lost"}
		}
		said := map[string]any{"code": e.code, "message": e.message}
		if e.result != nil {
			maps.Copy(said, e.result.end())
		}
		_ = errors.Join(s.flushLines(), s.event("error", said))
		return nil // the event has the error
	}
	_ = errors.Join(s.flushLines(), s.event("end", result.end())) // a client that is gone misses nothing
	return nil
}

// fromNoOtherPage reports whether a GET that starts a script comes from a page of this server, or from a client that is not a
// browser. A browser sends a GET for an image or a link of any page, with Sec-Fetch-Site but without Origin. An old browser sends
// neither for an image, and an Origin for a request of a script.
func fromNoOtherPage(r *http.Request) bool {
	site := r.Header.Values("Sec-Fetch-Site")
	if len(site) == 0 {
		return len(r.Header.Values("Origin")) == 0
	}
	return len(site) == 1 && site[0] == "same-origin"
}

// scriptQuery reads a request from a URL. args is repeated, or a JSON array.
func scriptQuery(r *http.Request) (scriptRequest, error) {
	q := r.URL.Query()
	asked := scriptRequest{Path: q.Get("path"), Args: q["args"]}
	if len(asked.Args) == 1 && strings.HasPrefix(strings.TrimSpace(asked.Args[0]), "[") {
		if err := strictjson.CheckText([]byte(asked.Args[0]), "args"); err != nil {
			return asked, &scriptError{code: scriptBadArg, message: err.Error()}
		}
		if err := json.Unmarshal([]byte(asked.Args[0]), &asked.Args); err != nil {
			return asked, &scriptError{code: scriptBadArg, message: "args: must be repeated, or a JSON array"}
		}
	}
	if text := q.Get("timeout_ms"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return asked, &scriptError{code: scriptBadArg, message: fmt.Sprintf("timeout_ms: must be a positive whole number (got %q)", text)}
		}
		asked.TimeoutMS = wholeNumber(n)
	}
	return asked, nil
}
