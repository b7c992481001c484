package settings

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/python-executor/python-executor/core/config"
)

const backendsPrefix = EnvPrefix + "BACKENDS_"

// aliases are the variables that the specifications of the MCP servers name, by the key that they set. Ours win.
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

// scriptsToken is the variable of the test-start specification with a bearer token. Its bearer may run allowed scripts, and
// see what became of them.
const scriptsToken = "TSM_TOKEN" //nolint:gosec // a name

// separators stand between the items of a list in a variable of the specifications.
var separators = map[string]string{"TSM_ALLOWED_SCRIPTS": ":;", "TSM_ALLOWED_ARGS": ",", "TSM_ENV_ALLOWLIST": ","}

// aliasText is the text of an alias as ours would have it: 1 and 0 are true and false, and a list has brackets.
func aliasText(to reflect.Value, alias, text string) string {
	if between := separators[alias]; between != "" {
		items := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(between, r) })
		for i := range items {
			items[i] = strings.TrimSpace(items[i])
		}
		raw, err := json.Marshal(items)
		if err != nil {
			return text
		}
		return string(raw)
	}
	if to.Kind() == reflect.Bool {
		switch text {
		case "1":
			return "true"
		case "0":
			return "false"
		}
	}
	return text
}

func sectionPrefix(name string) string {
	return backendsPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
}

// overlay lays PYEXEC_BACKENDS_<NAME>_<KEY> over a section. Lists and maps are written in YAML's flow form.
func (l *loader) overlay(name string, b config.Backend) config.Backend {
	prefix, at := sectionPrefix(name), join("backends", name)
	var section map[string]any
	for _, entry := range os.Environ() {
		variable, text, _ := strings.Cut(entry, "=")
		own, ok := strings.CutPrefix(variable, prefix)
		if !ok || own == "" || text == "" {
			continue
		}
		if section == nil {
			section = map[string]any{}
			raw, err := json.Marshal(b)
			if err == nil {
				err = json.Unmarshal(raw, &section)
			}
			if err != nil {
				l.add(at, "%v", err)
				return b
			}
		}
		path, standard := l.option(b.TypeOr(name), strings.ToLower(own))
		put(section, path, l.variableValue(join(at, strings.Join(path, ".")), standard, text))
	}
	if section == nil {
		return b
	}
	if changed, ok := l.toBackend(at, section); ok {
		return changed
	}
	return b
}

// option is the key that a variable means, and its default: POOL_MIN_IDLE is pool.min_idle where the type has that. What
// the type does not know is a key of its own, for the plugin to refuse.
func (l *loader) option(typ, name string) (path []string, standard any) {
	var defaults map[string]any
	if raw := l.options.Sections[typ]; raw != nil {
		_ = json.Unmarshal(raw, &defaults) // ours
	}
	for rest := name; ; {
		if standard, ok := defaults[rest]; ok {
			return append(path, rest), standard
		}
		section := ""
		for key, value := range defaults {
			if _, nested := value.(map[string]any); nested && strings.HasPrefix(rest, key+"_") && len(key) > len(section) {
				section = key
			}
		}
		if section == "" {
			if slices.Contains([]string{"type", "path", "sha256"}, name) {
				return []string{name}, ""
			}
			return []string{name}, nil
		}
		defaults, _ = defaults[section].(map[string]any)
		path, rest = append(path, section), rest[len(section)+1:]
	}
}

// variableValue reads a variable's text as what its default is: text, a list (A,B or YAML), else YAML.
func (l *loader) variableValue(at string, standard any, text string) any {
	if _, isText := standard.(string); isText {
		return text
	}
	if _, isList := standard.([]any); isList && !strings.HasPrefix(strings.TrimSpace(text), "[") {
		list := []any{}
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		return list
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		return text
	}
	return l.value(at, resolve(doc.Content[0]), 0)
}

// strayVariables reports variables that look like keys and are none. Only names below a fixed section are certain to be
// meant for the configuration: PYEXEC_SERVER, PYEXEC_TOKEN and PYEXEC_CONFIG are the client's, PYEXEC_BACKENDS_… may be
// about a backend that another configuration has, and others are somebody else's.
func (l *loader) strayVariables() {
	known := map[string]bool{}
	var sections []string
	for _, k := range l.keys {
		known[k.variable()] = true
		if section, _, nested := strings.Cut(k.path, "."); nested {
			sections = append(sections, EnvPrefix+strings.ToUpper(section)+"_")
		}
	}
	for _, entry := range os.Environ() {
		variable, text, _ := strings.Cut(entry, "=")
		below := slices.ContainsFunc(sections, func(s string) bool { return strings.HasPrefix(variable, s) })
		if below && text != "" && !known[variable] {
			l.add(variable, "unknown key (environment)")
		}
	}
}
