package config

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
)

// MCP configures the MCP frontend.
type MCP struct {
	// Toolsets that are offered: python, contexts, shell, scripts. Default python, contexts and shell.
	Toolsets []string `json:"toolsets"`
	// Directories are the roots in which scripts may be run over HTTP. Over stdio every folder of the user may.
	Directories []string `json:"directories"`
	// Network says by toolset whether what it runs may use a network: "on", "off", or empty: over stdio on for python and
	// shell, else off.
	Network MCPNetwork `json:"network"`
	// MaxResultBytes is where a tool's text result is cut, each stream for itself. Default 40,000.
	MaxResultBytes int      `json:"max_result_bytes"`
	HTTP           MCPHTTP  `json:"http"`
	Shell          MCPShell `json:"shell"`
}

// MCPNetwork holds a network mode by toolset: "on", "off" or empty.
type MCPNetwork struct {
	Python   string `json:"python"`
	Contexts string `json:"contexts"`
	Shell    string `json:"shell"`
}

// MCPHTTP configures streamable HTTP in `serve`.
type MCPHTTP struct {
	// Enabled serves MCP on Bind, and at Path of the HTTP API. Default false.
	Enabled bool `json:"enabled"`
	// Bind is the listening address (MCP_HTTP_BIND). Default "127.0.0.1:8000". One that is not loopback needs http.tokens or
	// http.allow_unauthenticated.
	Bind string `json:"bind"`
	// Path of the endpoint (MCP_HTTP_PATH). Default "/mcp".
	Path string `json:"path"`
	// AllowedOrigins are web pages that may call besides the server's own, "https://app.example.com".
	AllowedOrigins []string `json:"allowed_origins"`
	// MaxBodyBytes bounds one message. Default 16 MiB.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxSessions bounds the MCP sessions of all owners. Default 1,000.
	MaxSessions int `json:"max_sessions"`
	// MaxSessionsPerOwner bounds those of one owner. Default 0: half of MaxSessions where there are tokens, else all.
	MaxSessionsPerOwner int `json:"max_sessions_per_owner"`
}

// MCPShell configures the toolset shell.
type MCPShell struct {
	// MaxOutputBytes bounds stdout and stderr together (MCP_EXEC_MAX_OUTPUT_BYTES). Default 40,000.
	MaxOutputBytes int `json:"max_output_bytes"`
	// LogFullOutput logs all output up to that bound (MCP_EXEC_LOG_FULL_OUTPUT=1). Default false.
	LogFullOutput bool `json:"log_full_output"`
	// LogOutputBytes of each stream are logged (MCP_EXEC_LOG_OUTPUT_BYTES). Default 0: output may hold secrets.
	LogOutputBytes int `json:"log_output_bytes"`
}

func defaultMCP() MCP {
	return MCP{
		Toolsets:       []string{"python", "contexts", "shell"},
		Directories:    []string{},
		MaxResultBytes: 40_000,
		HTTP:           MCPHTTP{Bind: "127.0.0.1:8000", Path: "/mcp", AllowedOrigins: []string{}, MaxBodyBytes: 16 << 20, MaxSessions: 1000},
		Shell:          MCPShell{MaxOutputBytes: 40_000},
	}
}

// validate needs http, whose tokens and permission hold for MCP, too.
func (m MCP) validate(p *problems, http HTTP) {
	known := []string{"python", "contexts", "shell", "scripts"}
	for i, t := range m.Toolsets {
		if !slices.Contains(known, t) {
			p.add(fmt.Sprintf("mcp.toolsets[%d]", i), "must be one of %s (got %q)", strings.Join(known, ", "), t)
		}
	}
	for i, d := range m.Directories {
		if !path.IsAbs(d) {
			p.add(fmt.Sprintf("mcp.directories[%d]", i), "must be an absolute path (got %q)", d)
		}
	}
	for _, mode := range []struct{ key, value string }{
		{"python", m.Network.Python}, {"contexts", m.Network.Contexts}, {"shell", m.Network.Shell},
	} {
		if mode.value != "" && mode.value != "on" && mode.value != "off" {
			p.add("mcp.network."+mode.key, "must be on, off or empty (got %q)", mode.value)
		}
	}
	p.atLeast("mcp.max_result_bytes", m.MaxResultBytes, 1000)
	host, _, err := net.SplitHostPort(m.HTTP.Bind)
	switch {
	case err != nil:
		p.add("mcp.http.bind", "must be host:port (got %q)", m.HTTP.Bind)
	case m.HTTP.Enabled && !Loopback(host) && len(http.Tokens) == 0 && !http.AllowUnauthenticated:
		p.add("mcp.http.bind", "%s is not loopback: set http.tokens, or http.allow_unauthenticated to let everybody in", m.HTTP.Bind)
	}
	if !strings.HasPrefix(m.HTTP.Path, "/") || path.Clean(m.HTTP.Path) != m.HTTP.Path || m.HTTP.Path == "/" {
		p.add("mcp.http.path", "must be a path like /mcp (got %q)", m.HTTP.Path)
	}
	if m.HTTP.MaxBodyBytes <= 0 {
		p.add("mcp.http.max_body_bytes", "must be > 0 (got %d)", m.HTTP.MaxBodyBytes)
	} else if m.HTTP.MaxBodyBytes > http.MaxBufferedBytes {
		p.add("mcp.http.max_body_bytes", "must be <= http.max_buffered_bytes, %d (got %d)", http.MaxBufferedBytes, m.HTTP.MaxBodyBytes)
	}
	p.atLeast("mcp.http.max_sessions", m.HTTP.MaxSessions, 1)
	p.atLeast("mcp.http.max_sessions_per_owner", m.HTTP.MaxSessionsPerOwner, 0)
	p.atLeast("mcp.shell.max_output_bytes", m.Shell.MaxOutputBytes, 1)
	p.atLeast("mcp.shell.log_output_bytes", m.Shell.LogOutputBytes, 0)
}
