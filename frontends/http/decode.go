package httpfrontend

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/strictjson"
)

// A body is read by its struct and the schema that huma reflects from it. Unlike encoding/json the reader takes a name in its own
// case only and once only, names every bad field in one error, and takes 1024.0 as a whole number. A null is an absent value.

// decode reads an object into the struct that into points to. It returns the names that have a value. Its error names every bad
// field. isBody reports whether the object is the whole body, not a multipart part.
func (s shape) decode(raw []byte, into any, isBody bool) (given map[string]bool, err error) {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil, notJSON(raw, isBody)
	}
	d := &decoder{whole: "metadata"}
	if isBody {
		d.whole = "body"
	}
	given = d.fields("", raw, s, reflect.ValueOf(into).Elem())
	if len(d.errs) > 0 {
		return nil, fieldsError(d.errs)
	}
	return given, nil
}

// fieldsError makes one error of bad fields.
func fieldsError(bad []executor.FieldError) error {
	messages := make([]string, len(bad))
	for i, e := range bad {
		messages[i] = e.Field + ": " + e.Message
	}
	return &executor.Error{Code: executor.Invalid, Message: strings.Join(messages, "; "), Fields: bad}
}

func notJSON(raw []byte, isBody bool) error {
	reason := whyNotJSON(raw)
	if isBody {
		return refuse(http.StatusBadRequest, executor.Invalid, "the body is not JSON: %s", reason)
	}
	return &requestError{status: http.StatusBadRequest, where: "multipart", err: executor.FieldErrorf(executor.Invalid, "metadata", "is not JSON: %s", reason)}
}

// whyNotJSON returns what is wrong with a text, where, and what is usual instead.
func whyNotJSON(raw []byte) string {
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return `it is empty, and must be an object, {"name": value}`
	case !utf8.Valid(raw):
		return "it is not UTF-8"
	case bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")):
		return "it must not begin with a byte order mark"
	}
	var v any
	err := json.Unmarshal(raw, &v)
	bad, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return "unexpected end"
	}
	usual := ""
	switch c := raw[max(0, min(int(bad.Offset), len(raw))-1)]; {
	case strings.Contains(bad.Error(), "unexpected end"):
		usual = ": it was cut, or a quote or a bracket is missing"
	case c == '\'':
		usual = ": names and strings have double quotes"
	case c == '\n' && strings.HasSuffix(bad.Error(), "in string literal"):
		usual = `: a line end in a string is written \n`
	case c < ' ' && strings.HasSuffix(bad.Error(), "in string literal"):
		usual = `: a control character in a string is written \u00XX`
	case c == 'N' || c == 'I' || c == 'T' || c == 'F':
		usual = ": the words of JSON are true, false and null"
	}
	return fmt.Sprintf("%v at byte %d%s", bad, bad.Offset, usual)
}

// maxFieldErrors bounds the bad fields that one answer names.
const maxFieldErrors = 100

// decoder collects the errors of an object while it is read. Its input is valid JSON.
type decoder struct {
	whole string // names the object itself in errors
	errs  []executor.FieldError
}

