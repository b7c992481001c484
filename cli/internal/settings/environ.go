package settings

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

const backendsPrefix = EnvPrefix + "BACKENDS_"

// aliases holds the variables of the MCP specifications, by the key that they set. A PYEXEC_ variable wins over its alias.
var aliases = map[string]string{
	"mcp.http.bind":              opensListener,
	"mcp.http.enabled":           opensListener, // the specification knows no other switch
	"mcp.http.path":              "MCP_HTTP_PATH",
	"mcp.shell.max_output_bytes": "MCP_EXEC_MAX_OUTPUT_BYTES",
	"mcp.shell.log_full_output":  "MCP_EXEC_LOG_FULL_OUTPUT",
	"mcp.shell.log_output_bytes": "MCP_EXEC_LOG_OUTPUT_BYTES",
	"scripts.root":               "TSM_ALLOWED_ROOT",
	"scripts.allowed":            allowsScripts,
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

const (
	// opensListener is the variable of the shell specification with the address of a listener. It also opens the listener.
	opensListener = "MCP_HTTP_BIND"
	// allowsScripts is the variable of the test-start specification with the allowed scripts. It also adds their toolset.
	allowsScripts = "TSM_ALLOWED_SCRIPTS"
)

// separators holds the characters that separate the items of a list, by variable of the specifications.
var separators = map[string]string{allowsScripts: ":;", "TSM_ALLOWED_ARGS": ",", "TSM_ENV_ALLOWLIST": ","}

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
	if to.Kind() == reflect.Bool && origin == opensListener {
		return "true"
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
	for _, variable := range ours(EnvPrefix) {
		if belowSection(l.keys, variable) && !slices.Contains(known, variable) {
			meant, why := l.meantVariable(variable, known)
			if why != "" {
				why = ": " + why
			}
			l.problems.Add(variable, "unknown key (environment)%s", cmp.Or(why, question(meant)))
		}
	}
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
		names = append(names, variablesBelow(sectionPrefix(typ), defaults)...)
	}
	return names
}

func variablesBelow(prefix string, defaults map[string]any) (names []string) {
	for name, value := range defaults {
		name = prefix + strings.ToUpper(name)
		if nested, ok := value.(map[string]any); ok {
			names = append(names, variablesBelow(name+"_", nested)...)
		}
		names = append(names, name)
	}
	return names
}
