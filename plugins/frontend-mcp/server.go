package mcpfrontend

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

// endTimeout bounds the cleanup after an MCP session has ended.
const endTimeout = 30 * time.Second

// newTools returns a server with every configured toolset that the backend can serve.
func newTools(ctx context.Context, c Config, svc executor.Service, log *slog.Logger) (*tools, error) {
	log.Info("python-executor MCP Server Starting...")
	t := &tools{config: c, svc: svc, log: log, calls: newCallSlots(c.HTTP.Tokens), hooks: &server.Hooks{}}
	info, err := chooseBackend(ctx, svc, c.Backend)
	if err != nil {
		return nil, err
	}
	t.offered.info = info
	t.life, t.end = context.WithCancelCause(context.WithoutCancel(ctx))
	options := []server.ServerOption{
		server.WithTitle("python-executor"),
		server.WithInstructions(t.instructions()),
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(false, false),
		server.WithToolHandlerMiddleware(t.around),
		server.WithHooks(t.hooks),
		server.WithRecovery(),
	}
	if c.TestFixtures {
		options = append(options, fixtureOptions()...)
	}
	t.server = server.NewMCPServer("python-executor", c.Version, options...)
	if c.TestFixtures {
		t.addFixtures()
	}
	for _, set := range []struct {
		name string
		// start returns what adds the tools.
		start func(ctx context.Context) func()
	}{
		{ToolsetPython, t.startPython}, {ToolsetContexts, t.startContexts}, {ToolsetShell, t.startShell}, {ToolsetScripts, t.startScripts},
	} {
		if c.has(set.name) {
			t.toolsets = append(t.toolsets, set.start(ctx))
		}
	}
	t.offer()
	if c.has(ToolsetPython) || c.has(ToolsetContexts) || c.has(ToolsetShell) {
		t.addFiles()
	}
	t.hooks.AddAfterInitialize(t.negotiated)
	t.hooks.AddBeforeListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest) { t.look(ctx) })
	t.hooks.AddBeforeCallTool(begun)
	t.hooks.AddBeforeCallTool(t.unknownTool)
	t.hooks.AddBeforeReadResource(t.missing)
	t.hooks.AddOnError(t.unread)
	t.wg.Go(t.watch)
	t.logStart()
	return t, nil
}

// chooseBackend returns the Info of the backend that the tools use: the named backend, else the first that does not run host
// scripts. The backend may be unhealthy. Toolsets then leave nothing out, because the backend may recover. Codes: invalid.
func chooseBackend(ctx context.Context, svc executor.Service, name string) (executor.Info, error) {
	list, err := svc.Backends(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	i := slices.IndexFunc(list, func(b executor.Info) bool { return b.Name == name || name == "" && !b.Capabilities.Scripts })
	if i < 0 && name == "" && len(list) > 0 {
		i = 0 // all backends run host scripts
	}
	if i < 0 {
		return executor.Info{}, executor.FieldErrorf(executor.Invalid, "mcp.backend", "unknown backend %q", name)
	}
	return list[i], nil
}

// around wraps the handler of every tool. It bounds the number of calls that run at once, and keeps the call's MCP session
// open until the call has ended.
func (t *tools) around(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if !quick(r.Params.Name) {
			leave, refusal := t.calls.take(executor.PrincipalFrom(ctx).Owner)
			if leave == nil {
				if r.Params.Name == "run_script" {
					return scriptFailure(scriptExec, "%s", strings.TrimPrefix(refusal, "Error: ")), nil
				}
				return mcp.NewToolResultError(refusal), nil
			}
			defer leave()
		}
		if id := mcpSessionID(ctx); id != "" && t.sessions != nil {
			defer t.sessions.hold(id)()
		}
		return next(ctx, r)
	}
}

// unknownTool adds the tools to a name that none of them has, because mcp-go's error has the name in quotes and nothing else.
func (t *tools) unknownTool(_ context.Context, _ any, request *mcp.CallToolRequest) {
	offered := t.server.ListTools()
	if _, ok := offered[request.Params.Name]; ok {
		return
	}
	names, meant := slices.Sorted(maps.Keys(offered)), ""
	if near := executor.Nearest(request.Params.Name, names); near != "" {
		meant = "did you mean " + near + "? "
	}
	request.Params.Name += "': " + meant + "the tools are " + strings.Join(names, ", ") + "; '" + request.Params.Name
}

// quick reports whether the named tool never waits for a program. Such a tool is served however many calls are running.
func quick(name string) bool {
	switch name {
	case "kill_job", "list_running_jobs", "get_job_output", "job_cleanup", "list_contexts", "stop_context", "interrupt_context", "list_allowed":
		return true
	}
	return false
}

// negotiated tells the transport which revision of the protocol its client has negotiated.
func (t *tools) negotiated(ctx context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
	if c, ok := ctx.Value(stdioKey{}).(*stdioClient); ok {
		c.negotiated(result.ProtocolVersion)
	} else if id := mcpSessionID(ctx); id != "" && t.sessions != nil {
		t.sessions.negotiated(id, result.ProtocolVersion)
	}
}

// mcpSessionID returns the id of the MCP session that ctx belongs to, or "" if there is none.
func mcpSessionID(ctx context.Context) string {
	if s := server.ClientSessionFromContext(ctx); s != nil {
		return s.SessionID()
	}
	return ""
}

// sessionEnded releases the resources of an MCP session, in the background.
func (t *tools) sessionEnded(id string) {
	t.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		for _, f := range t.onSessionEnd {
			f(ctx, id)
		}
	})
}

// close releases all resources and waits for background work.
func (t *tools) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	t.log.Info("python-executor MCP Server Shutting Down...")
	t.end(errStopping)
	for _, f := range t.onClose {
		f(ctx)
	}
	t.wg.Wait()
	t.log.Info("Server cleanup complete")
}
