package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// EnvPrefix is the prefix of every variable of the configuration.
const EnvPrefix = "PYEXEC_"

// Options name the sources of the configuration. With the zero Options these are the defaults and the environment.
type Options struct {
	// File is a YAML or JSON file; empty means none.
	File string
	// Flags holds the flags by key ("http.bind"). Only flags that were given count.
	Flags map[string]*pflag.Flag
	// Sections are the default sections of the known plugin types, as JSON. They tell which keys hold text, so that a
	// variable like PYEXEC_BACKENDS_UV_RUN_AS=1000 is not taken for a number.
	Sections map[string]json.RawMessage
}

// Load returns the effective configuration. An *executor.Error of code invalid lists every problem. Load then also returns the
// part of the configuration that it could read.
func Load(o Options) (config.Config, error) {
	c := config.Default()
	l := loader{options: o, keys: keysOf(reflect.ValueOf(&c).Elem()), file: map[string]*yaml.Node{}}
	if err := l.readFile(); err != nil {
		return config.Config{}, err
	}
	l.layers()
	l.backends(&c)
	if token := os.Getenv(scriptsToken); token != "" {
		sum := sha256.Sum256([]byte(token))
		c.HTTP.Tokens = append(c.HTTP.Tokens, config.Token{
			Owner: "tsm", SHA256: hex.EncodeToString(sum[:]), Scopes: []string{string(executor.ScopeScripts), string(executor.ScopeRead)},
		})
	}
	if !l.given("engine.max_per_owner") {
		c.ShareExecutions()
	}
	if !l.given("sessions.max_per_owner") {
		c.ShareSessions()
	}
	l.unknownVariables()
	if err := l.validate(c); err != nil {
		return c, err
	}
	return c, l.problems.Err(executor.Invalid, "", "\n")
}

// validate adds the problems of c, except those that only follow from a value that could not be read.
func (l *loader) validate(c config.Config) error {
	err := c.Validate()
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*executor.Error](err)
	if !ok || len(l.problems) == 0 {
		return err
	}
	known := l.problems
	for _, f := range invalid.Fields {
		if !slices.ContainsFunc(known, func(p executor.FieldError) bool { return follows(f.Field, p.Field) }) {
			l.problems = append(l.problems, f)
		}
	}
	return nil
}

// follows reports whether a problem of field may follow from that of cause. A value that could not be read leaves its default, or
// nothing, in its place.
func follows(field, cause string) bool {
	switch {
	case field == cause, strings.HasPrefix(field, cause+"."), strings.HasPrefix(field, cause+"["), strings.HasPrefix(cause, field+"."), strings.HasPrefix(cause, field+"["):
		return true
	case field == "backend":
		return cause == "backends" || strings.HasPrefix(cause, "backends.")
	case field == "http.bind":
		return strings.HasPrefix(cause, "http.")
	default:
		return false
	}
}

type loader struct {
	options  Options
	keys     []key
	file     map[string]*yaml.Node
	sections *yaml.Node
	nodes    int
	problems executor.Problems
}

// key is one leaf of config.Config, with the place of its value.
type key struct {
	path  string
	value reflect.Value
}

func (k key) variable() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// keysOf returns the leaves of a settable struct, without maps.
func keysOf(v reflect.Value) []key {
	var keys []key
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		field := v.Field(i)
		switch field.Kind() {
		case reflect.Struct:
			for _, k := range keysOf(field) {
				keys = append(keys, key{name + "." + k.path, k.value})
			}
		case reflect.Map:
		default:
			keys = append(keys, key{name, field})
		}
	}
	return keys
}

// given reports whether a file, a variable or a flag sets the key path.
func (l *loader) given(path string) bool {
	flag := l.options.Flags[path]
	return l.file[path] != nil || os.Getenv(key{path: path}.variable()) != "" || flag != nil && flag.Changed
}

// Keys returns every key that has a variable and a flag form, in the order of the file.
func Keys() []string {
	var c config.Config
	var paths []string
	for _, k := range keysOf(reflect.ValueOf(&c).Elem()) {
		paths = append(paths, k.path)
	}
	return paths
}

// layers decodes every key from the layer that wins: a flag, else a variable, else the file. The defaults are set before.
func (l *loader) layers() {
	for _, k := range l.keys {
		flag, alias := l.options.Flags[k.path], aliases[k.path]
		if flag != nil && flag.Changed {
			if list, ok := flag.Value.(pflag.SliceValue); ok {
				k.value.Set(reflect.ValueOf(list.GetSlice()))
			} else {
				l.decodeText(k, flag.Value.String(), "--"+flag.Name)
			}
		} else if text := os.Getenv(k.variable()); text != "" {
			l.decodeText(k, text, k.variable())
		} else if text := os.Getenv(alias); text != "" {
			l.decodeText(k, aliasText(k.value, alias, text), alias)
		} else if node := l.file[k.path]; node != nil {
			l.decodeNode(k, node, fmt.Sprintf("%s:%d", l.options.File, node.Line))
		}
	}
}

// decodeText puts the text of a variable or a flag into k. where names it.
func (l *loader) decodeText(k key, text, where string) {
	if k.value.Kind() == reflect.String {
		k.value.SetString(text)
		return
	}
	if k.value.Type() == reflect.TypeFor[[]string]() && !strings.HasPrefix(strings.TrimSpace(text), "[") {
		k.value.Set(reflect.ValueOf(commaList(text)))
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		l.problems.Add(k.path, "must be %s (got %q, in %s)", describe(k.value.Type()), text, where)
		return
	}
	l.decodeNode(k, doc.Content[0], where)
}

// commaList splits a list in a variable: A,B.
func commaList(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func (l *loader) decodeNode(k key, node *yaml.Node, where string) {
	if k.value.Type() == reflect.TypeFor[[]config.Token]() {
		k.value.Set(reflect.ValueOf(l.tokens(k.path, node, where)))
		return
	}
	if k.value.Type() == reflect.TypeFor[[]string]() {
		k.value.Set(reflect.ValueOf(l.texts(k.path, node, where)))
		return
	}
	if !decodeScalar(k.value, node) {
		l.problems.Add(k.path, "must be %s (got %s, in %s)", describe(k.value.Type()), shown(node), where)
	}
}

// decodeScalar is strict: a text is not a number, a fraction is not an integer, a number is not a text.
func decodeScalar(to reflect.Value, node *yaml.Node) bool {
	if node.Kind != yaml.ScalarNode {
		return false
	}
	switch to.Kind() {
	case reflect.String:
		if node.ShortTag() != "!!str" {
			return false
		}
		to.SetString(node.Value)
		return true
	case reflect.Float64:
		if tag := node.ShortTag(); tag != "!!float" && tag != "!!int" {
			return false
		}
	case reflect.Bool:
		if node.ShortTag() != "!!bool" {
			return false
		}
	default:
		if node.ShortTag() != "!!int" {
			return false
		}
	}
	return node.Decode(to.Addr().Interface()) == nil
}

func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	default:
		return "a whole number"
	}
}

func shown(node *yaml.Node) string {
	switch node.Kind {
	case yaml.ScalarNode:
		return fmt.Sprintf("%q", node.Value)
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a section"
	}
}

// IsInvalid reports whether err means that the configuration is wrong, and not that its file cannot be read.
func IsInvalid(err error) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && e.Code == executor.Invalid
}
