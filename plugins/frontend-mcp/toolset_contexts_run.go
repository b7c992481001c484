package mcpfrontend

import (
	"context"
	"encoding/base64"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

func (c contexts) runCode(ctx context.Context, request mcp.CallToolRequest, a runCodeArgs) (*mcp.CallToolResult, error) {
	switch {
	case strings.TrimSpace(a.Code) == "":
		return contextError(codeInvalidParams, "code: must not be empty"), nil
	case a.TimeoutMS < 0:
		return contextError(codeInvalidParams, "timeout_ms: must not be negative (got %d)", a.TimeoutMS), nil
	}
	limits := executor.Limits{Timeout: duration(a.TimeoutMS, time.Millisecond)}
	if err := a.bound(&limits); err != nil {
		return contextError(codeInvalidParams, "%v", err), nil
	}
	lines, err := requirements("requirements", a.Requirements)
	if err != nil {
		return contextError(codeInvalidParams, "%v", err), nil
	}
	if lines != "" && c.language(ctx, a.ContextID) == executor.LanguageJavaScript {
		return contextError(codeInvalidParams, "requirements: must be empty in a JavaScript context: %s", executor.NoNPM), nil
	}
	progress := newProgress(ctx, request)
	spec := executor.Spec{Session: a.ContextID, Code: a.Code}
	switch {
	case a.ContextID == "":
		spec = c.contextSpec(a.Requirements)
		spec.Code = executor.DisplayingProgram(a.Code)
		spec.OutputsChanged = c.backend().Capabilities.Artifacts // the result links to these files
	case lines != "":
		progress.say("installing", true)
		if _, err = c.svc.AddRequirements(ctx, a.ContextID, lines); err != nil {
			return c.contextFailure(ctx, "run_code", a.ContextID, err), nil
		}
	}
	spec.Limits = limits
	if a.ContextID != "" {
		c.logRun(ctx, a.ContextID)
	}
	o, err := c.run(ctx, spec, executor.Input{}, progress, c.config.MaxResultBytes)
	if err != nil {
		return c.contextFailure(ctx, "run_code", a.ContextID, err), nil
	}
	if !ran(o.result) {
		return notRun(a.ContextID, o.result), nil
	}
	rest := ""
	if c.config.has(ToolsetPython) {
		rest = restOf(o.id)
	}
	out := runCodeResult{
		Stdout: o.stdout.text(rest), Stderr: o.stderr.text(rest), Success: o.result.Status == executor.StatusSucceeded,
		ExecutionTime: o.result.Wall.Seconds(), ExecutionID: o.id, Note: note(a, o.result),
	}
	for _, d := range o.displays {
		if text, ok := d.Data["text/plain"]; d.Value && ok {
			out.Result = cut(string(text), c.config.MaxResultBytes)
		}
	}
	c.explain(a, o.result, &out)
	return structured(out, "", append(pictures(o.displays), filesOf(o)...)...)
}

// notRun returns the result for code that did not run, or whose context was lost before the code ended.
func notRun(contextID string, r executor.Result) *mcp.CallToolResult {
	if contextID != "" && (r.Status == executor.StatusLost || r.SessionState == executor.SessionStateLost) {
		return contextError(codeExecutionFailed, "%s; the context is lost: create a new one with create_context", r.Failure.Message)
	}
	_, message := failure(r.Failure, contextNames)
	if r.Failure.Phase != executor.PhasePrepare || r.Failure.Code != executor.Invalid {
		return contextError(codeExecutionFailed, "%s", message)
	}
	return contextError(codeInvalidParams, "requirements: %s\nCheck the names and the versions.", strings.TrimPrefix(message, "requirements: "))
}

// explain adds to out the usual cause of a failure. Code that calls pip gets one line instead of its traceback.
func (c contexts) explain(a runCodeArgs, r executor.Result, out *runCodeResult) {
	advice := c.advice(ToolsetContexts, func(packages string) string {
		if a.ContextID == "" {
			return fmt.Sprintf("call run_code with requirements=%s.", packages)
		}
		return fmt.Sprintf("call install_packages(context_id=%q, packages=%s).", a.ContextID, packages)
	})
	if line := advice.pipInstead(a.Code, out.Stderr); line != "" {
		out.Stderr, out.Success = line, false // a line that begins with ! fails without an error
		return
	}
	out.Note = strings.TrimSpace(out.Note + " " + advice.hint(a.Code, out.Stdout+out.Result, out.Stderr, r))
	if r.Status == executor.StatusFailed && out.Note == "" && anotherLanguage().MatchString(a.Code) && strings.Contains(out.Stderr, `File "`) {
		out.Note = `This runs Python. For JavaScript call create_context(language="javascript").`
	}
}

// anotherLanguage is code that looks like JavaScript, in code that fails as Python.
var anotherLanguage = compiled(`(?m)^\s*(?:const|let|var)\s+[\w{[]|\bconsole\.log\(|^\s*(?:async\s+)?function\b|=>\s*[{(\w]`)

// note explains why the code stopped and what happened to its context, as far as the output does not tell it.
func note(a runCodeArgs, r executor.Result) string {
	var said []string
	if reached := limitReached(r, "timeout_ms"); reached != "" {
		said = append(said, reached)
	}
	switch r.Status {
	case executor.StatusKilled:
		said = append(said, "The code was cancelled.")
	case executor.StatusFailed:
		if r.ExitCode != nil && r.StderrBytes == 0 { // sys.exit(3) prints nothing
			said = append(said, fmt.Sprintf("The code ended with exit code %d.", *r.ExitCode))
		}
		if r.Signal != "" && r.Hint == "" && a.ContextID == "" {
			said = append(said, "The code was ended by "+r.Signal+".")
		}
	}
	if a.ContextID != "" {
		said = append(said, contextNote(r)...)
	}
	return strings.Join(said, " ")
}

// contextNote explains what happened to the context of code that has ended.
func contextNote(r executor.Result) []string {
	switch {
	case r.SessionState == executor.SessionStateRestarted:
		return []string{"It did not stop in time, so the interpreter was restarted: variables and imports are gone, files are there."}
	case r.SessionState == executor.SessionStateLost && r.Signal != "":
		return []string{"The interpreter died of " + r.Signal + ": the context is lost. Create a new one."}
	case r.SessionState == executor.SessionStateLost:
		return []string{"The interpreter died: the context is lost. Create a new one."}
	case r.Status == executor.StatusTimedOut, r.Status == executor.StatusKilled:
		return []string{"The state is kept."}
	}
	return nil
}

// pictures returns the images among displays, up to maxImageBytes, and a text that counts the others. A display without an
// image becomes a text, except the value of the last expression.
func pictures(displays []executor.Display) []mcp.Content {
	var list []mcp.Content
	left, dropped := maxImageBytes, 0
	for _, d := range displays {
		mimes := make([]string, 0, len(d.Data))
		for mime := range d.Data {
			if isPicture(mime) {
				mimes = append(mimes, mime)
			}
		}
		sort.Strings(mimes)
		if len(mimes) == 0 {
			if text, ok := d.Data["text/plain"]; ok && !d.Value {
				list = append(list, mcp.NewTextContent(cut(string(text), 4000)))
			}
			continue
		}
		mime := mimes[len(mimes)-1]
		if len(d.Data[mime]) > left {
			dropped++
			continue
		}
		left -= len(d.Data[mime])
		list = append(list, mcp.NewImageContent(base64.StdEncoding.EncodeToString(d.Data[mime]), mime))
	}
	if dropped > 0 {
		list = append(list, mcp.NewTextContent(fmt.Sprintf("%d images are left out: a result holds at most %d bytes of images. Make them smaller, or save them to files.", dropped, maxImageBytes)))
	}
	return list
}
