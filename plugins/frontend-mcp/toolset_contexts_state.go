package mcpfrontend

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// contextNames maps the fields of a Spec to the arguments of the toolset.
var contextNames = map[string]string{"requirements_txt": "requirements", "config.timeout_seconds": "timeout_ms", executor.FieldCPUTime: "cpu_seconds"}

type installPackagesArgs struct {
	ContextID string   `json:"context_id"`
	Packages  []string `json:"packages" jsonschema:"Like pandas>=2"`
}

type installPackagesResult struct {
	ContextID string   `json:"context_id"`
	Packages  []string `json:"packages"`
}

type interruptContextArgs struct {
	ContextID string `json:"context_id"`
}

type interruptContextResult struct {
	ContextID   string `json:"context_id"`
	Status      string `json:"status"`
	Interrupted bool   `json:"interrupted"`
}

type restartContextArgs struct {
	ContextID string `json:"context_id"`
	Wipe      bool   `json:"wipe,omitempty" jsonschema:"Remove its files, too"`
}

type restartContextResult struct {
	ContextID string `json:"context_id"`
	Status    string `json:"status"`
	Message   string `json:"message"`
}

// addState adds the tools for what a context has: its packages and its interpreter.
func (c contexts) addState(bad func(error) *mcp.CallToolResult) {
	addTool[installPackagesArgs, installPackagesResult](c.tools, tool{
		name: "install_packages", idempotent: true,
		description: "Install Python packages into a context. Its state is kept.",
	}, bad, c.install)
	addTool[interruptContextArgs, interruptContextResult](c.tools, tool{
		name: "interrupt_context", idempotent: true,
		description: "Stop code that runs in a context, as Ctrl-C. Its state is kept.",
	}, bad, c.interrupt)
	addTool[restartContextArgs, restartContextResult](c.tools, tool{
		name: "restart_context", destructive: true,
		description: "Restart a context's interpreter: variables are gone, packages and files stay.",
	}, bad, c.restart)
}

// requirements returns the list that argument names as the text of a requirements.txt.
func requirements(argument string, list []string) (string, error) {
	for i, line := range list {
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.ContainsAny(line, "\r\n") || strings.HasPrefix(trimmed, "-") {
			return "", fmt.Errorf("%s[%d] must be one requirement, like requests or numpy>=2 (got %q)", argument, i, line)
		}
	}
	return strings.Join(list, "\n"), nil
}

var (
	packageName = regexp.MustCompile(`^\s*([A-Za-z0-9][A-Za-z0-9._-]*)`)
	nameBreak   = regexp.MustCompile(`[-_.]+`)
)

// nameOf returns the normalized name of the package that a requirement names.
func nameOf(line string) string {
	found := packageName.FindStringSubmatch(line)
	if found == nil {
		return ""
	}
	return strings.ToLower(nameBreak.ReplaceAllString(found[1], "-"))
}

// contextSpec returns the Spec of a Python context with the packages of asked besides the configured ones. A requirement of
// asked replaces the configured one for the same package.
func (t *tools) contextSpec(asked []string) executor.Spec {
	configured := slices.DeleteFunc(slices.Clone(t.config.Contexts.Requirements), func(line string) bool {
		return slices.ContainsFunc(asked, func(a string) bool { return nameOf(a) == nameOf(line) })
	})
	if !t.backend().Capabilities.Requirements {
		configured = nil
	}
	return executor.Spec{
		Language: executor.LanguagePython, Backend: t.config.Backend, Network: t.config.network(ToolsetContexts),
		Requirements: strings.Join(append(configured, asked...), "\n"),
	}
}

func (c contexts) install(ctx context.Context, request mcp.CallToolRequest, a installPackagesArgs) (*mcp.CallToolResult, error) {
	lines, err := requirements("packages", a.Packages)
	switch {
	case a.ContextID == "":
		return contextError(codeInvalidParams, "context_id: must not be empty"), nil
	case len(a.Packages) == 0:
		return contextError(codeInvalidParams, "packages: must not be empty"), nil
	case err != nil:
		return contextError(codeInvalidParams, "%v", err), nil
	}
	if c.language(ctx, a.ContextID) == executor.LanguageJavaScript {
		return contextError(codeInvalidParams, "packages: a JavaScript context takes none: %s", executor.NoNPM), nil
	}
	newProgress(ctx, request).say("installing", true)
	all, err := c.svc.AddRequirements(ctx, a.ContextID, lines)
	if err != nil {
		return c.contextFailure(ctx, "install_packages", a.ContextID, argumentError(err, map[string]string{"requirements_txt": "packages"})), nil
	}
	return structured(installPackagesResult{ContextID: a.ContextID, Packages: append([]string{}, all...)}, "")
}

func (c contexts) interrupt(ctx context.Context, _ mcp.CallToolRequest, a interruptContextArgs) (*mcp.CallToolResult, error) {
	if a.ContextID == "" {
		return contextError(codeInvalidParams, "context_id: must not be empty"), nil
	}
	s, err := c.svc.GetSession(ctx, a.ContextID)
	if err == nil && s.Status == executor.SessionClosed {
		err = executor.Errorf(executor.NotFound, "closed")
	}
	running := s.Running != ""
	if running { // what begins after this look is not interrupted, so that the answer is true
		s, err = c.svc.InterruptSession(ctx, a.ContextID)
	}
	if err != nil {
		return c.contextFailure(ctx, "interrupt_context", a.ContextID, err), nil
	}
	return structured(interruptContextResult{ContextID: s.ID, Status: string(s.Status), Interrupted: running}, "")
}

func (c contexts) restart(ctx context.Context, _ mcp.CallToolRequest, a restartContextArgs) (*mcp.CallToolResult, error) {
	if a.ContextID == "" {
		return contextError(codeInvalidParams, "context_id: must not be empty"), nil
	}
	s, err := c.svc.RestartSession(ctx, a.ContextID, a.Wipe)
	if err != nil {
		return c.contextFailure(ctx, "restart_context", a.ContextID, err), nil
	}
	message := "Variables and imports are gone; packages and files are there."
	if a.Wipe {
		message = "Variables, imports and files are gone; packages are there."
	}
	return structured(restartContextResult{ContextID: s.ID, Status: string(s.Status), Message: message}, "")
}

// contextFailure is serviceError for a context that may be closed or lost.
func (c contexts) contextFailure(ctx context.Context, what, id string, err error) *mcp.CallToolResult {
	if executor.CodeOf(err) == executor.Conflict {
		switch s, getErr := c.svc.GetSession(ctx, id); {
		case getErr != nil:
		case s.Status == executor.SessionClosed: // in this toolset a stopped context does not exist
			err = executor.Errorf(executor.NotFound, "closed")
		case s.Status == executor.SessionLost:
			why := ""
			if s.Reason != "" {
				why = " (" + s.Reason + ")"
			}
			return contextError(codeExecutionFailed, "Context %s is lost%s: create a new one with create_context", id, why)
		}
	}
	return c.serviceError(what, id, argumentError(err, contextNames))
}
