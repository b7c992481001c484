package mcpfrontend

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

// endTimeout bounds what is done for an MCP session that has ended.
const endTimeout = 30 * time.Second

// newTools makes the server and adds every toolset that is configured and that the backend can serve.
func newTools(ctx context.Context, c Config, svc executor.Service, log *slog.Logger) (*tools, error) {
	t := &tools{config: c, svc: svc, log: log, calls: make(chan struct{}, maxCalls), hooks: &server.Hooks{}}
	var err error
	if t.backend, err = chooseBackend(ctx, svc, c.Backend); err != nil {
		return nil, err
	}
	options := []server.ServerOption{
		server.WithTitle("python-executor"),
		server.WithInstructions("Runs Python, JavaScript and shell in sandboxes. A program that fails is a normal result with its exit code and stderr."),
		server.WithToolCapabilities(false),
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
		add  func(ctx context.Context) error
	}{
		{ToolsetPython, t.addPython}, {ToolsetContexts, t.addContexts}, {ToolsetShell, t.addShell}, {ToolsetScripts, t.addScripts},
	} {
		if !c.has(set.name) {
			continue
		}
		if err := set.add(ctx); err != nil {
			return nil, fmt.Errorf("toolset %s: %w", set.name, err)
		}
	}
	if c.has(ToolsetPython) || c.has(ToolsetContexts) || c.has(ToolsetShell) {
		t.addFiles()
	}
	t.hooks.AddAfterInitialize(t.negotiated)
	t.hooks.AddBeforeCallTool(begun)
	t.hooks.AddBeforeReadResource(t.missing)
	t.hooks.AddOnError(t.unread)
	log.Info("serving MCP", "toolsets", c.Toolsets, "tools", len(t.server.ListTools()), "languages", t.backend.Capabilities.Languages)
	return t, nil
}

// chooseBackend describes the backend that tools will run on. One that is away now may come: nothing is left out then.
func chooseBackend(ctx context.Context, svc executor.Service, name string) (executor.Info, error) {
	list, err := svc.Backends(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	i := slices.IndexFunc(list, func(b executor.Info) bool { return b.Name == name || name == "" && !b.Capabilities.Scripts })
	if i < 0 && name == "" && len(list) > 0 {
		i = 0 // there are only scripts
	}
	if i < 0 {
		return executor.Info{}, executor.FieldErrorf(executor.Invalid, "mcp.backend", "no backend %q", name)
	}
	return list[i], nil
}

// around is what every call passes: a bound on how many run at once, and a session that does not end meanwhile.
func (t *tools) around(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if !quick(r.Params.Name) {
			select {
			case t.calls <- struct{}{}:
				defer func() { <-t.calls }()
			default:
				return mcp.NewToolResultErrorf("Error: %d calls are running already; wait for one of them, or stop one", maxCalls), nil
			}
		}
		if id := mcpSessionID(ctx); id != "" && t.sessions != nil {
			defer t.sessions.hold(id)()
		}
		return next(ctx, r)
	}
}

// quick tools never wait for a program, and are served however many calls run.
func quick(name string) bool {
	switch name {
	case "kill_job", "list_running_jobs", "get_job_output", "job_cleanup", "list_contexts", "stop_context", "list_allowed":
		return true
	}
	return false
}

// negotiated tells the transport which revision its client speaks.
func (t *tools) negotiated(ctx context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
	if c, ok := ctx.Value(stdioKey{}).(*stdioClient); ok {
		c.negotiated(result.ProtocolVersion)
	} else if id := mcpSessionID(ctx); id != "" && t.sessions != nil {
		t.sessions.negotiated(id, result.ProtocolVersion)
	}
}

// mcpSessionID is the id of the protocol's session that ctx belongs to; empty where there is none.
func mcpSessionID(ctx context.Context) string {
	if s := server.ClientSessionFromContext(ctx); s != nil {
		return s.SessionID()
	}
	return ""
}

// sessionEnded gives back what an MCP session had.
func (t *tools) sessionEnded(id string) {
	t.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		for _, f := range t.onSessionEnd {
			f(ctx, id)
		}
	})
}

// close gives back everything.
func (t *tools) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for _, f := range t.onClose {
		f(ctx)
	}
	t.wg.Wait()
}
