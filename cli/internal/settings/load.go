package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// EnvPrefix is the prefix of every variable of the configuration.
const EnvPrefix = "PYEXEC_"

// Options name the sources of the configuration. With the zero Options these are the defaults and the environment.
type Options struct {
	// File is the path of a file; empty means none. A name that ends in .toml means TOML, any other YAML, of which JSON is a part.
	File string
	// Flags holds the flags by key ("http.bind"). Only flags that were given count.
	Flags map[string]*pflag.Flag
	// Sections are the default sections of the known plugin types, as JSON. They tell which keys hold text, so that a
	// variable like PYEXEC_BACKENDS_UV_RUN_AS=1000 is not taken for a number.
	Sections map[string]json.RawMessage
	// Stdio reports whether the configuration is for the command mcp, which does not listen. It matters to UnusedVariables only.
	Stdio bool
}

// Load returns the effective configuration. An *executor.Error of code invalid lists every problem. Load then also returns the
// part of the configuration that it could read.
func Load(o Options) (config.Config, error) {
	c, _, err := load(o)
	return c, err
}

func load(o Options) (config.Config, *loader, error) {
	c := config.Default()
	f := &file{path: o.File}
	l := &loader{
		options: o, keys: keysOf(reflect.ValueOf(&c).Elem()), viper: viper.NewWithOptions(viper.WithDecoderRegistry(f)), file: f, overlaid: map[string]string{},
	}
	if err := l.bind(); err != nil {
		return config.Config{}, l, err
	}
	for _, k := range l.keys {
		l.decode(k)
	}
	l.backends(&c)
	if token := os.Getenv(scriptsToken); token != "" {
		sum := sha256.Sum256([]byte(token))
		c.HTTP.Tokens = append(c.HTTP.Tokens, config.Token{
			Owner: "tsm", SHA256: hex.EncodeToString(sum[:]), Scopes: []string{string(executor.ScopeScripts), string(executor.ScopeRead)},
		})
	}
	l.scriptsToolset(&c)
	if l.origin("engine.max_per_owner") == byDefault {
		c.ShareExecutions()
	}
	if l.origin("engine.max_running_per_owner") == byDefault {
		c.ShareRunning()
	}
	if l.origin("engine.max_spool_bytes_per_owner") == byDefault {
		c.ShareSpool()
	}
	if l.origin("sessions.max_per_owner") == byDefault {
		c.ShareSessions()
	}
	l.unknownVariables()
	l.unknownBackend(c)
	if err := l.validate(c); err != nil {
		return c, l, err
	}
	return c, l, l.problems.Err(executor.Invalid, "", "\n")
}

// scriptsToolset adds the toolset of the allowed scripts to those of the file if the variable of its specification allows some. A
// variable or a flag that names the toolsets wins, and a file without toolsets has no MCP.
func (l *loader) scriptsToolset(c *config.Config) {
	if l.origin("scripts.allowed") != allowsScripts || len(c.Scripts.Allowed) == 0 || len(c.MCP.Toolsets) == 0 {
		return
	}
	named := os.Getenv(EnvPrefix+"MCP_TOOLSETS") != "" || l.options.Flags["mcp.toolsets"] != nil && l.options.Flags["mcp.toolsets"].Changed
	if !named && !slices.Contains(c.MCP.Toolsets, "scripts") {
		c.MCP.Toolsets = append(slices.Clone(c.MCP.Toolsets), "scripts")
	}
}

// bind gives all sources to viper. It returns an error only if the file cannot be read or parsed.
func (l *loader) bind() error {
	for _, k := range l.keys {
		l.viper.SetDefault(k.path, k.value.Interface())
		if err := l.viper.BindEnv(append([]string{k.path}, k.variables()...)...); err != nil {
			return err
		}
		if flag := l.options.Flags[k.path]; flag != nil {
			if err := l.viper.BindPFlag(k.path, flag); err != nil {
				return err
			}
		}
	}
	return l.readFile()
}

// validate adds the problems of c, except those that only follow from a value that could not be read. Each says where its value comes from.
func (l *loader) validate(c config.Config) error {
	err := c.Validate()
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*executor.Error](err)
	if !ok {
		return err
	}
	known := l.problems
	for _, f := range invalid.Fields {
		if !slices.ContainsFunc(known, func(p executor.FieldError) bool { return follows(f.Field, p.Field) }) {
			l.problems = append(l.problems, l.place(f))
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

// unknownBackend names the backends that exist if c.Backend is none of them. config.Validate knows no types.
func (l *loader) unknownBackend(c config.Config) {
	if _, ok := c.Backends[c.Backend]; ok || len(l.options.Sections) == 0 || len(c.Backends) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(c.Backends))
	for typ := range l.options.Sections {
		if !slices.Contains(names, typ) {
			names = append(names, typ)
		}
	}
	slices.Sort(names)
	l.problems.Add("backend", "must name an entry of backends or a type: %s (got %q, in %s)%s", strings.Join(names, ", "), c.Backend, l.origin("backend"), question(nearest(c.Backend, names)))
}

type loader struct {
	options  Options
	keys     []key
	viper    *viper.Viper
	file     *file
	problems executor.Problems
	// overlaid are the variables that set keys of the backends, by these keys.
	overlaid map[string]string
}

// key is one leaf of config.Config, with the place of its value.
type key struct {
	path  string
	value reflect.Value
}

func (k key) variable() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// variables returns the variables that set k. The first one that is not empty wins.
func (k key) variables() []string {
	if alias := aliases[k.path]; alias != "" {
		return []string{k.variable(), alias}
	}
	return []string{k.variable()}
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

// Keys returns every key that has a variable and a flag form, in the order of the file.
func Keys() []string {
	var c config.Config
	var paths []string
	for _, k := range keysOf(reflect.ValueOf(&c).Elem()) {
		paths = append(paths, k.path)
	}
	return paths
}

// IsInvalid reports whether err means that the configuration is wrong, and not that its file cannot be read.
func IsInvalid(err error) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && e.Code == executor.Invalid
}
