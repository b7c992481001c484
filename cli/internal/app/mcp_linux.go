package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/host"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
	mcpfrontend "github.com/python-executor/python-executor/plugins/frontend-mcp"
)

// MCP serves o.Service to the client of the standard streams in a plugin process, until the client disconnects or ctx ends.
func MCP(ctx context.Context, o MCPOptions) error {
	c := mcpConfig(o.Config, o.Bundle.Version)
	c.Stdio, c.Remote, c.Backend = true, o.Remote, o.Config.Backend
	if o.Remote {
		c.Backend = ""
	}
	options, err := marshal(c)
	if err != nil {
		return err
	}
	run, err := newRunDir()
	if err != nil {
		return err
	}
	defer run.Close() //nolint:errcheck // a temporary folder
	f, err := host.StartFrontend(ctx, host.FrontendOptions{
		Name: mcpName, Path: "/proc/self/exe", Args: []string{os.Args[0], "plugin", mcpCommand}, Options: options,
		Files: []*os.File{o.In, o.Out}, RunDir: run.path, Embedded: true, Log: o.Log,
	}, o.Service)
	if err != nil {
		return err
	}
	select {
	case <-f.Done():
	case <-ctx.Done():
	}
	clean, cancel := stop.Within(ctx, o.Config.Engine.DrainTimeout(), errors.New("the calls did not end in time"))
	defer cancel()
	return f.Close(clean)
}

// serveMCP starts the MCP frontend of a server, if it has toolsets. It returns how the HTTP frontend reaches it, and the URL of
// its own listener, if it has one. Without a listener, whose address may be taken, the frontend starts in the background.
func serveMCP(ctx context.Context, o ServeOptions, svc executor.Service, runDir string, stack *closers) (m *httpfrontend.MCP, url string, err error) {
	if len(o.Config.MCP.Toolsets) == 0 {
		return nil, "", nil
	}
	c := mcpConfig(o.Config, o.Bundle.Version) // Backend is empty: the default backend may change
	if o.Config.MCP.HTTP.Enabled {
		c.HTTP.Bind = o.Config.MCP.HTTP.Bind
	}
	c.HTTP.Socket = filepath.Join(runDir, "mcp.sock")
	c.HTTP.RefuseUIDs = programUIDs(o.Config.Backends, o.Bundle)
	c.TestFixtures = o.TestFixtures
	options, err := marshal(c)
	if err != nil {
		return nil, "", err
	}
	f, err := host.StartFrontend(ctx, host.FrontendOptions{
		Name: mcpName, Path: "/proc/self/exe", Args: []string{os.Args[0], "plugin", mcpCommand}, Options: options,
		RunDir: runDir, Restart: true, Background: !o.Config.MCP.HTTP.Enabled, Log: o.Log,
	}, svc)
	if err != nil {
		return nil, "", err
	}
	stack.add(f.Close)
	if c.HTTP.Bind != "" {
		url = "http://" + f.Details()[mcpfrontend.DetailAddress] + c.HTTP.Path
	}
	return &httpfrontend.MCP{
		Path: c.HTTP.Path, PrincipalHeader: mcpfrontend.PrincipalHeader, MaxBodyBytes: c.HTTP.MaxBodyBytes,
		Socket: func(ctx context.Context) string { return f.Await(ctx)[mcpfrontend.DetailSocket] },
	}, url, nil
}
