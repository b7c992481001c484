package settings

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/config"
)

const backendsPrefix = EnvPrefix + "BACKENDS_"

// aliases holds the variables of the MCP specifications, by the key that they set. A PYEXEC_ variable wins over its alias.
var aliases = map[string]string{
	"mcp.http.bind":              "MCP_HTTP_BIND",
	"mcp.http.path":              "MCP_HTTP_PATH",
	"mcp.shell.max_output_bytes": "MCP_EXEC_MAX_OUTPUT_BYTES",
	"mcp.shell.log_full_output":  "MCP_EXEC_LOG_FULL_OUTPUT",
	"mcp.shell.log_output_bytes": "MCP_EXEC_LOG_OUTPUT_BYTES",
	"scripts.root":               "TSM_ALLOWED_ROOT",
	"scripts.allowed":            "TSM_ALLOWED_SCRIPTS",
	"scripts.args":               "TSM_ALLOWED_ARGS",
	"scripts.env":                "TSM_ENV_ALLOWLIST",
	"scripts.timeout_ms":         "TSM_TIMEOUT_MS_DEFAULT",
	"scripts.max_output_bytes":   "TSM_MAX_OUTPUT_BYTES",
	"scripts.max_line_bytes":     "TSM_MAX_LINE_BYTES",
	"scripts.log_dir":            "TSM_LOG_DIR",
}

// scriptsToken is the variable of the test-start specification with a bearer token. The token allows to run the allowed scripts
// and to read their executions.
const scriptsToken = "TSM_TOKEN" //nolint:gosec // a name

// separators holds the characters that separate the items of a list, by variable of the specifications.
var separators = map[string]string{"TSM_ALLOWED_SCRIPTS": ":;", "TSM_ALLOWED_ARGS": ",", "TSM_ENV_ALLOWLIST": ","}

// aliasText converts the text of an alias to that of a PYEXEC_ variable: 1 and 0 become true and false, a list gets brackets. The text of
// any other origin stays as it is.
func aliasText(origin, written string, to reflect.Type) string {
	if between := separators[origin]; between != "" {
		items := strings.FieldsFunc(written, func(r rune) bool { return strings.ContainsRune(between, r) })
		for i := range items {
			items[i] = strings.TrimSpace(items[i])
		}
		raw, err := json.Marshal(items)
		if err != nil {
			return written
		}
		return string(raw)
	}
	if to.Kind() == reflect.Bool && !strings.HasPrefix(origin, EnvPrefix) && !strings.HasPrefix(origin, "--") {
		switch written {
		case "1":
			return "true"
		case "0":
			return "false"
		}
	}
	return written
}

func sectionPrefix(name string) string {
	return backendsPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
}

// unknownVariables records the variables below a fixed section that are no key. UnusedVariables reports other unknown variables,
// which may not be meant for the configuration.
func (l *loader) unknownVariables() {
	known := variablesOf(l.keys, l.options.Sections)
	for _, variable := range ours() {
		if belowSection(l.keys, variable) && !slices.Contains(known, variable) {
			l.problems.Add(variable, "unknown key (environment)%s", question(nearest(variable, known)))
		}
	}
}

// UnusedVariable is a variable with EnvPrefix that sets nothing.
type UnusedVariable struct {
	Variable string
	// Nearest is the most similar known variable; empty if none is similar.
	Nearest string
}

func (v UnusedVariable) String() string {
	return v.Variable + " sets nothing and is ignored" + question(v.Nearest)
}

// UnusedVariables returns the variables that may be misspelled, sorted: those with EnvPrefix that neither the client nor c uses.
// Load made c from o. The list has no variables that Load refuses, none of tests, and none of a known backend that c does not
// have, because another configuration may have it.
func UnusedVariables(o Options, c config.Config) []UnusedVariable {
	keys := keysOf(reflect.ValueOf(&c).Elem())
	known := append(variablesOf(keys, o.Sections), EnvPrefix+"SERVER", EnvPrefix+"TOKEN", EnvPrefix+"CONFIG")
	prefixes := []string{EnvPrefix + "TEST_"}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(c.Backends)), slices.Collect(maps.Keys(o.Sections))) {
		prefixes = append(prefixes, sectionPrefix(name))
	}
	var unused []UnusedVariable
	for _, variable := range ours() {
		taken := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
		if !belowSection(keys, variable) && !slices.Contains(known, variable) && !slices.ContainsFunc(prefixes, taken) {
			unused = append(unused, UnusedVariable{variable, nearest(variable, known)})
		}
	}
	return unused
}

// ours returns the names of the variables with EnvPrefix that are not empty, sorted.
func ours() []string {
	var names []string
	for _, entry := range os.Environ() {
		if variable, text, _ := strings.Cut(entry, "="); text != "" && strings.HasPrefix(variable, EnvPrefix) {
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

// variablesOf returns the variables of keys and of the sections of the known backends.
func variablesOf(keys []key, sections map[string]json.RawMessage) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.variable())
	}
	for typ, raw := range sections {
		var defaults map[string]any
		_ = json.Unmarshal(raw, &defaults) // a plugin wrote it, so it is valid
		names = append(names, below(sectionPrefix(typ), defaults)...)
	}
	return names
}

func below(prefix string, defaults map[string]any) (names []string) {
	for name, value := range defaults {
		name = prefix + strings.ToUpper(name)
		if nested, ok := value.(map[string]any); ok {
			names = append(names, below(name+"_", nested)...)
		}
		names = append(names, name)
	}
	return names
}
