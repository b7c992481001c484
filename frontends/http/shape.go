package httpfrontend

import (
	"reflect"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// noNUL is the pattern of strings that become arguments, names or variables.
const noNUL = `^[^\x00]*$`

// envName is the pattern of names of environment variables.
var envName = regexp.MustCompile(`^[^=\x00]+$`)

// shape says how the fields of a struct are read, by their JSON names.
type shape map[string]*rule

// rule says how a field is read.
type rule struct {
	// index is that of the field in its struct.
	index    []int
	required bool
	// schema has the bounds of the value.
	schema  *huma.Schema
	pattern *regexp.Regexp
	// most is the server's own maximum, which is below that of schema; 0: there is none. LimitRange.bind sets it.
	most float64
	// fields are those of a struct.
	fields shape
}

// shapeOf returns the shape of the struct T.
func shapeOf[T any]() shape { return newShape(reflect.TypeFor[T](), schemaOf[T]("")) }

func newShape(t reflect.Type, s *huma.Schema) shape {
	fields := shape{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" { // embedded
			continue
		}
		r := newRule(s.Properties[name])
		r.index, r.required = f.Index, options == "" && f.Tag.Get("required") != "false"
		if of := structOf(f.Type); of != nil {
			r.fields = newShape(of, r.schema)
		}
		fields[name] = r
	}
	return fields
}

// structOf returns the struct that a field of type t holds, as it is, in a list or by a pointer. It returns nil for other fields, and for a
// type with a form of its own.
func structOf(t reflect.Type) reflect.Type {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[reader]()) {
		return nil
	}
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// newRule returns the rule of a value with the schema s, or of the values in a list.
func newRule(s *huma.Schema) *rule {
	if s.Items != nil {
		s = s.Items
	}
	r := &rule{schema: s}
	if s.Pattern != "" && s.Pattern != noNUL {
		r.pattern = regexp.MustCompile(s.Pattern)
	}
	return r
}
