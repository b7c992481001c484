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

// byDefault is the origin of a value that no source gives.
const byDefault = "default"

// Origin says where the value of a key comes from.
type Origin struct {
	// Key is the path of the key, "http.bind" or "backends.uv.run_as".
	Key string `json:"key"`
	// Value is the value as JSON.
	Value json.RawMessage `json:"value"`
	// Origin is "default", "FILE:LINE", the name of a variable, or a flag with its dashes.
	Origin string `json:"origin"`
}

// Origins returns the origin of each key of c, which Load made from o, in the order of the file. Secrets are masked as by JSON.
func Origins(o Options, c config.Config) ([]Origin, error) {
	_, l, err := load(o)
	if err != nil && !IsInvalid(err) {
		return nil, err
	}
	raw, err := JSON(c)
	if err != nil {
		return nil, err
	}
	var shown config.Config
	if err := json.Unmarshal(raw, &shown); err != nil {
		return nil, err
	}
	var origins []Origin
	add := func(path string, value any) error {
		raw, err := json.Marshal(value)
		origins = append(origins, Origin{path, raw, l.origin(path)})
		return err
	}
	for _, k := range keysOf(reflect.ValueOf(&shown).Elem()) {
		if err := add(k.path, k.value.Interface()); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown.Backends)) {
		var section map[string]any
		raw, err := json.Marshal(shown.Backends[name])
		if err == nil {
			err = json.Unmarshal(raw, &section)
		}
		if err != nil {
			return nil, err
		}
		for _, option := range leaves("backends."+name, section) {
			if err := add(option.path, option.value); err != nil {
				return nil, err
			}
		}
	}
	return origins, nil
}

// leaf is a value of a section that is no section, or an empty one.
type leaf struct {
	path  string
	value any
}

func leaves(at string, section map[string]any) (list []leaf) {
	for _, name := range sortedKeys(section) {
		if nested, ok := section[name].(map[string]any); ok && len(nested) > 0 {
			list = append(list, leaves(join(at, name), nested)...)
		} else {
			list = append(list, leaf{join(at, name), section[name]})
		}
	}
	return list
}

// origin returns where the value at path comes from. path is a key, or a place below one ("http.tokens[0].owner"). It repeats the
// precedence that viper has over our bindings: a flag, a variable, the file, the default.
func (l *loader) origin(path string) string {
	if strings.HasPrefix(path, "backends.") {
		return l.originInBackends(path)
	}
	key, _, _ := strings.Cut(path, "[")
	if flag := l.options.Flags[key]; flag != nil && flag.Changed {
		return "--" + flag.Name
	}
	for _, k := range l.keys {
		if k.path != key {
			continue
		}
		for _, variable := range k.variables() {
			if os.Getenv(variable) != "" {
				return variable
			}
		}
	}
	if l.file.at(key) != nil {
		return l.file.where(path)
	}
	switch { // the variables of a specification that add to a list
	case key == "http.tokens" && os.Getenv(scriptsToken) != "":
		return scriptsToken
	case key == "mcp.toolsets" && l.origin("scripts.allowed") == allowsScripts:
		return allowsScripts
	}
	return byDefault
}

// originInBackends returns where the value at path, of a section of a backend, comes from. A variable sets all that is below its key.
func (l *loader) originInBackends(path string) string {
	for above := path; above != ""; above = parent(above) {
		if variable := l.overlaid[above]; variable != "" {
			return variable
		}
	}
	if l.file.at(path) != nil {
		return l.file.where(path)
	}
	return byDefault
}
