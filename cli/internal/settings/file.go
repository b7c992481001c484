package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// readFile fills file and sections. It returns an error only if the file cannot be read or parsed.
func (l *loader) readFile() error {
	if l.options.File == "" {
		return nil
	}
	raw, err := os.ReadFile(l.options.File)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		l.problems.Add(l.options.File, "%v", err)
		return l.problems.Err(executor.Invalid, "", "\n")
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		l.problems.Add(l.options.File, "must hold one document")
		return l.problems.Err(executor.Invalid, "", "\n")
	}
	l.walk("", resolve(doc.Content[0]))
	return nil
}

// walk collects the leaves of the fixed sections.
func (l *loader) walk(at string, node *yaml.Node) {
	if isNull(node) {
		return
	}
	if node.Kind != yaml.MappingNode {
		l.problems.Add(orRoot(at), "must be a section (got %s, in %s:%d)", shown(node), l.options.File, node.Line)
		return
	}
	for name, value := range l.pairs(at, node) {
		path := join(at, name.Value)
		switch {
		case path == "backends":
			l.sections = value
		case slices.ContainsFunc(l.keys, func(k key) bool { return k.path == path }):
			if !isNull(value) {
				l.file[path] = value
			}
		case slices.ContainsFunc(l.keys, func(k key) bool { return strings.HasPrefix(k.path, path+".") }):
			l.walk(path, value)
		default:
			l.unknown(path, name)
		}
	}
}

func (l *loader) unknown(path string, name *yaml.Node) {
	l.problems.Add(path, "unknown key (%s:%d)", l.options.File, name.Line)
}

// pairs returns the entries of a mapping. A duplicate key is a problem, and only its first value counts.
func (l *loader) pairs(at string, node *yaml.Node) func(func(*yaml.Node, *yaml.Node) bool) {
	return func(yield func(*yaml.Node, *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			name := node.Content[i]
			if seen[name.Value] {
				l.problems.Add(join(at, name.Value), "duplicate key (%s:%d)", l.options.File, name.Line)
				continue
			}
			seen[name.Value] = true
			if !yield(name, resolve(node.Content[i+1])) {
				return
			}
		}
	}
}

func (l *loader) tokens(at string, node *yaml.Node, where string) []config.Token {
	if node.Kind != yaml.SequenceNode {
		l.problems.Add(at, "must be a list of {owner, sha256, scopes} (got %s, in %s)", shown(node), where)
		return nil
	}
	tokens := make([]config.Token, len(node.Content))
	for i, entry := range node.Content {
		here := fmt.Sprintf("%s[%d]", at, i)
		if entry = resolve(entry); entry.Kind != yaml.MappingNode {
			l.problems.Add(here, "must be a section (got %s, in %s)", shown(entry), where)
			continue
		}
		for name, value := range l.pairs(here, entry) {
			l.tokenKey(&tokens[i], here, name, value, where)
		}
	}
	return tokens
}

func (l *loader) tokenKey(t *config.Token, at string, name, value *yaml.Node, where string) {
	path := join(at, name.Value)
	text := func(to *string) {
		// A hash of digits only is a number to YAML; it is text here.
		if value.Kind != yaml.ScalarNode || isNull(value) {
			l.problems.Add(path, "must be text (got %s, in %s)", shown(value), where)
			return
		}
		*to = value.Value
	}
	switch name.Value {
	case "owner":
		text(&t.Owner)
	case "sha256":
		text(&t.SHA256)
	case "scopes":
		if !isNull(value) {
			t.Scopes = l.texts(path, value, where)
		}
	default:
		l.unknown(path, name)
	}
}

// texts reads a list of texts.
func (l *loader) texts(at string, node *yaml.Node, where string) []string {
	if node.Kind != yaml.SequenceNode {
		l.problems.Add(at, "must be a list (got %s, in %s)", shown(node), where)
		return nil
	}
	list := make([]string, 0, len(node.Content))
	for i, entry := range node.Content {
		if entry = resolve(entry); entry.Kind != yaml.ScalarNode {
			l.problems.Add(fmt.Sprintf("%s[%d]", at, i), "must be text (got %s, in %s)", shown(entry), where)
			continue
		}
		list = append(list, entry.Value)
	}
	return list
}

// backends replaces the default entries by those of the file, and applies the variables to them.
func (l *loader) backends(c *config.Config) {
	if l.sections != nil && !isNull(l.sections) {
		if l.sections.Kind != yaml.MappingNode {
			l.problems.Add("backends", "must be a section (got %s, in %s:%d)", shown(l.sections), l.options.File, l.sections.Line)
			return
		}
		c.Backends = map[string]config.Backend{}
		for name, value := range l.pairs("backends", l.sections) {
			if b, ok := l.backend(join("backends", name.Value), value); ok {
				c.Backends[name.Value] = b
			}
		}
	}
	// A known type that is named as the backend needs no section: it gets the default one. It is added to the backends of the
	// file, or replaces the default entry if the file lists none.
	if _, listed := c.Backends[c.Backend]; !listed {
		if _, known := l.options.Sections[c.Backend]; known {
			if l.sections == nil || isNull(l.sections) {
				c.Backends = map[string]config.Backend{}
			}
			c.Backends[c.Backend] = config.Backend{Options: json.RawMessage("{}")}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		c.Backends[name] = l.overlay(name, c.Backends[name])
	}
}

func (l *loader) backend(at string, node *yaml.Node) (config.Backend, bool) {
	if isNull(node) {
		return config.Backend{Options: json.RawMessage("{}")}, true
	}
	if node.Kind != yaml.MappingNode {
		l.problems.Add(at, "must be a section (got %s, in %s:%d)", shown(node), l.options.File, node.Line)
		return config.Backend{}, false
	}
	section, ok := l.value(at, node, 0).(map[string]any)
	if !ok {
		return config.Backend{}, false
	}
	return l.toBackend(at, section)
}

// toBackend converts a section by way of JSON, the form in which the plugin gets it.
func (l *loader) toBackend(at string, section map[string]any) (config.Backend, bool) {
	for _, own := range []string{"type", "path", "sha256"} {
		if v, given := section[own]; given && reflect.TypeOf(v) != reflect.TypeFor[string]() {
			l.problems.Add(join(at, own), "must be text (got %v)", v)
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

// maxNodes bounds the size of a file whose aliases are expanded.
const maxNodes = 100_000

// value converts a node to a value for encoding/json. Keys stay as they are written: 3.12 is "3.12".
func (l *loader) value(at string, node *yaml.Node, depth int) any {
	if l.nodes++; depth > 100 || l.nodes > maxNodes {
		if l.nodes <= maxNodes {
			l.problems.Add(at, "is nested too deeply")
		} else if l.nodes == maxNodes+1 {
			l.problems.Add(at, "is too large")
		}
		return nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for name, value := range l.pairs(at, node) {
			m[name.Value] = l.value(join(at, name.Value), value, depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, entry := range node.Content {
			list[i] = l.value(fmt.Sprintf("%s[%d]", at, i), resolve(entry), depth+1)
		}
		return list
	default:
		var v any
		if err := node.Decode(&v); err != nil {
			l.problems.Add(at, "%v", err)
		}
		if node.ShortTag() == "!!timestamp" {
			return node.Value
		}
		return v
	}
}

// resolve follows aliases. The depth limit of value ends a cycle.
func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func orRoot(at string) string {
	if at == "" {
		return "the configuration"
	}
	return at
}
