package mcpfrontend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// The error codes of the toolset contexts.
const (
	codeInvalidParams   = "INVALID_PARAMS"
	codeContextNotFound = "CONTEXT_NOT_FOUND"
	codeInvalidLanguage = "INVALID_LANGUAGE"
	codeExecutionFailed = "EXECUTION_FAILED"
)

// maxImageBytes bounds the total size of the images in a result. Clients refuse messages above 1 MiB, and base64 adds a third.
const maxImageBytes = 600 << 10

type runCodeArgs struct {
	Code      string `json:"code"`
	ContextID string `json:"context_id,omitempty"`
	// Requirements are installed before the code runs.
	Requirements []string `json:"requirements,omitempty" jsonschema:"Packages to install first; code has no pip"`
	TimeoutMS    int64    `json:"timeout_ms,omitempty" jsonschema:"A context keeps its state"`
	cpuArgs
}

type runCodeResult struct {
	Stdout        string  `json:"stdout"`
	Stderr        string  `json:"stderr"`
	Success       bool    `json:"success"`
	ExecutionTime float64 `json:"execution_time"`
	Result        string  `json:"result,omitempty"`
	ExecutionID   string  `json:"execution_id"`
	Note          string  `json:"note,omitempty"`
}

type createContextArgs struct {
	Name        string `json:"name"`
	Language    string `json:"language,omitempty"`
	Description string `json:"description,omitempty"`
	// Requirements are besides the configured ones.
	Requirements  []string `json:"requirements,omitempty" jsonschema:"Python packages, like pandas>=2"`
	PythonVersion string   `json:"python_version,omitempty"`
}

type createContextResult struct {
	ContextID   string `json:"context_id"`
	Name        string `json:"name"`
	Language    string `json:"language"`
	Description string `json:"description"`
	CreatedAt   string `json:"created_at"`
	Status      string `json:"status"`
	Message     string `json:"message"`
}

type stopContextArgs struct {
	ContextID string `json:"context_id"`
}

type stopContextResult struct {
	ContextID string `json:"context_id"`
	Status    string `json:"status"`
	Message   string `json:"message"`
}

type listContextsArgs struct{}

type contextInfo struct {
	ContextID   string `json:"context_id"`
	Name        string `json:"name"`
	Language    string `json:"language"`
	Description string `json:"description"`
	Status      string `json:"status"`
	CreatedAt   string `json:"created_at"`
	LastUsed    string `json:"last_used"`
}

type listContextsResult struct {
	Contexts []contextInfo `json:"contexts"`
	Total    int           `json:"total"`
}

// contexts is the toolset contexts. A context is a Session; the specification has its own names for it.
type contexts struct {
	*tools
	known *knownLanguages
}

func (t *tools) startContexts(context.Context) func() { return contexts{t, &knownLanguages{}}.add }

// add adds the tools.
func (c contexts) add() {
	t := c.tools
	if b := t.backend(); b.Healthy && !b.Capabilities.Sessions {
		t.log.Warn("toolset contexts is left out: the backend has no sessions", "backend", b.Name)
		return
	}
	net := networkText(t.config.network(ToolsetContexts))
	if list := t.config.Contexts.Requirements; len(list) > 0 {
		net = "Python has " + strings.Join(list, ", ") + ". " + net
	}
	bad := func(err error) *mcp.CallToolResult { return contextError(codeInvalidParams, "%v", err) }
	addTool[runCodeArgs, runCodeResult](t, tool{
		name: "run_code",
		description: "Run code in a context, which keeps variables and files, or without context_id as a Python program in a fresh sandbox. " +
			"result is the last expression's value; plots come as images, files as links.",
		closed: t.config.network(ToolsetContexts) != executor.NetworkOn,
	}, bad, c.runCode)
	addTool[createContextArgs, createContextResult](t, tool{
		name:        "create_context",
		description: "Open a python or javascript interpreter that keeps its state until stop_context or idleness. " + net,
	}, bad, c.create)
	addTool[stopContextArgs, stopContextResult](t, tool{
		name: "stop_context", destructive: true, idempotent: true,
		description: "End a context with its code, state and files.",
	}, bad, c.stop)
	addTool[listContextsArgs, listContextsResult](t, tool{
		name: "list_contexts", description: "List active contexts, newest first.", readOnly: true,
	}, bad, c.list)
	c.addState(bad)
	c.addFileTools(bad)
}

// contextError returns an error in the form of the toolset's specification.
func contextError(code, format string, args ...any) *mcp.CallToolResult {
	raw, err := plainJSON(map[string]any{"error": map[string]string{"code": code, "message": fmt.Sprintf(format, args...)}})
	if err != nil {
		return mcp.NewToolResultError(code)
	}
	return mcp.NewToolResultError(string(raw))
}

