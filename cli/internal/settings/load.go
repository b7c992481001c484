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
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// EnvPrefix begins every variable of ours.
const EnvPrefix = "PYEXEC_"

// Options say where the layers come from. The zero Options are the defaults and the environment.
type Options struct {
	// File is a YAML (or JSON) file; empty: none.
	File string
	// Flags by key ("http.bind"); a flag counts when it was given.
	Flags map[string]*pflag.Flag
	// Sections are the default sections of the known plugin types, as JSON. They tell which keys hold text, so that a
	// variable like PYEXEC_BACKENDS_UV_RUN_AS=1000 is not taken for a number.
	Sections map[string]json.RawMessage
}

// Load returns the effective configuration. An *executor.Error of code invalid lists every problem; what was understood is
// returned beside it, for more to be said of it.
func Load(o Options) (config.Config, error) {
	c := config.Default()
	l := loader{options: o, keys: keysOf(reflect.ValueOf(&c).Elem()), file: map[string]*yaml.Node{}}
	if err := l.readFile(); err != nil {
		return config.Config{}, err
	}
	if err := l.layers(); err != nil {
		return config.Config{}, err
	}
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
	l.strayVariables()
	if err := l.validate(c); err != nil {
		return c, err
	}
	if len(l.problems) > 0 {
		return c, l.err()
	}
	return c, nil
}

// validate adds what is wrong with c, but for what only follows from a value that was not understood.
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

// follows reports whether a problem of field may be only that of cause: where a value was not understood its default, or
// nothing, stands.
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
	problems []executor.FieldError
}

// key is one leaf of config.Config that viper handles, and where its value goes.
type key struct {
	path  string
	value reflect.Value
}

func (k key) variable() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// keysOf walks a settable struct; maps are left out.
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

func (l *loader) add(field, format string, args ...any) {
	l.problems = append(l.problems, executor.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (l *loader) err() error {
	lines := make([]string, len(l.problems))
	for i, p := range l.problems {
		lines[i] = p.Field + ": " + p.Message
	}
	return &executor.Error{Code: executor.Invalid, Message: strings.Join(lines, "\n"), Fields: l.problems}
}

// layers lets viper choose among default, file, variable and flag, and decodes the winner.
func (l *loader) layers() error {
	v := viper.New()
	tree := map[string]any{}
	for _, k := range l.keys {
		v.SetDefault(k.path, k.value.Interface())
		names := []string{k.path, k.variable()}
		if alias := aliases[k.path]; alias != "" {
			names = append(names, alias)
		}
		if err := v.BindEnv(names...); err != nil {
			return err
		}
		if flag := l.options.Flags[k.path]; flag != nil {
			if err := v.BindPFlag(k.path, flag); err != nil {
				return err
			}
		}
		if node := l.file[k.path]; node != nil {
			put(tree, strings.Split(k.path, "."), node)
		}
	}
	if err := v.MergeConfigMap(tree); err != nil {
		return err
	}
	for _, k := range l.keys {
		l.decode(k, v.Get(k.path))
	}
	return nil
}

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

// decode puts value, a node of the file or the text of a variable or flag, into k. A default is there already.
func (l *loader) decode(k key, value any) {
	var node *yaml.Node
	var where string
	switch v := value.(type) {
	case *yaml.Node:
		node, where = v, fmt.Sprintf("%s:%d", l.options.File, v.Line)
	case string:
		if flag := l.options.Flags[k.path]; flag != nil && flag.Changed {
			where = "--" + flag.Name
		} else if os.Getenv(k.variable()) != "" {
			where = k.variable()
		} else if alias := aliases[k.path]; alias != "" && os.Getenv(alias) != "" {
			where, v = alias, aliasText(k.value, alias, v)
		} else {
			return // a default
		}
		if k.value.Kind() == reflect.String {
			k.value.SetString(v)
			return
		}
		if k.value.Type() == reflect.TypeFor[[]string]() && !strings.HasPrefix(strings.TrimSpace(v), "[") {
			k.value.Set(reflect.ValueOf(commaList(v)))
			return
		}
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(v), &doc); err != nil || len(doc.Content) != 1 {
			l.add(k.path, "must be %s (got %q, in %s)", describe(k.value.Type()), v, where)
			return
		}
		node = doc.Content[0]
	case bool:
		if k.value.Kind() == reflect.Bool {
			k.value.SetBool(v)
		}
		return
	case []string: // a flag that may be given more than once
		if flag := l.options.Flags[k.path]; flag != nil && flag.Changed && k.value.Type() == reflect.TypeFor[[]string]() {
			k.value.Set(reflect.ValueOf(v))
		}
		return
	default:
		return
	}
	l.decodeNode(k, node, where)
}

// commaList is a list as a variable may have it: A,B.
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
		l.add(k.path, "must be %s (got %s, in %s)", describe(k.value.Type()), shown(node), where)
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

// IsInvalid reports whether err says that the configuration is wrong, rather than that it could not be read.
func IsInvalid(err error) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && e.Code == executor.Invalid
}
