package httpfrontend

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
)

// queryParams describes the query parameters that the fields of the struct T are tagged with.
func queryParams[T any]() []*huma.Param {
	fields := reflect.VisibleFields(reflect.TypeFor[T]())
	params := make([]*huma.Param, len(fields))
	for i, f := range fields {
		s := querySchema(f)
		params[i] = query(f.Tag.Get("query"), s.Description, s)
		s.Description, s.PatternDescription = "", ""
	}
	return params
}

func querySchema(f reflect.StructField) *huma.Schema {
	return huma.SchemaFromField(inline{huma.NewMapRegistry("", huma.DefaultSchemaNamer)}, f, "")
}

// readQuery reads the query of r into the struct that into points to. A parameter that is not given, or a text or boolean that is
// empty, has its default. A list may be given in several parameters or with commas. Of others the first parameter counts. The error
// names every parameter with a bad value; check, if there is one, adds to it.
func readQuery(r *http.Request, into any, check ...func(*decoder)) error {
	values, err := queryOf(r)
	if err != nil {
		return err
	}
	d := &decoder{}
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, rule, kind := f.Tag.Get("query"), newRule(querySchema(f)), f.Type.Kind()
		rule.pattern = nil // the Engine checks the form of an id
		given := values[name]
		if len(given) == 0 || given[0] == "" && (kind == reflect.String || kind == reflect.Bool) {
			given = nil
			if byDefault := f.Tag.Get("default"); byDefault != "" {
				given = []string{byDefault}
			}
		}
		for _, text := range given {
			d.parameter(name, text, rule, v.Field(i))
			if kind != reflect.Slice {
				break
			}
		}
	}
	for _, add := range check {
		add(d)
	}
	if len(d.errs) > 0 {
		return in("query", fieldsError(d.errs))
	}
	return nil
}

// parameter reads the text of a parameter.
func (d *decoder) parameter(name, text string, r *rule, into reflect.Value) {
	switch into.Kind() {
	case reflect.String:
		d.check(name, text, r)
		into.SetString(text)
	case reflect.Slice:
		for item := range strings.SplitSeq(text, ",") {
			d.check(name, item, r)
			into.Set(reflect.Append(into, reflect.ValueOf(item)))
		}
	case reflect.Bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			d.bad(name, "must be true or false (got %.40q)", text)
		}
		into.SetBool(v)
	case reflect.Int:
		v, err := strconv.Atoi(text)
		if err != nil {
			d.bad(name, "must be a whole number (got %.40q)", text)
			return
		}
		d.bounds(name, float64(v), text, r)
		into.SetInt(int64(v))
	default:
		panic("no reader for " + into.Type().String())
	}
}

// checkQuery returns an error that names every parameter of r's query that is not known.
func checkQuery(r *http.Request, known shape) error {
	values, err := queryOf(r)
	if err != nil {
		return in("query", err)
	}
	d := &decoder{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if known[name] == nil && len(d.errs) < maxFieldErrors { // the hint for a name that is not reported would be wasted
			hint := ": there is none here"
			if len(known) > 0 {
				hint = known.hint("", known.near(name))
			}
			d.bad(clip(name), "unknown parameter%s", hint)
		}
	}
	if len(d.errs) > 0 {
		return in("query", fieldsError(d.errs))
	}
	return nil
}

// queryOf returns the query of r. A query that cannot be read is refused, so that no parameter is ignored.
func queryOf(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, executor.Errorf(executor.Invalid, "the query cannot be read: %w", err)
	}
	return q, nil
}