// serviceError returns the answer to an error of the Service. what is the tool, and id the context, if there is one.
func (c contexts) serviceError(what, id string, err error) *mcp.CallToolResult {
	switch executor.CodeOf(err) {
	case executor.NotFound:
		if id == "" {
			break
		}
		return contextError(codeContextNotFound, "Context %s not found: create one with create_context", id)
	case executor.Invalid, executor.Denied, executor.Unimplemented:
		return contextError(codeInvalidParams, "%v", err)
	case executor.Internal:
		c.log.Error("tool failed", "tool", what, "error", err)
		return contextError(codeExecutionFailed, "internal error; the server's log says more")
	}
	return contextError(codeExecutionFailed, "%v", err)
}

func (c contexts) create(ctx context.Context, request mcp.CallToolRequest, a createContextArgs) (*mcp.CallToolResult, error) {
	if strings.TrimSpace(a.Name) == "" {
		return contextError(codeInvalidParams, "name: must not be empty"), nil
	}
	language := executor.Language(a.Language)
	switch language {
	case executor.LanguageDefault:
		language = executor.LanguagePython
	case executor.LanguagePython, executor.LanguageJavaScript:
	default:
		return contextError(codeInvalidLanguage, "Unsupported language: %q. Supported: python, javascript", a.Language), nil
	}
	if b := c.backend(); b.Healthy && len(b.Capabilities.Languages) > 0 && !slices.Contains(b.Capabilities.Languages, language) {
		return contextError(codeInvalidLanguage, "%s is not available on this server", language), nil
	}
	if language == executor.LanguageJavaScript {
		switch {
		case len(a.Requirements) > 0:
			return contextError(codeInvalidParams, "requirements: must be empty for a JavaScript context: %s", executor.NoNPM), nil
		case a.PythonVersion != "":
			return contextError(codeInvalidParams, "python_version: must be empty for a JavaScript context (got %q)", a.PythonVersion), nil
		}
	}
	_, err := requirements("requirements", a.Requirements)
	if err == nil {
		err = c.checkVersion(a.PythonVersion)
	}
	if err != nil {
		return contextError(codeInvalidParams, "%v", err), nil
	}
	spec := c.contextSpec(a.Requirements)
	spec.PythonVersion = a.PythonVersion
	if language != executor.LanguagePython {
		spec.Language, spec.Requirements = language, ""
	}
	newProgress(ctx, request).say("preparing", true)
	s, err := c.svc.OpenSession(ctx, executor.Session{Name: a.Name, Description: a.Description, Language: language, Spec: spec})
	if err != nil {
		return c.serviceError("create_context", "", argumentError(err, contextNames)), nil
	}
	c.known.set(s.ID, s.Language)
	c.log.Info(fmt.Sprintf("Created %s context: %s (name: %s)", s.Language, s.ID, s.Name), "session", s.ID)
	return structured(createContextResult{
		ContextID: s.ID, Name: s.Name, Language: string(s.Language), Description: s.Description,
		CreatedAt: stamp(s.CreatedAt), Status: string(s.Status),
		Message: languageName(language) + " context created successfully",
	}, "")
}

func languageName(l executor.Language) string {
	if l == executor.LanguageJavaScript {
		return "JavaScript"
	}
	return "Python"
}

// stamp formats a time as the specification prescribes.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (c contexts) stop(ctx context.Context, _ mcp.CallToolRequest, a stopContextArgs) (*mcp.CallToolResult, error) {
	if a.ContextID == "" {
		return contextError(codeInvalidParams, "context_id: must not be empty"), nil
	}
	s, err := c.svc.GetSession(ctx, a.ContextID)
	if err == nil && s.Status == executor.SessionClosed {
		err = executor.Errorf(executor.NotFound, "closed")
	}
	if err == nil {
		_, err = c.svc.CloseSession(ctx, a.ContextID)
	}
	if err != nil {
		return c.serviceError("stop_context", a.ContextID, err), nil
	}
	c.known.remove(a.ContextID)
	c.log.Info(fmt.Sprintf("Stopped context: %s (name: %s)", s.ID, s.Name), "session", s.ID)
	return structured(stopContextResult{ContextID: a.ContextID, Status: "stopped", Message: "Context stopped successfully"}, "")
}

func (c contexts) list(ctx context.Context, _ mcp.CallToolRequest, _ listContextsArgs) (*mcp.CallToolResult, error) {
	sessions, err := c.svc.ListSessions(ctx)
	if err != nil {
		return c.serviceError("list_contexts", "", err), nil
	}
	out := listContextsResult{Contexts: []contextInfo{}}
	for _, s := range sessions {
		if s.Status != executor.SessionActive || s.Language != executor.LanguagePython && s.Language != executor.LanguageJavaScript {
			continue
		}
		used := s.LastUsed
		if used.IsZero() {
			used = s.CreatedAt
		}
		out.Contexts = append(out.Contexts, contextInfo{
			ContextID: s.ID, Name: s.Name, Language: string(s.Language), Description: s.Description, Status: string(s.Status),
			CreatedAt: stamp(s.CreatedAt), LastUsed: stamp(used),
		})
	}
	out.Total = len(out.Contexts)
	return structured(out, "")
}
