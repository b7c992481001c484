package httpfrontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

// metadata reads metadata, in a multipart part or as a JSON body.
type metadata struct {
	fields []field
	// part and body are the keys known in a multipart part and in a JSON body.
	part, body map[string]field
	// session, restart and requirements are those of the bodies of a Session's calls.
	session, restart, requirements map[string]field
}

func newMetadata(l LimitRange) *metadata {
	m := &metadata{fields: metadataFields(l)}
	m.part = byName(m.fields)
	m.body = byName(append(metadataFields(l), filesField()))
	m.session, m.restart, m.requirements = byName(sessionFields(l)), byName(restartFields()), byName(requirementsFields())
	return m
}

// decode reads raw. Every bad field is named in one error. A value null is an absent one.
func (m *metadata) decode(raw []byte, withFiles bool) (*submission, error) {
	if withFiles {
		return decodeFields(raw, m.body, true)
	}
	return decodeFields(raw, m.part, false)
}

// decodeFields reads an object of known fields, in a body or in a part.
func decodeFields(raw []byte, known map[string]field, isBody bool) (*submission, error) {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil, notJSON(raw, isBody)
	}
	d, s := &decoder{}, &submission{}
	d.fields("", raw, known, s)
	if len(d.errs) == 0 {
		return s, nil
	}
	msgs := make([]string, len(d.errs))
	for i, e := range d.errs {
		msgs[i] = e.Field + ": " + e.Message
	}
	return nil, &executor.Error{Code: executor.Invalid, Message: strings.Join(msgs, "; "), Fields: d.errs}
}

func notJSON(raw []byte, isBody bool) error {
	message := "it is not UTF-8"
	if utf8.Valid(raw) {
		var v any
		message = "unexpected end"
		if err := json.Unmarshal(raw, &v); err != nil {
			message = err.Error()
		}
	}
	if isBody {
		return refuse(http.StatusBadRequest, executor.Invalid, "the body is not JSON: %s", message)
	}
	return &requestError{status: http.StatusBadRequest, where: "multipart", err: executor.FieldErrorf(executor.Invalid, "metadata", "is not JSON: %s", message)}
}

// maxFieldErrors bounds how many bad fields one answer names.
const maxFieldErrors = 100

// decoder collects what is wrong with metadata while it is read. Its input is valid JSON.
type decoder struct {
	errs []executor.FieldError
}

func (d *decoder) bad(path, format string, args ...any) {
	if path == "" {
		path = "metadata"
	}
	if len(d.errs) < maxFieldErrors {
		d.errs = append(d.errs, executor.FieldError{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

// fields reads an object of known fields.
func (d *decoder) fields(path string, raw json.RawMessage, known map[string]field, s *submission) {
	d.object(path, raw, func(name, at string, raw json.RawMessage) {
		f, ok := known[name]
		switch {
		case !ok:
			d.bad(at, "unknown field")
		case !isNull(raw):
			f.read(d, s, at, raw)
		}
	})
}

// object calls each for every member of the object raw, in its order. A name that comes twice is an error: which one
// counts would depend on the reader.
func (d *decoder) object(path string, raw json.RawMessage, each func(name, at string, raw json.RawMessage)) {
	if kindOf(raw) != "an object" {
		d.bad(path, "must be an object (got %s)", kindOf(raw))
		return
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		d.bad(path, "is not JSON")
		return
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			d.bad(path, "is not JSON")
			return
		}
		at := clip(name)
		if path != "" {
			at = path + "." + at
		}
		if seen[name] {
			d.bad(at, "is there twice")
			continue
		}
		seen[name] = true
		each(name, at, value)
	}
}

// text reads a string.
func (d *decoder) text(path string, raw json.RawMessage) (string, bool) {
	var v string
	if kindOf(raw) != "a string" || json.Unmarshal(raw, &v) != nil {
		d.bad(path, "must be a string (got %s)", kindOf(raw))
		return "", false
	}
	return v, true
}

// plain reads a string without NUL bytes: an argument, a name, a variable.
func (d *decoder) plain(path string, raw json.RawMessage) (string, bool) {
	v, ok := d.text(path, raw)
	if ok && strings.ContainsRune(v, 0) {
		d.bad(path, "must not contain NUL")
		return "", false
	}
	return v, ok
}

// list reads an array of plain strings.
func (d *decoder) list(path string, raw json.RawMessage) []string {
	var items []json.RawMessage
	if kindOf(raw) != "an array" || json.Unmarshal(raw, &items) != nil {
		d.bad(path, "must be an array of strings (got %s)", kindOf(raw))
		return nil
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		if v, ok := d.plain(path+"["+strconv.Itoa(i)+"]", item); ok {
			out = append(out, v)
		}
	}
	return out
}

func (d *decoder) boolean(path string, raw json.RawMessage) (value, ok bool) {
	if kindOf(raw) != "a boolean" {
		d.bad(path, "must be true or false (got %s)", kindOf(raw))
		return false, false
	}
	return raw[0] == 't', true
}

func (d *decoder) number(path string, raw json.RawMessage) (float64, bool) {
	if kindOf(raw) != "a number" {
		d.bad(path, "must be a number (got %s)", kindOf(raw))
		return 0, false
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		d.bad(path, "is out of range")
		return 0, false
	}
	return v, true
}

// integer reads a number without a fraction, however it is written: 1024, 1024.0, 1e3.
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
	case math.Abs(v) > 1<<53:
		d.bad(path, "is out of range")
		return 0, false
	}
	return int64(v), true
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
