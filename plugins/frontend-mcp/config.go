package mcpfrontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/peer"
)

// The toolsets.
const (
	ToolsetPython   = "python"
	ToolsetContexts = "contexts"
	ToolsetShell    = "shell"
	ToolsetScripts  = "scripts"
)

// Toolsets returns the names of all toolsets.
func Toolsets() []string {
	return []string{ToolsetPython, ToolsetContexts, ToolsetShell, ToolsetScripts}
}

// Config is the configuration of the plugin.
type Config struct {
	// Version is the version of the program, for serverInfo.
	Version string `json:"version"`
	// Toolsets are the toolsets that are offered. Default: python, contexts, shell.
	Toolsets []string `json:"toolsets"`
	// Backend is the name of the backend that tools use; empty: the server's default, which Backends lists first.
	Backend string `json:"backend"`
	// Directories are the folders below which the toolset python may use folders and scripts over HTTP. Over stdio it may
	// use every path.
	Directories []string `json:"directories"`
	// Network tells, by toolset, whether the programs of the toolset may use the network. Default: on for python and shell
	// over stdio, otherwise off.
	Network map[string]bool `json:"network"`
	// Remote reports whether the Service belongs to a remote server, which does not have the user's folders.
	Remote bool `json:"remote"`
	// Stdio reports whether the frontend serves the streams of ServeStdio. A plugin process does not.
	Stdio bool `json:"-"`
	// HTTP serves streamable HTTP.
	HTTP HTTP `json:"http"`
	// MaxResultBytes bounds each stream in a tool's text result. A result that is cut tells the totals and how to read the
	// rest. Default 40,000.
	MaxResultBytes int `json:"max_result_bytes"`
	// Shell configures the toolset shell.
	Shell Shell `json:"shell"`
	// Contexts configures the toolset contexts.
	Contexts Contexts `json:"contexts"`
	// Successor reports whether the predecessor still ends its calls. It closes its sandboxes itself, so this process does not.
	Successor bool `json:"successor"`
	// TestFixtures adds the tools, resources and prompts of the protocol's conformance suite. Loopback only.
	TestFixtures bool `json:"test_fixtures"`
}

// HTTP configures streamable HTTP.
type HTTP struct {
	// Bind is the listening address; empty: none.
	Bind string `json:"bind"`
	// Path of the endpoint. Default "/mcp".
	Path string `json:"path"`
	// Socket is the path of a unix socket to serve for the HTTP frontend; empty: none. The HTTP frontend authenticates the
	// caller and names the caller in the header Pyexec-Principal.
	Socket string `json:"socket"`
	// AllowedOrigins are the Origins that are accepted besides the server's own, such as "https://app.example.com".
	AllowedOrigins []string `json:"allowed_origins"`
	// MaxBodyBytes bounds one message. Default 16 MiB.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxBufferedBytes bounds the total size of the messages in memory. Default 256 MiB.
	MaxBufferedBytes int64 `json:"max_buffered_bytes"`
	// LocalScripts lets local callers run allowed scripts if there are no Tokens.
	LocalScripts bool `json:"local_scripts"`
	// Tokens are the accepted bearer tokens, as in http.tokens. Without tokens every caller is the local owner.
	Tokens []auth.Token `json:"tokens"`
	// RefuseUIDs are the users of this host whose connections to Bind are refused: the users that programs run as.
	RefuseUIDs []peer.UIDRange `json:"refuse_uids"`
	// SessionIdleSeconds is how long an MCP session lasts without a request, in seconds. Default 1,800.
	SessionIdleSeconds float64 `json:"session_idle_seconds"`
	// MaxSessions bounds the number of open MCP sessions. Default 1,000.
	MaxSessions int `json:"max_sessions"`
	// MaxSessionsPerOwner bounds the open MCP sessions of one owner. 0 means half of MaxSessions if there are Tokens, else
	// MaxSessions. Default 0.
	MaxSessionsPerOwner int `json:"max_sessions_per_owner"`
}

// perOwner returns the bound that MaxSessionsPerOwner sets.
func (h HTTP) perOwner() int {
	switch {
	case h.MaxSessionsPerOwner > 0:
		return h.MaxSessionsPerOwner
	case len(h.Tokens) > 0:
		return max(1, h.MaxSessions/2)
	}
	return h.MaxSessions
}

// Contexts configures the toolset contexts.
type Contexts struct {
	// Requirements are packages that every Python context has. Their environment is prepared at the start.
	Requirements []string `json:"requirements"`
}

// Shell configures the toolset shell.
type Shell struct {
	// MaxOutputBytes bounds stdout and stderr together (MCP_EXEC_MAX_OUTPUT_BYTES). Default 40,000.
	MaxOutputBytes int `json:"max_output_bytes"`
	// LogFullOutput logs at most MaxOutputBytes of each stream (MCP_EXEC_LOG_FULL_OUTPUT). LogOutputBytes is then ignored.
	LogFullOutput bool `json:"log_full_output"`
	// LogOutputBytes bounds the bytes of each stream that are logged (MCP_EXEC_LOG_OUTPUT_BYTES); 0: none. Default 0,
	// because output may hold secrets.
	LogOutputBytes int `json:"log_output_bytes"`
}

