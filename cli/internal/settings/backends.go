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
	"github.com/python-executor/python-executor/core/executor"
)

// backends replaces the default entries by those of the file, and applies the variables to them.
func (l *loader) backends(c *config.Config) {
	listed, isSection := l.file.at("backends").(map[string]any)
	if value := l.file.at("backends"); value != nil && !isSection {
		l.problems.Add("backends", "must be a section (got %s, in %s)", shown(value), l.file.where("backends"))
		return
	}
	if isSection {
		c.Backends = map[string]config.Backend{}
		for _, name := range sortedKeys(listed) {
			if listed[name] == nil {
				listed[name] = map[string]any{}
			}
			if b, ok := l.backend(join("backends", name), listed[name]); ok {
				c.Backends[name] = b
			}
		}
	}
	// A known type that is named as the backend needs no section: it gets the default one. It is added to the backends of the
	// file, or replaces the default entry if the file lists none.
	if _, there := c.Backends[c.Backend]; !there {
		if _, known := l.options.Sections[c.Backend]; known {
			if !isSection {
				c.Backends = map[string]config.Backend{}
			}
			c.Backends[c.Backend] = config.Backend{Options: json.RawMessage("{}")}
		}
	}
	for _, name := range sortedKeys(c.Backends) {
		c.Backends[name] = l.overlay(name, c.Backends[name])
	}
}

func (l *loader) backend(at string, value any) (config.Backend, bool) {
	section, ok := value.(map[string]any)
	if !ok {
		l.problems.Add(at, "must be a section (got %s, in %s)", shown(value), l.file.where(at))
		return config.Backend{}, false
	}
	return l.toBackend(at, section)
}

// toBackend converts a section by way of JSON, the form in which the plugin gets it.
func (l *loader) toBackend(at string, section map[string]any) (config.Backend, bool) {
	for _, own := range []string{"type", "path", "sha256"} {
		if v, given := section[own]; given && reflect.TypeOf(v) != reflect.TypeFor[string]() {
			l.problems = append(l.problems, l.place(executor.FieldError{Field: join(at, own), Message: "must be text (got " + shown(v) + ")"}))
			return config.Backend{}, false
		}
	}
	raw, err := json.Marshal(section)
	if err != nil {
		l.problems.Add(at, "%v", err)
		return config.Backend{}, false
	}
	var b config.Backend
	if err := json.Unmarshal(raw, &b); err != nil {
		l.problems.Add(at, "%v", err)
		return config.Backend{}, false
	}
	return b, true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// overlay applies the variables PYEXEC_BACKENDS_<NAME>_<KEY> to a section. Their lists and maps are in YAML's flow form.
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
				l.problems.Add(at, "%v", err)
				return b
			}
		}
		path, defaultValue := l.option(b.TypeOr(name), strings.ToLower(own))
		key := join(at, strings.Join(path, "."))
		l.overlaid[key] = variable
		put(section, path, l.variableValue(key, defaultValue, text))
	}
	if section == nil {
		return b
	}
	if changed, ok := l.toBackend(at, section); ok {
		return changed
	}
	return b
}

// put sets the value at path in a tree of sections.
func put(tree map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, ok := tree[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[name] = next
		}
		tree = next
	}
	tree[path[len(path)-1]] = value
}

// option returns the key that a variable sets, and the key's default: POOL_MIN_IDLE sets pool.min_idle if the type has it. A name
// that the type does not have is returned as a key, which the plugin refuses.
func (l *loader) option(typ, name string) (path []string, defaultValue any) {
	var defaults map[string]any
	if raw := l.options.Sections[typ]; raw != nil {
		_ = json.Unmarshal(raw, &defaults) // a plugin wrote it, so it is valid
	}
	for rest := name; ; {
		if defaultValue, ok := defaults[rest]; ok {
			return append(path, rest), defaultValue
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

// variableValue reads the text of a variable as the kind of its default: text, a list (A,B or YAML), else YAML.
func (l *loader) variableValue(at string, defaultValue any, written string) any {
	if _, isText := defaultValue.(string); isText {
		return written
	}
	if _, isList := defaultValue.([]any); isList && !strings.HasPrefix(strings.TrimSpace(written), "[") {
		return commaList(written)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(written), &doc); err != nil || len(doc.Content) != 1 {
		return written
	}
	r := nodeReader{}
	value := r.value(at, doc.Content[0], 0)
	for _, p := range r.problems {
		p.Message += " (" + l.origin(at) + ")"
		l.problems = append(l.problems, p)
	}
	return value
}
