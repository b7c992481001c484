package config

import (
	"path"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// MCP configures the MCP frontend.
type MCP struct {
	// Toolsets are the offered toolsets, of python, contexts, shell and scripts. Default python, contexts and shell. Empty:
	// `serve` has no MCP.
	Toolsets []string `json:"toolsets"`
	// Directories are the folders of the host in which callers may run scripts without the scope trusted. Over HTTP, MCP offers
	// only these. Over stdio, scripts may run in every folder of the user.
	Directories []string `json:"directories"`
	// Network says for each toolset whether its programs have a network: "on" or "off". Empty: over stdio on for python and
	// shell, else off.
	Network MCPNetwork `json:"network"`
	// MaxResultBytes bounds each stream of a tool's text result. Default 40,000.
	MaxResultBytes int         `json:"max_result_bytes"`
	HTTP           MCPHTTP     `json:"http"`
	Shell          MCPShell    `json:"shell"`
	Contexts       MCPContexts `json:"contexts"`
}

// MCPContexts configures the toolset contexts.
type MCPContexts struct {
	// Requirements are packages that every Python context has. Their environment is prepared at the start. Default none.
	Requirements []string `json:"requirements"`
}

// MCPNetwork holds the network mode of each toolset: "on", "off" or empty.
type MCPNetwork struct {
	Python   string `json:"python"`
	Contexts string `json:"contexts"`
	Shell    string `json:"shell"`
}

// MCPHTTP configures streamable HTTP in `serve`, which serves MCP at Path of the HTTP API.
type MCPHTTP struct {
	// Enabled serves MCP on Bind, too. Default false.
	Enabled bool `json:"enabled"`
	// Bind is the listening address (MCP_HTTP_BIND). Default "127.0.0.1:8000". An address that is not loopback needs
	// http.tokens or http.allow_unauthenticated.
	Bind string `json:"bind"`
	// Path is that of the endpoint (MCP_HTTP_PATH). It must not be a path of the HTTP API. Default "/mcp".
	Path string `json:"path"`
	// AllowedOrigins are the origins of web pages that may call Bind besides the server's own, "https://app.example.com".
	AllowedOrigins []string `json:"allowed_origins"`
	// MaxBodyBytes bounds one message. Default 16 MiB.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxSessions bounds the MCP sessions of all owners. Default 1,000.
	MaxSessions int `json:"max_sessions"`
	// MaxSessionsPerOwner bounds those of one owner. Default 0: half of MaxSessions with tokens, else MaxSessions.
	MaxSessionsPerOwner int `json:"max_sessions_per_owner"`
}

// MCPShell configures the toolset shell.
type MCPShell struct {
	// MaxOutputBytes bounds stdout and stderr together (MCP_EXEC_MAX_OUTPUT_BYTES). Default 40,000.
	MaxOutputBytes int `json:"max_output_bytes"`
	// LogFullOutput logs all output up to that bound (MCP_EXEC_LOG_FULL_OUTPUT=1). Default false.
	LogFullOutput bool `json:"log_full_output"`
	// LogOutputBytes is how much of each stream is logged (MCP_EXEC_LOG_OUTPUT_BYTES). Default 0, because output may contain
	// secrets.
	LogOutputBytes int `json:"log_output_bytes"`
}

func defaultMCP() MCP {
	return MCP{
		Toolsets:       []string{"python", "contexts", "shell"},
		Directories:    []string{},
		MaxResultBytes: 40_000,
		HTTP:           MCPHTTP{Bind: "127.0.0.1:8000", Path: "/mcp", AllowedOrigins: []string{}, MaxBodyBytes: 16 << 20, MaxSessions: 1000},
		Shell:          MCPShell{MaxOutputBytes: 40_000},
		Contexts:       MCPContexts{Requirements: []string{}},
	}
}

// validate adds the problems of m to p. The tokens and the allow_unauthenticated of http also apply to MCP.
func (m MCP) validate(p *executor.Problems, http HTTP) {
	known := []string{"python", "contexts", "shell", "scripts"}
	each(p, "mcp.toolsets", m.Toolsets, func(t string) bool { return slices.Contains(known, t) }, "one of "+strings.Join(known, ", "))
	each(p, "mcp.directories", m.Directories, path.IsAbs, "an absolute path")
	each(p, "mcp.contexts.requirements", m.Contexts.Requirements, isRequirement, "one requirement like numpy>=2")
	for _, mode := range []struct{ key, value string }{
		{"python", m.Network.Python}, {"contexts", m.Network.Contexts}, {"shell", m.Network.Shell},
	} {
		if mode.value != "" && mode.value != "on" && mode.value != "off" {
			p.Add("mcp.network."+mode.key, "must be on, off or empty (got %q)", mode.value)
		}
	}
	atLeast(p, "mcp.max_result_bytes", m.MaxResultBytes, 1000)
	switch host, ok := hostOf(m.HTTP.Bind); {
	case !ok:
		p.Add("mcp.http.bind", "must be "+anAddress+" (got %q)", m.HTTP.Bind)
	case m.HTTP.Enabled && !Loopback(host) && len(http.Tokens) == 0 && !http.AllowUnauthenticated:
		p.Add("mcp.http.bind", "must be a loopback address, unless http.tokens or http.allow_unauthenticated (--allow-unauthenticated) is set (got %q)", m.HTTP.Bind)
	}
	if !strings.HasPrefix(m.HTTP.Path, "/") || path.Clean(m.HTTP.Path) != m.HTTP.Path || m.HTTP.Path == "/" || strings.ContainsAny(m.HTTP.Path, "{}?#% ") {
		p.Add("mcp.http.path", "must be a path like /mcp (got %q)", m.HTTP.Path)
	}
	for _, own := range ownPaths() {
		if m.HTTP.Path == own || strings.HasPrefix(m.HTTP.Path, own+"/") {
			p.Add("mcp.http.path", "must not be or be below %s, which the server uses itself: take a path like /mcp (got %q)", own, m.HTTP.Path)
		}
	}
	if m.HTTP.MaxBodyBytes <= 0 {
		p.Add("mcp.http.max_body_bytes", "must be > 0 (got %d)", m.HTTP.MaxBodyBytes)
	} else if m.HTTP.MaxBodyBytes > http.MaxBufferedBytes {
		p.Add("mcp.http.max_body_bytes", "must be <= http.max_buffered_bytes, %d (got %d)", http.MaxBufferedBytes, m.HTTP.MaxBodyBytes)
	}
	atLeast(p, "mcp.http.max_sessions", m.HTTP.MaxSessions, 1)
	atLeast(p, "mcp.http.max_sessions_per_owner", m.HTTP.MaxSessionsPerOwner, 0)
	atLeast(p, "mcp.shell.max_output_bytes", m.Shell.MaxOutputBytes, 1)
	atLeast(p, "mcp.shell.log_output_bytes", m.Shell.LogOutputBytes, 0)
}

// ownPaths returns the paths of the HTTP frontend. Its routes are at and below them.
func ownPaths() []string {
	return []string{"/api", "/actions", "/sse/run_script_stream", "/docs", "/mcp_ui", "/healthz", "/readyz", "/metrics", "/openapi.json"}
}

// isRequirement reports whether line may be one line of a requirements.txt that names a package.
func isRequirement(line string) bool {
	trimmed := strings.TrimSpace(line)
	return trimmed != "" && !strings.ContainsAny(line, "\r\n") && !strings.HasPrefix(trimmed, "-") && !strings.HasPrefix(trimmed, "#")
}
