package detect

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

// go-toml parses arrays and inline tables by recursion. A stack overflow ends a Go process, and recover does not help: two
// megabytes of brackets in a comment are enough. These constants therefore bound the brackets of a text. Brackets in strings
// and comments count, because only the parser can tell them apart.
//
// go-toml also needs a hundred bytes and more for each element of an array and each part of a name. maxMarks bounds the characters
// that separate them. A lock of 4 MB has about 150,000.
const (
	maxScriptBrackets  = 10_000
	maxProjectBrackets = 200_000 // a lock names each wheel in an inline table
	maxMarks           = 400_000
)

// largeTOML is held while a text of more than maxScript bytes is parsed, so that many uploads do not need the memory at once.
var largeTOML sync.Mutex

// decodeTOML reads text, which is not trusted, into v. An error names the field that has the wrong kind. brackets bounds the opening brackets in text.
func decodeTOML(text []byte, brackets int, v any) (err error) {
	if n := count(text, "[", "{"); n > brackets {
		return fmt.Errorf("must not have more than %d opening brackets (got %d)", brackets, n)
	}
	if n := count(text, ",", ".", "="); n > maxMarks {
		return fmt.Errorf("must not have more than %d commas, dots and equals signs (got %d)", maxMarks, n)
	}
	if len(text) > maxScript {
		largeTOML.Lock()
		defer largeTOML.Unlock()
	}
	if err = unmarshal(text, v); err == nil {
		return nil
	}
	// The error of go-toml names types of Go.
	var table map[string]any
	if err := unmarshal(text, &table); err != nil {
		return fmt.Errorf("must be valid TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	if wrong := mismatch("", table, reflect.TypeOf(v).Elem()); wrong != "" {
		return errors.New(wrong)
	}
	return errors.New("must have values of the right kinds")
}

func unmarshal(text []byte, v any) (err error) {
	defer func() {
		// go-toml 2.2.4 panics when it assigns a date to a string (unmarshaler.go, unmarshalLocalDate).
		if p := recover(); p != nil {
			err = fmt.Errorf("a value has the wrong type: %v", p)
		}
	}()
	return toml.Unmarshal(text, v)
}

// mismatch returns what is wrong with the first value that has not the kind of want, or "". where is the name of value.
func mismatch(where string, value any, want reflect.Type) string {
	right := true
	switch want.Kind() {
	case reflect.Struct:
		var table map[string]any
		if table, right = value.(map[string]any); right {
			for _, field := range reflect.VisibleFields(want) {
				for key, member := range table {
					if !strings.EqualFold(key, field.Tag.Get("toml")) { // go-toml ignores the case, too
						continue
					}
					if wrong := mismatch(strings.TrimPrefix(where+"."+key, "."), member, field.Type); wrong != "" {
						return wrong
					}
				}
			}
		}
	case reflect.Map:
		var table map[string]any
		if table, right = value.(map[string]any); right {
			for _, key := range slices.Sorted(maps.Keys(table)) {
				if wrong := mismatch(where+"."+key, table[key], want.Elem()); wrong != "" {
					return wrong
				}
			}
		}
	case reflect.Slice:
		var list []any
		if list, right = value.([]any); right {
			for i, element := range list {
				if wrong := mismatch(fmt.Sprintf("%s[%d]", where, i), element, want.Elem()); wrong != "" {
					return wrong
				}
			}
		}
	case reflect.String:
		_, right = value.(string)
	case reflect.Int:
		_, right = value.(int64)
	}
	if right {
		return ""
	}
	return where + ": must be " + kindOf(where, want)
}

// kindOf returns the name of a kind, with an example where users write the field.
func kindOf(where string, want reflect.Type) string {
	switch want.Kind() {
	case reflect.String:
		if strings.HasSuffix(where, "requires-python") {
			return `a string, such as ">=3.11"`
		}
		return "a string"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		if want.Elem().Kind() != reflect.String {
			return "a list of tables"
		}
		if strings.HasSuffix(where, "dependencies") {
			return `a list of strings, such as ["six"]`
		}
		return "a list of strings"
	}
	return "a table"
}

func count(text []byte, marks ...string) int {
	n := 0
	for _, mark := range marks {
		n += bytes.Count(text, []byte(mark))
	}
	return n
}
