package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	mcpfrontend "github.com/python-executor/python-executor/plugins/frontend-mcp"
)

// mcpName is the name of the frontend of a server in errors and in the log. mcpCommand is its plugin command.
const (
	mcpName    = "mcp"
	mcpCommand = "frontend-mcp"
)

// MCPOptions are for MCP.
type MCPOptions struct {
	Config config.Config
	Bundle Bundle
	// Service is served to the client. Remote reports whether it belongs to a server.
	Service executor.Service
	Remote  bool
	// In and Out are the streams of the client.
	In  *os.File
	Out *os.File
	Log *slog.Logger
}

// MCP serves o.Service to the client of the standard streams in this process, until the client disconnects or ctx ends. The end of ctx
// cancels the calls that run (unavailable). Their answers and the cleaning up have engine.drain_timeout_seconds.
func MCP(ctx context.Context, o MCPOptions) error {
	c := mcpConfig(o.Config, o.Bundle.Version)
	c.HTTP.Tokens = nil
	if c.Remote = o.Remote; !o.Remote {
		c.Backend = o.Config.Backend
	}
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(executor.Errorf(executor.Unavailable, "the frontend is stopping")) })()
	ended := make(chan error, 1)
	go func() { ended <- mcpfrontend.ServeStdio(serving, c, o.Service, o.In, o.Out, o.Log) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	clean, cancel := stop.Within(ctx, o.Config.Engine.DrainTimeout(), errors.New("the calls did not end in time"))
	defer cancel()
	select {
	case err := <-ended:
		return err
	case <-clean.Done(): // such as a client that reads no answers
		o.Log.Warn("the end of MCP", "error", context.Cause(clean))
		return stop.Cause(ctx)
	}
}

// mcpConfig returns the configuration of the frontend.
func mcpConfig(c config.Config, version string) mcpfrontend.Config {
	m := mcpfrontend.Default()
	m.Version = version
	m.Toolsets = c.MCP.Toolsets
	m.Directories = c.MCP.Directories
	m.MaxResultBytes = c.MCP.MaxResultBytes
	m.Network = map[string]bool{}
	for toolset, mode := range map[string]string{
		mcpfrontend.ToolsetPython: c.MCP.Network.Python, mcpfrontend.ToolsetContexts: c.MCP.Network.Contexts, mcpfrontend.ToolsetShell: c.MCP.Network.Shell,
	} {
		if mode != "" {
			m.Network[toolset] = mode == "on"
		}
	}
	m.Shell = mcpfrontend.Shell{
		MaxOutputBytes: c.MCP.Shell.MaxOutputBytes, LogFullOutput: c.MCP.Shell.LogFullOutput, LogOutputBytes: c.MCP.Shell.LogOutputBytes,
	}
	m.Contexts.Requirements = c.MCP.Contexts.Requirements
	m.HTTP.Path = c.MCP.HTTP.Path
	m.HTTP.AllowedOrigins = c.MCP.HTTP.AllowedOrigins
	m.HTTP.LocalScripts = localScripts(c)
	m.HTTP.MaxBodyBytes, m.HTTP.MaxBufferedBytes = c.MCP.HTTP.MaxBodyBytes, c.HTTP.MaxBufferedBytes
	m.HTTP.MaxSessions, m.HTTP.MaxSessionsPerOwner = c.MCP.HTTP.MaxSessions, c.MCP.HTTP.MaxSessionsPerOwner
	m.HTTP.Tokens = authTokens(c.HTTP.Tokens)
	return m
}

// authTokens converts the tokens of the configuration.
func authTokens(tokens []config.Token) []auth.Token {
	list := make([]auth.Token, len(tokens))
	for i, t := range tokens {
		list[i] = auth.Token{Owner: t.Owner, SHA256: t.SHA256}
		for _, scope := range t.Scopes {
			list[i].Scopes = append(list[i].Scopes, executor.Scope(scope))
		}
	}
	return list
}

func marshal(c mcpfrontend.Config) (json.RawMessage, error) { return json.Marshal(c) }
