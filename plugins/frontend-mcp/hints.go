package mcpfrontend

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The usual causes of failures, as the output of a program names them.
var (
	noNetwork = compiled(`Temporary failure in name resolution|Name or service not known|Could not resolve host|Network is unreachable|` +
		`network is unreachable|nodename nor servname|getaddrinfo E|ENETUNREACH|bad address '|unable to resolve host address`)
	noModule     = compiled(`ModuleNotFoundError: No module named '([\w.]+)'|Missing optional dependency '(\w+)'`)
	noNodeModule = compiled(`Cannot find (?:module|package) '([^']+)'`)
	noImport     = compiled(`Cannot use import statement outside a module`)
	noRoom       = compiled(`BlockingIOError: \[Errno 11\]|can't start new thread|[Ff]ork: .*[Rr]esource temporarily unavailable|[Cc]annot fork|` +
		`pthread_create failed|pthread_create: Resource temporarily unavailable|spawn \S+ EAGAIN`)
)

// advice tells how callers of a toolset get what a program lacks.
type advice struct {
	// install returns how to get packages, which are a list in JSON.
	install func(packages string) string
	// networkOff reports whether programs have no network. setting is the key that gives them one.
	networkOff bool
	setting    string
}

// advice returns the advice of a toolset.
func (t *tools) advice(toolset string, install func(packages string) string) advice {
	return advice{
		install: install, setting: "mcp.network." + toolset,
		networkOff: t.config.network(toolset) != executor.NetworkOn && t.backend().Capabilities.NetworkOff,
	}
}

// hint returns the usual cause of what code wrote to stderr, and what to do; "" if there is none. failed reports whether the program has
// failed. A program that only tried pip may go on.
func (a advice) hint(code, stderr string, failed bool) string {
	offline := a.networkOff && noNetwork().MatchString(stderr)
	packages, calls := installs(code)
	module := lastGroup(noModule(), stderr)
	switch {
	case noPip().MatchString(stderr), offline && (calls || strings.Contains(stderr, "pip")), calls && failed && module == "":
		return a.pip(packages)
	case noNPM().MatchString(stderr), npmLine().MatchString(code) && failed:
		return noNPMPackages + "."
	case systemLine().MatchString(code) && (failed || noSystem().MatchString(stderr)):
		return "System packages cannot be installed: use Python packages, or have the server use an image that has them (backend docker)."
	case !failed:
		return ""
	case module != "":
		return fmt.Sprintf("Module %s is missing: %s", module, a.install(text([]string{packageFor(module)})))
	case noImport().MatchString(stderr):
		return "import declarations do not work here: use require('name') or await import('name')."
	case offline:
		return "network is off: no other host can be reached (setting " + a.setting + ")."
	case noRoom().MatchString(stderr):
		return "The limit of processes and threads is reached (config.pids): use fewer."
	}
	module = lastGroup(noNodeModule(), stderr)
	switch {
	case module == "":
		return ""
	case strings.HasPrefix(module, "."), strings.HasPrefix(module, "/"):
		return fmt.Sprintf("There is no file %s: write it first, or give its path from the folder of the code.", module)
	}
	return fmt.Sprintf("Module %s is missing: %s.", module, noNPMPackages)
}

// lastGroup returns the group of the last match of an expression; "" if there is none.
func lastGroup(e *regexp.Regexp, stderr string) string {
	found := e.FindAllStringSubmatch(stderr, -1)
	if found == nil {
		return ""
	}
	return strings.Join(found[len(found)-1][1:], "")
}

// pip returns the answer to code that installs packages by pip.
func (a advice) pip(packages []string) string {
	list := "[…]"
	if len(packages) > 0 {
		list = text(packages)
	}
	return "pip does not run in code: " + a.install(list)
}

// pipInstead returns the answer to Python code that calls pip as a notebook does, and so has failed with stderr; "" if it has
// not.
func (a advice) pipInstead(code, stderr string) string {
	refused := strings.Contains(stderr, "SyntaxError") || strings.Contains(stderr, "pip cannot install here")
	if !refused || !strings.Contains(stderr, `File "`) || !notebookLine().MatchString(code) {
		return ""
	}
	packages, _ := installs(code)
	return a.pip(packages)
}

// clock is the time limit of a call.
type clock struct {
	// argument is the tool's argument for it; empty: the tool has none.
	argument string
	unit     time.Duration
	// limit is what was asked for. 0 is the server's default, and TimeoutMaximum its maximum.
	limit time.Duration
}

// reached names the limit that has ended a program, with its number and what to do; "" if none has. It is the same in all tools.
func (c clock) reached(r executor.Result) string {
	if f := r.HitLimit(); f != nil || r.Status == executor.StatusOutOfMemory {
		field, message := "config.memory_mb", "the program needed more memory than it may have"
		if f != nil {
			field, message = f.Field, f.Message
		}
		if field == "config.disk_mb" {
			return "The disk limit was reached (" + message + "). Write less or remove files; the server's setting is limits.default.disk_mb."
		}
		return "The memory limit was reached (" + message + "). Use less memory, for example read data in pieces; the server's setting is limits.default.memory_mb."
	}
	if r.Status != executor.StatusTimedOut {
		return ""
	}
	remedy := "do less in one call"
	if c.argument != "" {
		remedy = "raise " + c.argument + ", or " + remedy
	}
	if f := r.Failure; f != nil && f.Field != "" && f.Field != "config.timeout_seconds" { // another clock
		return fmt.Sprintf("The time limit was reached (%s). Do less in one call; the server's setting is limits.default.%s.", f.Message, strings.TrimPrefix(f.Field, "config."))
	}
	seconds := strconv.FormatFloat(math.Round(r.Wall.Seconds()*10)/10, 'f', -1, 64) + " s of wall time"
	switch {
	case c.limit > 0 && c.argument != "":
		return fmt.Sprintf("The time limit was reached (%s=%d, wall time): %s.", c.argument, c.limit/cmp.Or(c.unit, 1), remedy)
	case c.limit == executor.TimeoutMaximum:
		return "The time limit was reached (the server's maximum, " + seconds + "): split the work; the server's setting is limits.max.timeout_seconds."
	}
	return "The time limit was reached (the server's default, " + seconds + "): " + remedy + "."
}

// compiled returns a function that returns the regular expression. The first call compiles it, so that a process does not pay for
// expressions that it does not use.
func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