// Default returns the defaults.
func Default() Config {
	return Config{
		Toolsets:       []string{ToolsetPython, ToolsetContexts, ToolsetShell},
		MaxResultBytes: 40_000,
		HTTP:           HTTP{Path: "/mcp", MaxBodyBytes: 16 << 20, MaxBufferedBytes: 256 << 20, SessionIdleSeconds: 1800, MaxSessions: 1000},
		Shell:          Shell{MaxOutputBytes: 40_000},
	}
}

// parseConfig reads options over the defaults. Codes: invalid.
func parseConfig(name string, options json.RawMessage) (Config, error) {
	c := Default()
	if len(bytes.TrimSpace(options)) == 0 {
		return c, nil
	}
	d := json.NewDecoder(bytes.NewReader(options))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return c, executor.FieldErrorf(executor.Invalid, name+"."+kind.Field, "must be %s, not %s", typeName(kind.Type.Kind().String()), indefinite(kind.Value))
		}
		return c, executor.FieldErrorf(executor.Invalid, name, "%v", err)
	}
	return c, c.validate(name)
}

// validate returns an error that names every invalid option. Codes: invalid.
func (c Config) validate(name string) error {
	var bad executor.Problems
	report := func(key, format string, args ...any) {
		bad.Add(name+"."+key, format, args...)
	}
	for i, t := range c.Toolsets {
		if !slices.Contains(Toolsets(), t) {
			report(fmt.Sprintf("toolsets[%d]", i), "must be one of %s (got %q)", strings.Join(Toolsets(), ", "), t)
		}
	}
	for i, d := range c.Directories {
		if !strings.HasPrefix(d, "/") {
			report(fmt.Sprintf("directories[%d]", i), "must be an absolute path (got %q)", d)
		}
	}
	for t := range c.Network {
		if !slices.Contains(Toolsets(), t) {
			report("network."+t, "unknown toolset (the toolsets are %s)", strings.Join(Toolsets(), ", "))
		}
	}
	if c.HTTP.Bind != "" {
		if _, _, err := net.SplitHostPort(c.HTTP.Bind); err != nil {
			report("http.bind", "must be an address with a port (got %q)", c.HTTP.Bind)
		} else if c.TestFixtures && !auth.Loopback(c.HTTP.Bind) {
			report("test_fixtures", "must be false unless http.bind is a loopback address (got %s)", c.HTTP.Bind)
		}
	}
	if !strings.HasPrefix(c.HTTP.Path, "/") {
		report("http.path", "must begin with / (got %q)", c.HTTP.Path)
	}
	if c.HTTP.MaxBodyBytes <= 0 {
		report("http.max_body_bytes", "must be > 0 (got %d)", c.HTTP.MaxBodyBytes)
	}
	if c.HTTP.MaxBufferedBytes < c.HTTP.MaxBodyBytes {
		report("http.max_buffered_bytes", "must be >= http.max_body_bytes (got %d)", c.HTTP.MaxBufferedBytes)
	}
	if c.HTTP.MaxSessions <= 0 {
		report("http.max_sessions", "must be > 0 (got %d)", c.HTTP.MaxSessions)
	}
	if c.HTTP.MaxSessionsPerOwner < 0 {
		report("http.max_sessions_per_owner", "must not be negative (got %d)", c.HTTP.MaxSessionsPerOwner)
	}
	if c.HTTP.SessionIdleSeconds <= 0 {
		report("http.session_idle_seconds", "must be > 0 (got %v)", c.HTTP.SessionIdleSeconds)
	}
	if c.MaxResultBytes < 1000 {
		report("max_result_bytes", "must be at least 1000 (got %d)", c.MaxResultBytes)
	}
	if c.Shell.MaxOutputBytes <= 0 {
		report("shell.max_output_bytes", "must be > 0 (got %d)", c.Shell.MaxOutputBytes)
	}
	if c.Shell.LogOutputBytes < 0 {
		report("shell.log_output_bytes", "must not be negative (got %d)", c.Shell.LogOutputBytes)
	}
	return bad.Err(executor.Invalid, "", "\n")
}

// has reports whether a toolset is offered.
func (c Config) has(toolset string) bool { return slices.Contains(c.Toolsets, toolset) }

// network returns the network mode of the programs of a toolset.
func (c Config) network(toolset string) executor.Network {
	on, said := c.Network[toolset]
	if !said {
		on = c.Stdio && (toolset == ToolsetPython || toolset == ToolsetShell)
	}
	if on {
		return executor.NetworkOn
	}
	return executor.NetworkDefault
}