func (d *decoder) bad(path, format string, args ...any) {
	if path == "" {
		path = d.whole
	}
	if len(d.errs) < maxFieldErrors {
		d.errs = append(d.errs, executor.FieldError{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

// reader is a type with a form of its own in JSON.
type reader interface {
	read(d *decoder, path string, raw json.RawMessage)
}

// fields reads an object into a struct and returns the names that have a value.
func (d *decoder) fields(path string, raw json.RawMessage, fields shape, into reflect.Value) (given map[string]bool) {
	given = map[string]bool{}
	meant := map[string]bool{} // what hints have asked for
	isObject := d.object(path, raw, func(name, at string, raw json.RawMessage) {
		r, ok := fields[name]
		switch {
		case !ok && len(d.errs) >= maxFieldErrors: // a hint takes time
		case !ok:
			near := fields.near(name)
			hint := ""
			if near != "" || !meant[""] { // the known fields are named once
				hint = fields.hint(path, near)
			}
			meant[near] = true
			d.bad(at, "unknown field%s", hint)
		case !isNull(raw):
			given[name] = true
			d.value(at, raw, r, into.FieldByIndex(r.index))
		}
	})
	for name, r := range fields {
		if isObject && r.required && !given[name] && !meant[name] {
			d.bad(below(path, name), "must be given")
		}
	}
	return given
}

// value reads a value that is not null.
func (d *decoder) value(path string, raw json.RawMessage, r *rule, into reflect.Value) {
	if own, ok := into.Addr().Interface().(reader); ok {
		own.read(d, path, raw)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, raw, r, into.Elem())
	case reflect.Struct:
		d.fields(path, raw, r.fields, into)
	case reflect.String:
		into.SetString(d.text(path, raw, r))
	case reflect.Bool:
		if kindOf(raw) != "a boolean" {
			d.bad(path, "must be true or false (got %s)", kindOf(raw))
		}
		into.SetBool(raw[0] == 't')
	case reflect.Float64:
		if v, ok := d.number(path, raw); ok {
			d.bounds(path, v, numberText(raw, strconv.FormatFloat(v, 'g', -1, 64), math.IsInf(v, 0)), r)
			into.SetFloat(v)
		}
	case reflect.Int64:
		if v, ok := d.integer(path, raw); ok {
			d.bounds(path, float64(v), numberText(raw, strconv.FormatInt(v, 10), v == math.MaxInt64 || v == math.MinInt64), r)
			into.SetInt(v)
		}
	case reflect.Slice:
		if r.fields != nil {
			d.objects(path, raw, r.fields, into)
			return
		}
		into.Set(reflect.ValueOf(d.list(path, raw, r)))
	case reflect.Map:
		into.Set(reflect.ValueOf(d.environment(path, raw)))
	default:
		panic("no reader for " + into.Type().String())
	}
}

// object calls each for every member of the object raw, in order, and reports whether raw is an object. A duplicate name is an
// error, because readers differ in which value they take.
func (d *decoder) object(path string, raw json.RawMessage, each func(name, at string, raw json.RawMessage)) bool {
	if kindOf(raw) != "an object" {
		d.bad(path, "must be an object (got %s)", kindOf(raw))
		return false
	}
	seen := map[string]bool{}
	members(raw, func(quoted, value json.RawMessage) {
		var name string
		_ = json.Unmarshal(quoted, &name) // it is a string
		at := below(path, clip(name))
		if strings.ContainsRune(name, utf8.RuneError) && strictjson.HasHalfPair(quoted) {
			d.bad(at, "the name must not have half of a surrogate pair")
			return
		}
		if seen[name] {
			d.bad(at, "duplicate field")
			return
		}
		seen[name] = true
		each(name, at, value)
	})
	return true
}

// below returns the path of a member of path.
func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// text reads a string and checks it against its schema.
func (d *decoder) text(path string, raw json.RawMessage, r *rule) string {
	v, ok := d.anyText(path, raw)
	if ok {
		d.check(path, v, r)
	}
	return v
}

// check checks a string against its schema.
func (d *decoder) check(path, v string, r *rule) {
	s := r.schema
	switch {
	case strings.Contains(s.Pattern, `^[^\x00]*`) && strings.Contains(v, "\x00"):
		d.bad(path, "must not contain NUL")
	case r.pattern != nil && !r.pattern.MatchString(v):
		d.bad(path, "must be %s (got %.40q)", s.PatternDescription, v)
	case s.MaxLength != nil && len(v) > *s.MaxLength:
		d.bad(path, "must have at most %d bytes (got %d)", *s.MaxLength, len(v))
	case s.Enum != nil && !slices.Contains(s.Enum, any(v)):
		var names []string
		for _, e := range s.Enum {
			if name, ok := e.(string); ok {
				names = append(names, name)
			}
		}
		d.bad(path, "must be one of %s (got %.40q)", strings.Join(names, ", "), v)
	}
}

// anyText reads a string.
func (d *decoder) anyText(path string, raw json.RawMessage) (v string, ok bool) {
	if kindOf(raw) != "a string" || json.Unmarshal(raw, &v) != nil {
		d.bad(path, "must be a string (got %s)", kindOf(raw))
		return "", false
	}
	if strings.ContainsRune(v, utf8.RuneError) && strictjson.HasHalfPair(raw) {
		d.bad(path, "must not have half of a surrogate pair")
		return "", false
	}
	return v, true
}

// list reads an array of strings.
func (d *decoder) list(path string, raw json.RawMessage, r *rule) []string {
	var items []json.RawMessage
	if kindOf(raw) != "an array" || json.Unmarshal(raw, &items) != nil {
		d.bad(path, "must be an array of strings (got %s)", kindOf(raw))
		return nil
	}
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = d.text(path+"["+strconv.Itoa(i)+"]", item, r)
	}
	return list
}

// objects reads an array of objects into a slice of structs.
func (d *decoder) objects(path string, raw json.RawMessage, fields shape, into reflect.Value) {
	var items []json.RawMessage
	if kindOf(raw) != "an array" || json.Unmarshal(raw, &items) != nil {
		d.bad(path, "must be an array of objects (got %s)", kindOf(raw))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		d.fields(path+"["+strconv.Itoa(i)+"]", item, fields, into.Index(i))
	}
}

// environment reads environment variables.
func (d *decoder) environment(path string, raw json.RawMessage) map[string]string {
	var env map[string]string
	value := &rule{schema: &huma.Schema{Pattern: noNUL}}
	d.object(path, raw, func(name, at string, raw json.RawMessage) {
		switch {
		case !envName.MatchString(name):
			d.bad(at, "must be the name of an environment variable")
		case !isNull(raw):
			if env == nil {
				env = map[string]string{}
			}
			env[name] = d.text(at, raw, value)
		}
	})
	return env
}

func (d *decoder) number(path string, raw json.RawMessage) (float64, bool) {
	if kindOf(raw) != "a number" {
		d.bad(path, "must be a number (got %s)", kindOf(raw))
		return 0, false
	}
	v, _ := strconv.ParseFloat(string(raw), 64) // beyond all numbers it is infinite, which no bounds allow
	return v, true
}

// numberText returns a number as errors show it: as it was written if it is beyond its type, cut after 40 characters.
func numberText(raw json.RawMessage, text string, beyond bool) string {
	if beyond {
		return fmt.Sprintf("%.40s", raw)
	}
	return text
}

// integer reads a number without a fraction, however it is written: 1024, 1024.0, 1e3. Beyond 2^53 it is the largest or the smallest of its
// type, which no bounds allow.
func (d *decoder) integer(path string, raw json.RawMessage) (int64, bool) {
	if kindOf(raw) == "a number" {
		if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return v, true
		}
	}
	v, ok := d.number(path, raw)
	switch {
	case !ok:
		return 0, false
	case v != math.Trunc(v):
		d.bad(path, "must be a whole number (got %.40s)", raw)
		return 0, false
	case v > 1<<53:
		return math.MaxInt64, true
	case v < -1<<53:
		return math.MinInt64, true
	}
	return int64(v), true
}

// bounds checks a number, which was written as got, against its schema. The maximum of the format is far beyond that of a server. An error
// names the server's own, where there is one.
func (d *decoder) bounds(path string, v float64, got string, r *rule) {
	s := r.schema
	low, minimum := "more than ", s.ExclusiveMinimum
	if s.Minimum != nil {
		low, minimum = "at least ", s.Minimum
	}
	if v >= *minimum && (v > *minimum || s.Minimum != nil) && v <= *s.Maximum {
		return
	}
	if r.most > 0 && v > *s.Maximum {
		d.bad(path, "must be at most %s (got %s)", bound(r.most), got) // as the service says it
		return
	}
	d.bad(path, "must be %s and at most %s (got %s)", low+bound(*minimum), bound(cmp.Or(r.most, *s.Maximum)), got)
}

// bound returns a bound as text. Only one that no integer needs has an exponent.
func bound(v float64) string {
	if v >= 1<<63 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func isNull(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == 'n' }

// kindOf names what a JSON value is, with its article.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
