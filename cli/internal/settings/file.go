package settings

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/viper"

	"github.com/python-executor/python-executor/core/executor"
)

// file is a configuration file. viper reads the file by Decode, and messages find lines in it.
type file struct {
	path string
	raw  []byte
	// tree has the values as they are in the file, and the texts of fixed sections as text.
	tree     map[string]any
	problems executor.Problems
	// dotted are the problems of names with dots, each with its line.
	dotted executor.Problems
	// lines are those of the values by their lineKey, once a message needed one.
	lines map[string]int
}

// sections is the value of backends. viper takes it for a value, and leaves the case of its keys as it is.
type sections struct{ value any }

// Decoder returns f for every format, as viper.DecoderRegistry.
func (f *file) Decoder(string) (viper.Decoder, error) { return f, nil }

// Decode puts the values of raw into tree, for viper, which writes its keys in lower case.
func (f *file) Decode(raw []byte, tree map[string]any) error {
	f.raw = raw
	read := readYAML
	if f.isTOML() {
		read = readTOML
	}
	values, err := read(raw, &f.problems)
	if err != nil {
		if strings.EqualFold(filepath.Ext(f.path), ".json") {
			err = jsonError(raw, err)
		}
		f.problems.Add(f.path, "%v", err)
		return err
	}
	f.refuseDots("", values)
	f.tree = map[string]any{}
	for name, value := range values {
		if name == "backends" {
			f.tree[name], tree[name] = value, sections{value}
		} else {
			f.tree[name], tree[name] = texts(value), texts(value)
		}
	}
	return nil
}

// refuseDots records and removes the keys of fixed sections whose name has a dot. viper takes such a name for a path.
func (f *file) refuseDots(at string, section map[string]any) {
	for _, name := range sortedKeys(section) {
		path := join(at, name)
		if strings.Contains(name, ".") {
			f.dotted.Add(path, "unknown key (%s): write it as sections, because a name has no dots", f.where(lineKey(at, name)))
			delete(section, name)
		} else if nested, ok := section[name].(map[string]any); ok && path != "backends" {
			f.refuseDots(path, nested)
		}
	}
}

func (f *file) isTOML() bool { return strings.EqualFold(filepath.Ext(f.path), ".toml") }

// at returns the value at path; nil if there is none.
func (f *file) at(path string) any { return below(f.tree, path) }

// below returns the value at path in the section or list tree. A name of a section may have dots, as that of an image does.
func below(tree any, path string) any {
	switch tree := tree.(type) {
	case map[string]any:
		if value, ok := tree[path]; ok {
			return value
		}
		for name, value := range tree {
			if rest, ok := strings.CutPrefix(path, name); ok && (rest[0] == '.' || rest[0] == '[') {
				if found := below(value, strings.TrimPrefix(rest, ".")); found != nil {
					return found
				}
			}
		}
	case []any:
		for i, value := range tree {
			if rest, ok := strings.CutPrefix(path, fmt.Sprintf("[%d]", i)); ok {
				if rest == "" {
					return value
				}
				return below(value, strings.TrimPrefix(rest, "."))
			}
		}
	}
	return nil
}

// line returns the line of a path, or of the section that it is in.
func (f *file) line(path string) int {
	if f.lines == nil {
		f.lines = map[string]int{}
		if f.isTOML() {
			linesOfTOML(f.raw, f.lines)
		} else {
			linesOfYAML(f.raw, f.lines)
		}
	}
	for path != "" {
		if line := f.lines[path]; line > 0 {
			return line
		}
		path = parent(path)
	}
	return 1
}

// parent returns path without its last name or index; empty for the path of a section at the top.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// where returns the place of path for a message.
func (f *file) where(path string) string { return fmt.Sprintf("%s:%d", f.path, f.line(path)) }

// readFile lets viper read the file. It returns an error only if the file cannot be read or parsed.
func (l *loader) readFile() error {
	if l.file.path == "" {
		return nil
	}
	raw, err := os.ReadFile(l.file.path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	l.viper.SetConfigType("yaml") // Decode knows the format
	err = l.viper.ReadConfig(bytes.NewReader(raw))
	for _, p := range l.file.problems {
		if p.Field != l.file.path {
			p.Message += fmt.Sprintf(" (%s)", l.file.where(p.Field))
		}
		l.problems = append(l.problems, p)
	}
	if err != nil {
		return l.problems.Err(executor.Invalid, "", "\n")
	}
	l.problems = append(l.problems, l.file.dotted...)
	l.walk("", l.file.tree)
	return nil
}

// walk records the keys of the file that do not exist, and the sections that are none.
func (l *loader) walk(at string, section map[string]any) {
	for _, name := range sortedKeys(section) {
		path := join(at, name)
		switch {
		case path == "backends" || l.isKey(path):
		case !l.isSection(path):
			l.problems.Add(path, "unknown key (%s)%s", l.file.where(path), l.instead(path))
		default:
			nested, ok := section[name].(map[string]any)
			if !ok && section[name] != nil {
				l.problems.Add(path, "must be a section (got %s, in %s)", shown(section[name]), l.file.where(path))
			}
			l.walk(path, nested)
		}
	}
}

func (l *loader) isKey(path string) bool {
	for _, k := range l.keys {
		if k.path == path {
			return true
		}
	}
	return false
}

func (l *loader) isSection(path string) bool {
	for _, k := range l.keys {
		if strings.HasPrefix(k.path, path+".") {
			return true
		}
	}
	return false
}

// texts returns value with text in place of each string, and list in place of each list.
func texts(value any) any {
	switch value := value.(type) {
	case string:
		return text(value)
	case map[string]any:
		section := map[string]any{}
		for name, v := range value {
			section[name] = texts(v)
		}
		return section
	case []any:
		entries := make(list, len(value))
		for i, v := range value {
			entries[i] = texts(v)
		}
		return entries
	default:
		return value
	}
}

// lineKey returns the path of a value for the lines of a file. A name with a dot has quotes, so that its line is not that of a key in sections.
// Lists and backends have no such keys.
func lineKey(at, name string) string {
	if strings.Contains(name, ".") && !strings.Contains(at, "[") && !strings.HasPrefix(at+".", "backends.") {
		name = strconv.Quote(name)
	}
	return join(at, name)
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
