package mcpfrontend

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// The usual causes of failures, as the output of a program names them.
var (
	noNetwork = compiled(`Temporary failure in name resolution|Name or service not known|Could not resolve host|Network is unreachable|` +
		`network is unreachable|nodename nor servname|getaddrinfo E|ENETUNREACH|bad address '|unable to resolve host address`)
	noModule     = compiled(`ModuleNotFoundError: No module named '([\w.]+)'|Missing optional dependency '(\w+)'`)
	noNodeModule = compiled(`Cannot find (?:module|package) '([^']+)'`)
	noPackage    = compiled("`Import (\\w+)` failed|[Ii]nstall the (\\w+) package")
	noInput      = compiled(`EOFError: EOF when reading a line`)
	noImport     = compiled(`Cannot use import statement outside a module`)
)

// advice tells how callers of a toolset get what a program lacks.
type advice struct {
	// install returns how to get packages, which are a list in JSON.
	install func(packages string) string
	// networkOff reports whether programs have no network. setting is the key that gives them one.
	networkOff bool
	setting    string
	// input tells how a program gets its standard input.
	input string
	// shell reports whether the code is a shell's.
	shell bool
}

// noStdin is the input of tools that have none.
const noStdin = "There is no standard input here: put the values into the code."

// advice returns the advice of a toolset.
func (t *tools) advice(toolset string, install func(packages string) string) advice {
	return advice{
		install: install, setting: "mcp.network." + toolset, input: noStdin,
		networkOff: t.config.network(toolset) != executor.NetworkOn && t.backend().Capabilities.NetworkOff,
	}
}

// hint returns the usual cause of the end r of code, which has written stderr, and what to do; "" if there is none. output is what it has
// shown elsewhere. A program that only tried pip may go on. Rules are here if their remedy is a tool or a setting of this frontend. The others are the engine's: Result.Hint.
func (a advice) hint(code, output, stderr string, r executor.Result) string {
	failed := r.Status == executor.StatusFailed
	offline := a.networkOff && noNetwork().MatchString(stderr)
	packages, calls := installs(code)
	module := lastGroup(noModule(), stderr)
	switch {
	case noPip().MatchString(stderr), offline && (calls || strings.Contains(stderr, "pip")), calls && failed && module == "",
		a.unseen(code, output, stderr, r):
		return a.pip(packages)
	case noNPM().MatchString(stderr), npmLine().MatchString(code) && failed:
		return executor.NoNPM + "."
	case systemLine().MatchString(code) && (failed || noSystem().MatchString(stderr)):
		return "System packages cannot be installed: use Python packages, or have the server use an image that has them (backend docker)."
	case !failed:
		return ""
	case module != "":
		return fmt.Sprintf("Module %s is missing: %s", module, a.install(text([]string{executor.PackageOf(module)})))
	case noPackage().MatchString(stderr):
		found := noPackage().FindStringSubmatch(stderr) // the first one is the usual one
		return "A package is missing: " + a.install(text([]string{executor.PackageOf(found[1] + found[2])}))
	case len(asked(stderr)) > 0:
		return "The error asks for a package: " + a.install(text(asked(stderr)))
	case noInput().MatchString(stderr):
		return a.input
	case noImport().MatchString(stderr):
		return "import declarations do not work here: use require('name') or await import('name')."
	case offline:
		return "network is off: no other host can be reached (setting " + a.setting + ")."
	}
	module = lastGroup(noNodeModule(), stderr)
	switch {
	case module == "":
		return withoutWays(r.Hint)
	case strings.HasPrefix(module, "."), strings.HasPrefix(module, "/"):
		return fmt.Sprintf("There is no file %s: write it first, or give its path from the folder of the code.", module)
	}
	return fmt.Sprintf("Module %s is missing: %s.", module, executor.NoNPM)
}

// withoutWays returns a Result's hint without the ways in at its end, in brackets: they are those of HTTP and of the command line.
func withoutWays(hint string) string {
	if at := strings.LastIndex(hint, " ("); at >= 0 && strings.HasSuffix(hint, ")") {
		return hint[:at]
	}
	return hint
}

// asked returns the packages that the message of an error, the end of stderr, says to install.
func asked(stderr string) []string {
	at := strings.LastIndex(stderr, "Error: ")
	if at < 0 {
		return nil
	}
	packages, _ := installs(stderr[at:])
	return packages
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
	refused := strings.Contains(stderr, "SyntaxError") && strings.Contains(stderr, `File "`) || noPip().MatchString(stderr)
	if !refused || !notebookLine().MatchString(code) {
		return ""
	}
	packages, _ := installs(code)
	return a.pip(packages)
}

// limitReached names the limit that has ended a program, with its number and what to do; "" if none has. It is the same in all tools. timeout
// is the tool's argument for the time limit; "" if it has none.
func limitReached(r executor.Result, timeout string) string {
	field, said := "", ""
	if f := r.HitLimit(); f != nil {
		field, said = f.Field, strings.TrimSuffix(strings.TrimPrefix(f.Message, f.Field+": "), "; raise the limit")
	}
	switch r.Status { // a backend may not say which limit it was
	case executor.StatusTimedOut:
		field, said = cmp.Or(field, executor.FieldTimeout), cmp.Or(said, "the program ran for "+strconv.FormatFloat(r.Wall.Seconds(), 'g', 3, 64)+" s")
	case executor.StatusOutOfMemory:
		field, said = cmp.Or(field, "config.memory_mb"), cmp.Or(said, "the program needed more memory than it may have")
	}
	var kind, remedy string
	switch field {
	case "":
		return ""
	case executor.FieldTimeout:
		kind, remedy = "time", "raise "+timeout+", or do less in one call"
		if timeout == "" {
			remedy = "split the work; the server's setting is limits.max.timeout_seconds"
		}
		field = cmp.Or(timeout, field)
	case executor.FieldCPUTime:
		kind, remedy, field = "CPU time", "raise cpu_seconds, or do less in one call", "cpu_seconds"
	case "config.memory_mb":
		kind, remedy = "memory", "use less, for example read data in pieces; the server's setting is limits.default.memory_mb"
	case "config.disk_mb":
		kind, remedy = "disk", "write less, or remove files; the server's setting is limits.default.disk_mb"
	default:
		kind, remedy = "server's", "use less"
	}
	return fmt.Sprintf("The %s limit was reached (%s: %s): %s.", kind, field, said, remedy)
}

// compiled returns a function that returns the regular expression. The first call compiles it, so that a process does not pay for
// expressions that it does not use.
func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
