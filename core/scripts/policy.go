package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Policy says what may be run, and how. The zero Policy allows nothing.
type Policy struct {
	// Root is the folder in which scripts must really lie, links resolved; empty: anywhere.
	Root string
	// Scripts are the absolute paths of the scripts that may be run.
	Scripts []string
	// Args are the flags that may be given to them ("--port"), each with at most one value.
	Args []string
	// Env are the names of variables that a request may set.
	Env []string
	// Timeout of a script whose request names none. Default 90 s.
	Timeout time.Duration
	// MaxOutputBytes of each stream are kept. Default 262,144.
	MaxOutputBytes int64
	// MaxLineBytes of each line are kept. Default 8,192.
	MaxLineBytes int
	// LogDir takes the audit log and a file for each run; empty: none.
	LogDir string
}

// numeric are the flags whose value is a number, with the largest it may be.
var numeric = map[string]int64{
	"--port": 65535, "--timeout": 86400, "--timeout-ms": 86_400_000, "--workers": 1024, "--max": 1 << 31, "--limit": 1 << 31, "--count": 1 << 31,
}

// allowed is one script that may be run, found.
type allowed struct {
	path string // as configured
	real string
	dir  string
}

// find resolves path and checks it. Codes: denied (not on the list), invalid (on the list, but not as the policy wants it).
func (p Policy) find(path string) (allowed, error) {
	if len(p.Scripts) == 0 {
		return allowed{}, executor.FieldErrorf(executor.Denied, "script", "no script is allowed on this server")
	}
	clean := filepath.Clean(path)
	if !filepath.IsAbs(path) || !slices.ContainsFunc(p.Scripts, func(s string) bool { return filepath.Clean(s) == clean }) {
		return allowed{}, executor.FieldErrorf(executor.Denied, "script", "%s is not on the list of allowed scripts", path)
	}
	real, err := filepath.EvalSymlinks(clean)
	if err != nil {
		return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "%s is not there", path)
	}
	if p.Root != "" {
		root, err := filepath.EvalSymlinks(p.Root)
		if err != nil {
			return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "the root of allowed scripts is not there")
		}
		rel, err := filepath.Rel(root, real)
		if err != nil || !filepath.IsLocal(rel) {
			return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "%s lies outside the root of allowed scripts", path)
		}
	}
	st, err := os.Stat(real)
	if err != nil || !st.Mode().IsRegular() {
		return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "%s is not a regular file", path)
	}
	return allowed{path: clean, real: real, dir: filepath.Dir(real)}, nil
}

// arguments checks args: flags by name, "--flag", "--flag=value" or "--flag value", and no others. Numbers are written
// plainly. Codes: invalid.
func (p Policy) arguments(args []string) ([]string, error) {
	var out []string
	waiting := "" // the flag before, which may take a value
	for i, arg := range args {
		field := fmt.Sprintf("args[%d]", i)
		if strings.ContainsAny(arg, "\x00\r\n") {
			return nil, executor.FieldErrorf(executor.Invalid, field, "must be one line")
		}
		if !strings.HasPrefix(arg, "-") {
			if waiting == "" {
				return nil, executor.FieldErrorf(executor.Invalid, field, "%q follows no flag that could take it", arg)
			}
			value, err := coerce(field, waiting, arg)
			if err != nil {
				return nil, err
			}
			out, waiting = append(out, value), ""
			continue
		}
		name, value, given := strings.Cut(arg, "=")
		if !slices.Contains(p.Args, name) {
			return nil, executor.FieldErrorf(executor.Invalid, field, "%s is not on the list of allowed arguments", name)
		}
		if !given {
			out, waiting = append(out, name), name
			continue
		}
		value, err := coerce(field, name, value)
		if err != nil {
			return nil, err
		}
		out, waiting = append(out, name+"="+value), ""
	}
	return out, nil
}

// coerce makes the value of a flag that is known to take a number one.
func coerce(field, flag, value string) (string, error) {
	limit, known := numeric[flag]
	if !known {
		return value, nil
	}
	text := strings.TrimSpace(value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, floatErr := strconv.ParseFloat(text, 64) // 8080.0, as JSON may have it
		if floatErr != nil || f != float64(int64(f)) {
			return "", executor.FieldErrorf(executor.Invalid, field, "%s must be a whole number (got %q)", flag, value)
		}
		n = int64(f)
	}
	if n < 0 || n > limit {
		return "", executor.FieldErrorf(executor.Invalid, field, "%s must be between 0 and %d (got %s)", flag, limit, text)
	}
	return strconv.FormatInt(n, 10), nil
}

// environment checks what a request sets and adds what every script gets. Codes: invalid.
func (p Policy) environment(asked map[string]string) (map[string]string, error) {
	env := map[string]string{}
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SHELL"} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	for name, value := range asked {
		if !slices.Contains(p.Env, name) {
			return nil, executor.FieldErrorf(executor.Invalid, "env."+name, "is not on the list of allowed variables")
		}
		env[name] = value
	}
	return env, nil
}
