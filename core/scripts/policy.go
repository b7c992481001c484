package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// policy tells which scripts may run, and how.
type policy struct{ config.Scripts }

// numeric maps the flags whose value is a number to their maximum.
var numeric = map[string]int64{
	"--port": 65535, "--timeout": 86400, "--timeout-ms": 86_400_000, "--workers": 1024, "--max": 1 << 31, "--limit": 1 << 31, "--count": 1 << 31,
}

// allowed is a script that may run.
type allowed struct {
	path string // the configured path
	real string // the path without links
	dir  string // the folder of real
}

// find resolves path and checks it. Codes: denied (not in Allowed), invalid (in Allowed, but missing, not a regular file or
// outside Root).
func (p policy) find(path string) (allowed, error) {
	if len(p.Allowed) == 0 {
		return allowed{}, executor.FieldErrorf(executor.Denied, "script", "no script is allowed on this server (scripts.allowed is empty)")
	}
	clean := filepath.Clean(path)
	if !filepath.IsAbs(path) || !slices.ContainsFunc(p.Allowed, func(s string) bool { return filepath.Clean(s) == clean }) {
		return allowed{}, executor.FieldErrorf(executor.Denied, "script", "must be an allowed script (got %s): list_allowed shows them", path)
	}
	real, err := filepath.EvalSymlinks(clean)
	if err != nil {
		return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "%s does not exist", path)
	}
	if p.Root != "" {
		root, err := filepath.EvalSymlinks(p.Root)
		if err != nil {
			return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "the root folder of allowed scripts does not exist")
		}
		rel, err := filepath.Rel(root, real)
		if err != nil || !filepath.IsLocal(rel) {
			return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "must lie in the root folder of allowed scripts (got %s)", path)
		}
	}
	st, err := os.Stat(real)
	if err != nil || !st.Mode().IsRegular() {
		return allowed{}, executor.FieldErrorf(executor.Invalid, "script", "must be a regular file (got %s)", path)
	}
	return allowed{path: clean, real: real, dir: filepath.Dir(real)}, nil
}

// anyArgument as an entry of Args allows every positional argument that does not look like a flag.
const anyArgument = "*"

// arguments checks args and returns them with numbers in plain form. Of the entries of Args, the flags are allowed as "--flag",
// "--flag=value" or "--flag value", and the others as positional arguments. A word behind a flag is its value; behind "--" all words are
// positional. The result has the positional arguments last, behind "--" if there are flags, so that no program takes one for the value
// of a flag. Codes: invalid.
func (p policy) arguments(args []string) ([]string, error) {
	var flags, words []string
	waiting, ended := "", false // the flag before arg, if it may take a value; whether "--" has come
	for i, arg := range args {
		field := fmt.Sprintf("args[%d]", i)
		switch {
		case strings.ContainsAny(arg, "\x00\r\n"):
			return nil, executor.FieldErrorf(executor.Invalid, field, "must be one line without NUL bytes")
		case !ended && arg == "--":
			ended = true
			continue
		case !ended && waiting != "" && !strings.HasPrefix(arg, "-"):
			value, err := coerce(field, waiting, arg)
			if err != nil {
				return nil, err
			}
			flags, waiting = append(flags, value), ""
			continue
		case ended || !strings.HasPrefix(arg, "-"):
			if !p.positional(arg) {
				return nil, executor.FieldErrorf(executor.Invalid, field, "must be an allowed flag or argument, or the value of the flag before it (got %q): list_allowed shows them", arg)
			}
			words = append(words, arg)
			continue
		}
		name, value, given := strings.Cut(arg, "=")
		if !slices.Contains(p.Args, name) {
			return nil, executor.FieldErrorf(executor.Invalid, field, "must be an allowed flag (got %s): list_allowed shows them", name)
		}
		if !given {
			flags, waiting = append(flags, name), name
			continue
		}
		value, err := coerce(field, name, value)
		if err != nil {
			return nil, err
		}
		flags, waiting = append(flags, name+"="+value), ""
	}
	if ended || len(flags) > 0 && len(words) > 0 {
		flags = append(flags, "--")
	}
	return append(flags, words...), nil
}

// positional reports whether word may be a positional argument.
func (p policy) positional(word string) bool {
	if strings.HasPrefix(word, "-") {
		return false
	}
	return slices.Contains(p.Args, word) || slices.Contains(p.Args, anyArgument)
}

// coerce returns the value of a flag. If the flag is in numeric, the value must be a whole number within its bound.
func coerce(field, flag, value string) (string, error) {
	limit, known := numeric[flag]
	if !known {
		return value, nil
	}
	text := strings.TrimSpace(value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, floatErr := strconv.ParseFloat(text, 64) // JSON clients may send 8080.0
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

// environment returns the variables of a script: those of the request, which must be in Env, and some of the server's own.
// Codes: invalid.
func (p policy) environment(asked map[string]string) (map[string]string, error) {
	env := map[string]string{}
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SHELL"} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	for name, value := range asked {
		if !slices.Contains(p.Env, name) {
			return nil, executor.FieldErrorf(executor.Invalid, "env."+name, "must be an allowed variable")
		}
		env[name] = value
	}
	return env, nil
}
