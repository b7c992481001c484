package app

import (
	"context"
	"errors"
	"os"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/host"
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
