package config

import (
	"path"
	"path/filepath"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Scripts configures the scripts of this host that callers with the scope scripts may run. The zero value allows no script.
type Scripts struct {
	// Root is the folder that must contain the scripts after all links are resolved (TSM_ALLOWED_ROOT). Empty: any folder.
	Root string `json:"root"`
	// Allowed are their absolute paths (TSM_ALLOWED_SCRIPTS, separated by colons or semicolons).
	Allowed []string `json:"allowed"`
	// Args are what a request may pass (TSM_ALLOWED_ARGS, separated by commas): flags like "--port", each with or without a value, and
	// positional arguments like "start". "*" allows every positional argument that does not begin with "-".
	Args []string `json:"args"`
	// DefaultArgs are the arguments of a request that has none. Args must allow them. Default none.
	DefaultArgs []string `json:"default_args"`
	// Env are the variables that a request may set (TSM_ENV_ALLOWLIST, separated by commas).
	Env []string `json:"env"`
	// TimeoutMS is the timeout of a request that sets none (TSM_TIMEOUT_MS_DEFAULT). Default 90,000.
	TimeoutMS int64 `json:"timeout_ms"`
	// MaxOutputBytes is how much of each stream is kept (TSM_MAX_OUTPUT_BYTES). Default 262,144.
	MaxOutputBytes int64 `json:"max_output_bytes"`
	// MaxLineBytes is how much of each line is kept (TSM_MAX_LINE_BYTES). Default 8,192.
	MaxLineBytes int `json:"max_line_bytes"`
	// LogDir is the folder of the audit log and of a file for each run (TSM_LOG_DIR). A relative path is relative to data_dir. Empty: no
	// log. Default "Test-Start-MCP/logs".
	LogDir string `json:"log_dir"`
}

func defaultScripts() Scripts {
	return Scripts{
		Allowed: []string{}, Args: []string{}, DefaultArgs: []string{}, Env: []string{}, TimeoutMS: 90_000, MaxOutputBytes: 262_144, MaxLineBytes: 8192,
		LogDir: "Test-Start-MCP/logs",
	}
}

// Timeout returns TimeoutMS.
func (s Scripts) Timeout() time.Duration { return time.Duration(s.TimeoutMS) * time.Millisecond }

// Below returns s with LogDir as a path that does not depend on the working directory. dataDir is Config.DataDir.
func (s Scripts) Below(dataDir string) Scripts {
	if s.LogDir != "" && !filepath.IsAbs(s.LogDir) {
		s.LogDir = filepath.Join(dataDir, s.LogDir)
	}
	return s
}

var (
	argumentForm = form(`^(--?[A-Za-z0-9][A-Za-z0-9_-]*|[^-\s][^\r\n\x00]*)$`)
	variableForm = form(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (s Scripts) validate(p *executor.Problems) {
	if s.Root != "" && !path.IsAbs(s.Root) {
		p.Add("scripts.root", "must be an absolute path (got %q)", s.Root)
	}
	each(p, "scripts.allowed", s.Allowed, path.IsAbs, "an absolute path")
	each(p, "scripts.args", s.Args, argumentForm, "a flag like --port, or a positional argument")
	each(p, "scripts.env", s.Env, variableForm, "the name of a variable")
	within(p, "scripts.timeout_ms", float64(s.TimeoutMS), 86_400_000)
	within(p, "scripts.max_output_bytes", float64(s.MaxOutputBytes), 1<<30)
	within(p, "scripts.max_line_bytes", float64(s.MaxLineBytes), 1<<30)
}
