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

// Config is what the plugin is told.
type Config struct {
	// Version of the program, for serverInfo.
	Version string `json:"version"`
	// Toolsets that are offered. Default: python, contexts, shell.
	Toolsets []string `json:"toolsets"`
	// Backend is the name of the backend that tools run on; empty: the server's default, which Backends lists first.
	Backend string `json:"backend"`
	// Directories are the roots in which run_script_in_dir may work over HTTP. Over stdio every folder of its user may.
	Directories []string `json:"directories"`
	// Network says whether what a toolset runs may use a network, by toolset. Default: over stdio on for python and shell,
	// else off.
	Network map[string]bool `json:"network"`
	// Remote: the Service is that of a server elsewhere, whose folders are not the user's.
	Remote bool `json:"remote"`
	// Stdio serves descriptors 3 (in) and 4 (out) of the process.
	Stdio bool `json:"stdio"`
	// HTTP serves streamable HTTP.
	HTTP HTTP `json:"http"`
	// MaxResultBytes is where a tool's text result is cut, each stream for itself; the totals and where the rest is are
	// said. Default 40,000.
	MaxResultBytes int `json:"max_result_bytes"`
	// Shell configures the toolset shell.
	Shell Shell `json:"shell"`
	// TestFixtures adds the tools, resources and prompts of the protocol's conformance suite. Loopback only.
	TestFixtures bool `json:"test_fixtures"`
}

// HTTP configures streamable HTTP.
type HTTP struct {
	// Bind is the listening address; empty: no listener of its own.
	Bind string `json:"bind"`
	// Path of the endpoint. Default "/mcp".
	Path string `json:"path"`
	// Socket is the name of a unix socket to serve, too: the HTTP frontend's, which has checked the caller and names it in
	// the header Pyexec-Principal. Empty: none.
	Socket string `json:"socket"`
	// AllowedOrigins are Origins besides the server's own, "https://app.example.com".
	AllowedOrigins []string `json:"allowed_origins"`
	// MaxBodyBytes bounds one message. Default 16 MiB.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxBufferedBytes bounds the messages that are held in memory at once. Default 256 MiB.
	MaxBufferedBytes int64 `json:"max_buffered_bytes"`
	// LocalScripts: without tokens a local caller may run allowed scripts.
	LocalScripts bool `json:"local_scripts"`
	// Tokens are the accepted bearer tokens, as in http.tokens; none: everybody is the local owner.
	Tokens []auth.Token `json:"tokens"`
	// RefuseUIDs are the users of this host whose connections to Bind are refused: those that run programs.
	RefuseUIDs []peer.UIDRange `json:"refuse_uids"`
	// SessionIdleSeconds is when an MCP session that is not used ends. Default 1,800.
	SessionIdleSeconds float64 `json:"session_idle_seconds"`
	// MaxSessions bounds the MCP sessions at once. Default 1,000.
	MaxSessions int `json:"max_sessions"`
	// MaxSessionsPerOwner bounds those of one owner. Default 0: half of MaxSessions where there are Tokens, else all.
	MaxSessionsPerOwner int `json:"max_sessions_per_owner"`
}

// perOwner is the bound that MaxSessionsPerOwner means.
func (h HTTP) perOwner() int {
	switch {
	case h.MaxSessionsPerOwner > 0:
		return h.MaxSessionsPerOwner
	case len(h.Tokens) > 0:
		return max(1, h.MaxSessions/2)
	}
	return h.MaxSessions
}

// Shell configures the toolset shell.
type Shell struct {
	// MaxOutputBytes bounds stdout and stderr together (MCP_EXEC_MAX_OUTPUT_BYTES). Default 40,000.
	MaxOutputBytes int `json:"max_output_bytes"`
	// LogFullOutput logs all output up to the bound (MCP_EXEC_LOG_FULL_OUTPUT); else LogOutputBytes of it are logged
	// (MCP_EXEC_LOG_OUTPUT_BYTES), where that was set: 0 = none. Default 0: output may hold secrets.
	LogFullOutput  bool `json:"log_full_output"`
	LogOutputBytes int  `json:"log_output_bytes"`
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
			return c, executor.FieldErrorf(executor.Invalid, name+"."+kind.Field, "must be of another kind (got a %s)", kind.Value)
		}
		return c, executor.FieldErrorf(executor.Invalid, name, "%v", err)
	}
	return c, c.validate(name)
}

// validate reports every problem with its path. Codes: invalid.
func (c Config) validate(name string) error {
	var bad []executor.FieldError
	report := func(key, format string, args ...any) {
		bad = append(bad, executor.FieldError{Field: name + "." + key, Message: fmt.Sprintf(format, args...)})
	}
	for i, t := range c.Toolsets {
		if !slices.Contains(Toolsets(), t) {
			report(fmt.Sprintf("toolsets[%d]", i), "unknown toolset %q (of %s)", t, strings.Join(Toolsets(), ", "))
		}
	}
	for i, d := range c.Directories {
		if !strings.HasPrefix(d, "/") {
			report(fmt.Sprintf("directories[%d]", i), "must be an absolute path")
		}
	}
	for t := range c.Network {
		if !slices.Contains(Toolsets(), t) {
			report("network."+t, "unknown toolset")
		}
	}
	if c.HTTP.Bind != "" {
		if _, _, err := net.SplitHostPort(c.HTTP.Bind); err != nil {
			report("http.bind", "must be an address with a port (got %q)", c.HTTP.Bind)
		} else if c.TestFixtures && !auth.Loopback(c.HTTP.Bind) {
			report("test_fixtures", "only on a loopback address")
		}
	}
	if !strings.HasPrefix(c.HTTP.Path, "/") {
		report("http.path", "must begin with /")
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
		report("http.session_idle_seconds", "must be > 0")
	}
	if c.MaxResultBytes < 1000 {
		report("max_result_bytes", "must be at least 1000 (got %d)", c.MaxResultBytes)
	}
	if c.Shell.MaxOutputBytes <= 0 {
		report("shell.max_output_bytes", "must be > 0 (got %d)", c.Shell.MaxOutputBytes)
	}
	if c.Shell.LogOutputBytes < 0 {
		report("shell.log_output_bytes", "must not be negative")
	}
	if len(bad) == 0 {
		return nil
	}
	lines := make([]string, len(bad))
	for i, b := range bad {
		lines[i] = b.Field + ": " + b.Message
	}
	return &executor.Error{Code: executor.Invalid, Message: strings.Join(lines, "\n"), Fields: bad}
}

// has reports whether a toolset is offered.
func (c Config) has(toolset string) bool { return slices.Contains(c.Toolsets, toolset) }

// network is the mode of what a toolset runs.
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
