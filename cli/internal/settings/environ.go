package settings

import (
	"encoding/json"
	"maps"
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
// meant for the configuration: of the others see Strays.
func (l *loader) strayVariables() {
	known := variablesOf(l.keys, l.options.Sections)
	for _, variable := range ours() {
		if belowSection(l.keys, variable) && !slices.Contains(known, variable) {
			l.add(variable, "unknown key (environment)%s", question(nearest(variable, known)))
		}
	}
}

// Stray is a variable that begins as ours do and sets nothing.
type Stray struct {
	Variable string
	// Nearest is the one that may be meant; empty: none is like it.
	Nearest string
}

func (s Stray) String() string {
	return s.Variable + " sets nothing and is ignored" + question(s.Nearest)
}

func question(nearest string) string {
	if nearest == "" {
		return ""
	}
	return ": did you mean " + nearest + "?"
}

// Strays returns the variables that may be misspelled, in order: those that begin with EnvPrefix and are taken neither by
// the client nor by c, which Load made of o. What Load refuses is not among them, nor what is about tests, or about a known
// backend that c does not have: another configuration may.
func Strays(o Options, c config.Config) []Stray {
	keys := keysOf(reflect.ValueOf(&c).Elem())
	known := append(variablesOf(keys, o.Sections), EnvPrefix+"SERVER", EnvPrefix+"TOKEN", EnvPrefix+"CONFIG")
	prefixes := []string{EnvPrefix + "TEST_"}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(c.Backends)), slices.Collect(maps.Keys(o.Sections))) {
		prefixes = append(prefixes, sectionPrefix(name))
	}
	var strays []Stray
	for _, variable := range ours() {
		taken := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
		if !belowSection(keys, variable) && !slices.Contains(known, variable) && !slices.ContainsFunc(prefixes, taken) {
			strays = append(strays, Stray{variable, nearest(variable, known)})
		}
	}
	return strays
}

// ours are the names of the variables that begin with EnvPrefix and have a text, in order.
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

// variablesOf are the variables of keys, and of the known backends' own.
func variablesOf(keys []key, sections map[string]json.RawMessage) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.variable())
	}
	for typ, raw := range sections {
		var defaults map[string]any
		_ = json.Unmarshal(raw, &defaults) // ours
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

// nearest is the one of known that is most like variable; empty: none is like it.
func nearest(variable string, known []string) string {
	best, least := "", 2+(len(variable)-len(EnvPrefix))/4
	for _, name := range slices.Sorted(slices.Values(known)) {
		if d := edits(variable, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// edits is how many letters must be added, taken away or changed to make b of a (Levenshtein's distance).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := corner
			if a[i] != b[j] {
				d = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
