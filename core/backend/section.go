package backend

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// ParseSection returns a backend's configuration: the defaults, changed by the section of the backend called name. An unknown key is an
// error. validate returns the problems of a configuration whose keys and types are right. Codes: invalid, those of validate.
func ParseSection[C any](name string, section json.RawMessage, defaults C, validate func(c C, name string) error) (C, error) {
	p := Section(name)
	p.Read(section, &defaults)
	if err := p.Err(); err != nil {
		var none C
		return none, err
	}
	return defaults, validate(defaults, name)
}

// Read fills config, a pointer to a struct with json tags, from a section in JSON. What the section leaves out keeps its value.
// Read records each unknown key and each value of another type by its own path; a nested struct is a nested section.
func (p *Problems) Read(section json.RawMessage, config any) {
	p.read("", section, reflect.ValueOf(config).Elem())
}

func (p *Problems) read(under string, section json.RawMessage, config reflect.Value) {
	if len(bytes.TrimSpace(section)) == 0 || string(section) == "null" {
		return
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(section, &given) != nil {
		p.fields.Add(strings.TrimSuffix(p.Prefix+under, "."), "must be a mapping of settings")
		p.invalid = true
		return
	}
	var known []string
	for i := range config.NumField() {
		key := config.Type().Field(i).Tag.Get("json")
		known = append(known, key)
		value, ok := given[key]
		if !ok {
			continue
		}
		delete(given, key)
		target := config.Field(i)
		if target.Kind() == reflect.Struct {
			p.read(under+key+".", value, target)
		} else if json.Unmarshal(value, target.Addr().Interface()) != nil {
			p.Add(under+key, "must be %s (got %s)", wanted(kindOf(target.Type())), requirements.WithoutCredentials(string(value)))
		}
	}
	slices.Sort(known)
	for key := range given {
		if near := executor.Nearest(key, known); near != "" {
			p.Add(under+key, "unknown key: did you mean %s?", p.Prefix+under+near)
		} else {
			p.Add(under+key, "unknown key; known are %s", strings.Join(known, ", "))
		}
	}
}

// Filled returns a section with the defaults of what it leaves out; config points to the defaults. A section that cannot be read
// is returned as it is.
func Filled(section json.RawMessage, config any) json.RawMessage {
	if len(section) > 0 && json.Unmarshal(section, config) != nil {
		return section
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return section
	}
	return raw
}

// kindOf returns the kind of a setting's value. A setting whose default depends on something else is a pointer.
func kindOf(t reflect.Type) reflect.Kind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind()
}

// wanted names the kind of value that a setting takes.
func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of texts"
	case reflect.Map:
		return "a mapping of texts"
	default:
		return "a text"
	}
}
