package config

import (
	"fmt"
	"path"
	"regexp"
	"time"
)

// Scripts says which scripts of this host may be run by callers with the scope scripts. Without any, none.
type Scripts struct {
	// Root is the folder in which scripts must really lie (TSM_ALLOWED_ROOT); empty: anywhere.
	Root string `json:"root"`
	// Allowed are their absolute paths (TSM_ALLOWED_SCRIPTS, separated by colons or semicolons).
	Allowed []string `json:"allowed"`
	// Args are the flags that may be given (TSM_ALLOWED_ARGS, separated by commas), "--port".
	Args []string `json:"args"`
	// Env are the variables that a request may set (TSM_ENV_ALLOWLIST, separated by commas).
	Env []string `json:"env"`
	// TimeoutMS is the time of a script whose request names none (TSM_TIMEOUT_MS_DEFAULT). Default 90,000.
	TimeoutMS int64 `json:"timeout_ms"`
	// MaxOutputBytes of each stream are kept (TSM_MAX_OUTPUT_BYTES). Default 262,144.
	MaxOutputBytes int64 `json:"max_output_bytes"`
	// MaxLineBytes of each line are kept (TSM_MAX_LINE_BYTES). Default 8,192.
	MaxLineBytes int `json:"max_line_bytes"`
	// LogDir takes an audit log and a file for each run (TSM_LOG_DIR); empty: none.
	LogDir string `json:"log_dir"`
}

func defaultScripts() Scripts {
	return Scripts{
		Allowed: []string{}, Args: []string{}, Env: []string{}, TimeoutMS: 90_000, MaxOutputBytes: 262_144, MaxLineBytes: 8192,
	}
}

// Timeout is TimeoutMS.
func (s Scripts) Timeout() time.Duration { return time.Duration(s.TimeoutMS) * time.Millisecond }

var (
	flagForm     = regexp.MustCompile(`^--?[A-Za-z0-9][A-Za-z0-9_-]*$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (s Scripts) validate(p *problems) {
	if s.Root != "" && !path.IsAbs(s.Root) {
		p.add("scripts.root", "must be an absolute path (got %q)", s.Root)
	}
	for i, script := range s.Allowed {
		if !path.IsAbs(script) {
			p.add(fmt.Sprintf("scripts.allowed[%d]", i), "must be an absolute path (got %q)", script)
		}
	}
	for i, flag := range s.Args {
		if !flagForm.MatchString(flag) {
			p.add(fmt.Sprintf("scripts.args[%d]", i), "must be the name of a flag like --port (got %q)", flag)
		}
	}
	for i, name := range s.Env {
		if !variableForm.MatchString(name) {
			p.add(fmt.Sprintf("scripts.env[%d]", i), "must be the name of a variable (got %q)", name)
		}
	}
	p.within("scripts.timeout_ms", float64(s.TimeoutMS), 86_400_000)
	p.within("scripts.max_output_bytes", float64(s.MaxOutputBytes), 1<<30)
	p.within("scripts.max_line_bytes", float64(s.MaxLineBytes), 1<<30)
}
