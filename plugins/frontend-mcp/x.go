package mcpfrontend

import (
	_ "github.com/mark3labs/mcp-go/mcp"
	_ "github.com/mark3labs/mcp-go/server"
	_ "github.com/python-executor/python-executor/core/executor/plugin"
	_ "go.uber.org/goleak"
)
