package settings

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/config"
)

// UnusedVariable is a variable without an effect.
type UnusedVariable struct {
	Variable string
	// Nearest is the most similar known variable, if no key has this one; empty if none is similar.
	Nearest string
	// Why says why the variable has no effect; empty: it sets no key.
	Why string
}

func (v UnusedVariable) String() string {
	if v.Why != "" {
		return v.Variable + " has no effect: " + v.Why
	}
	return v.Variable + " sets nothing and is ignored" + question(v.Nearest)
}

// logLevel is the variable of the test-start specification for the level of the log. The commands read it.
const logLevel = "TSM_LOG_LEVEL"

// agentRun is the prefix of the variables of the contexts specification. None has an effect (docs/decisions/0047).
const agentRun = "AGENTRUN_"

// specPrefixes are the prefixes of the variables of the specifications.
var specPrefixes = []string{"MCP_EXEC_", "MCP_HTTP_", "TSM_", agentRun}

// UnusedVariables returns the variables without an effect: those that may be misspelled, those that another source overrides, and
// those of something that c switches off. Load made c from o. The list has no variables that Load refuses, none of tests, and none
// of a known backend that c does not have, because another configuration may have it.
func UnusedVariables(o Options, c config.Config) []UnusedVariable {
	_, l, _ := load(o) // its problems are those of c
	known := append(variablesOf(l.keys, o.Sections), EnvPrefix+"SERVER", EnvPrefix+"TOKEN", EnvPrefix+"CONFIG", scriptsToken, logLevel)
	known = append(known, slices.Collect(maps.Values(aliases))...)
	prefixes := []string{EnvPrefix + "TEST_"}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(c.Backends)), slices.Collect(maps.Keys(o.Sections))) {
		prefixes = append(prefixes, sectionPrefix(name))
	}
	var unused []UnusedVariable
	for _, variable := range ours(append([]string{EnvPrefix}, specPrefixes...)...) {
		taken := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
		switch {
		case taken(agentRun):
			unused = append(unused, UnusedVariable{Variable: variable, Why: "code runs on the backends of this server, not in the AgentRun cloud"})
		case slices.Contains(known, variable):
			if why := l.useless(variable, c); why != "" {
				unused = append(unused, UnusedVariable{Variable: variable, Why: why})
			}
		case !belowSection(l.keys, variable) && !slices.ContainsFunc(prefixes, taken):
			meant, why := l.meantVariable(variable, known)
			if why != "" {
				meant = ""
			}
			unused = append(unused, UnusedVariable{Variable: variable, Nearest: meant, Why: why})
		}
	}
	return unused
}

// useless returns why a known variable has no effect on c; empty if it has one.
func (l *loader) useless(variable string, c config.Config) string {
	switch variable {
	case scriptsToken:
		if len(c.Scripts.Allowed) == 0 {
			return noScripts
		}
	case logLevel:
		if level := os.Getenv(logLevel); !strings.EqualFold(level, "INFO") && !strings.EqualFold(level, "DEBUG") {
			return fmt.Sprintf("it must be INFO or DEBUG (got %q)", level)
		}
	}
	why := ""
	for _, k := range l.keys {
		if !slices.Contains(k.variables(), variable) {
			continue
		}
		if why = l.ineffective(k.path, variable, c); why == "" {
			return ""
		}
	}
	return why
}

const noScripts = "no script is allowed (scripts.allowed, " + allowsScripts + ")"

// ineffective returns why variable does not change what key does in c.
func (l *loader) ineffective(key, variable string, c config.Config) string {
	if origin := l.origin(key); origin != variable {
		return origin + " overrides it"
	}
	below := func(section string) bool { return strings.HasPrefix(key, section+".") }
	switch {
	case below("scripts") && key != "scripts.allowed" && len(c.Scripts.Allowed) == 0:
		return noScripts
	case below("mcp.http") && l.options.Stdio:
		return "mcp serves standard input and output; the command serve listens"
	case !below("mcp"):
		return ""
	case key != "mcp.toolsets" && len(c.MCP.Toolsets) == 0:
		return "mcp.toolsets is empty, so there is no MCP"
	case (key == "mcp.http.bind" || key == "mcp.http.allowed_origins") && !c.MCP.HTTP.Enabled:
		return "mcp.http.enabled is false (" + cmp.Or(l.origin("mcp.http.enabled"), byDefault) + ")"
	case key == "mcp.shell.log_output_bytes" && c.MCP.Shell.LogFullOutput && slices.Contains(c.MCP.Toolsets, "shell"):
		return "mcp.shell.log_full_output logs all output"
	}
	for _, toolset := range []string{"python", "contexts", "shell"} {
		if (below("mcp."+toolset) || key == "mcp.network."+toolset) && !slices.Contains(c.MCP.Toolsets, toolset) {
			return "mcp.toolsets has no " + toolset
		}
	}
	return ""
}

// ours returns the names of the variables with one of the prefixes that are not empty, sorted.
func ours(prefixes ...string) []string {
	var names []string
	for _, entry := range os.Environ() {
		variable, text, _ := strings.Cut(entry, "=")
		if text != "" && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(variable, p) }) {
			names = append(names, variable)
		}
	}
	slices.Sort(names)
	return names
}

// belowSection reports whether variable is below a fixed section of the configuration, as PYEXEC_HTTP_BIND is.
func belowSection(keys []key, variable string) bool {
	return slices.ContainsFunc(keys, func(k key) bool {
		section, _, nested := strings.Cut(k.path, ".")
		return nested && strings.HasPrefix(variable, EnvPrefix+strings.ToUpper(section)+"_")
	})
}
