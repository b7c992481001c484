package settings

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"
)

// text is a text of a file. The text of a variable or flag is a string: it may also stand for a number, a truth value or a list.
type text string

// list is a list of a file. viper would write the keys below a []any in lower case.
type list []any

// decode puts the value that viper has chosen into k. Each mismatch is a problem.
func (l *loader) decode(k key) {
	err := l.viper.UnmarshalKey(k.path, k.value.Addr().Interface(), func(c *mapstructure.DecoderConfig) {
		c.RootName, c.TagName = k.path, "json"
		c.WeaklyTypedInput, c.ZeroFields = false, true
		c.MatchName = func(name, field string) bool { return name == field }
		c.DecodeHook = func(from, to reflect.Value) (any, error) { return l.convert(k, from.Interface(), to.Type()) }
	})
	l.mismatches(k.path, err)
}

// unknownFields records the keys of entries that their struct does not have. mapstructure reports them only if nothing else is wrong.
func (l *loader) unknownFields(k key, entries list, entry reflect.Type) {
	fields := keysOf(reflect.New(entry).Elem())
	for i, entry := range entries {
		section, _ := entry.(map[string]any)
		for _, name := range sortedKeys(section) {
			if !slices.ContainsFunc(fields, func(f key) bool { return f.path == name }) {
				path := fmt.Sprintf("%s[%d].%s", k.path, i, name)
				l.problems.Add(path, "unknown key (%s)", l.origin(path))
			}
		}
	}
}

// mismatches records the errors of mapstructure, which form a tree. at is the place of err.
func (l *loader) mismatches(at string, err error) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked
	case nil:
	case *mismatch:
		l.problems.Add(at, "must be %s%s (got %s, in %s)", e.want, unit(at, e.want), shown(e.got), l.origin(at))
	case *mapstructure.DecodeError:
		l.mismatches(e.Name(), e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			l.mismatches(at, one)
		}
	case interface{ Unwrap() error }:
		l.mismatches(at, e.Unwrap())
	default:
		l.problems.Add(at, "%v (in %s)", err, l.origin(at))
	}
}

// mismatch says what a value must be.
type mismatch struct {
	want string
	got  any
}

func (m *mismatch) Error() string { return "must be " + m.want }

// convert is the one decode hook. It reads the text of a variable or flag, and refuses what does not fit exactly: mapstructure would
// take a fraction for a whole number.
func (l *loader) convert(k key, value any, to reflect.Type) (any, error) {
	given := value
	if written, ok := value.(string); ok && to.Kind() != reflect.String {
		read, err := readText(aliasText(l.origin(k.path), written, to), to)
		if err != nil {
			return nil, &mismatch{describe(to), given}
		}
		value = read
	}
	from := reflect.ValueOf(value)
	if from.IsValid() && from.Type() == to {
		return value, nil // a default, or a list of a flag
	}
	var ok bool
	switch to.Kind() {
	case reflect.String, reflect.Bool:
		ok = from.Kind() == to.Kind()
	case reflect.Float64:
		ok = from.CanInt() || from.CanUint() || from.CanFloat()
	case reflect.Slice:
		ok = from.Kind() == reflect.Slice
		if entries, isList := value.(list); isList && to.Elem().Kind() == reflect.Struct {
			l.unknownFields(k, entries, to.Elem())
		}
	case reflect.Struct:
		ok = from.Kind() == reflect.Map
	default:
		ok = from.CanInt() || from.CanUint() && from.Uint() <= math.MaxInt64
	}
	if !ok {
		return nil, &mismatch{describe(to), given}
	}
	return value, nil
}

// readText reads the text of a variable or flag as a value for to: a list is A,B or in brackets, and all else is YAML.
func readText(written string, to reflect.Type) (any, error) {
	if to == reflect.TypeFor[[]string]() && !strings.HasPrefix(strings.TrimSpace(written), "[") {
		return commaList(written), nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(written), &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) != 1 {
		return nil, errors.New("nothing")
	}
	r := nodeReader{}
	value := r.value("", doc.Content[0], 0)
	return texts(value), r.problems.Err("", "", "\n")
}

// commaList splits a list in a variable: A,B.
func commaList(written string) []string {
	list := strings.Split(written, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
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
		if t.Elem().Kind() == reflect.Struct {
			return "a list of {owner, sha256, scopes}"
		}
		return "a list"
	case reflect.Struct:
		return "a section"
	default:
		return "a whole number"
	}
}

// unit returns the unit of a number as the name of its key says it, for an error.
func unit(key, want string) string {
	if !strings.HasSuffix(want, "number") {
		return ""
	}
	for suffix, unit := range map[string]string{"_mb": " of MB", "_bytes": " of bytes", "_seconds": " of seconds"} {
		if strings.HasSuffix(key, suffix) {
			return unit
		}
	}
	return ""
}

// shown returns a value as an error names it: only a text has quotes, and a fraction has a point.
func shown(value any) string {
	switch kind := reflect.ValueOf(value).Kind(); kind {
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a section"
	case reflect.String:
		return fmt.Sprintf("%q", value)
	default:
		text := fmt.Sprint(value)
		if kind == reflect.Float64 && isDigits(strings.TrimPrefix(text, "-")) {
			text += ".0"
		}
		return text
	}
}
