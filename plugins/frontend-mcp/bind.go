package mcpfrontend

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// metaSessionKey in a request's _meta names the Session to run in.
const metaSessionKey = "com.python-executor/session"

// metaTags is where a tool's tags stand in its _meta: the protocol has no field for them.
const metaTags = "com.python-executor/tags"

// bind reads a call's arguments into args, a pointer to a struct. Unknown and mistyped arguments are named.
func bind(request mcp.CallToolRequest, args any) error {
	raw := []byte(request.Params.RawArguments)
	if len(bytes.TrimSpace(raw)) == 0 || string(raw) == "null" {
		var err error
		if raw, err = json.Marshal(request.GetArguments()); err != nil {
			return err
		}
	}
	if string(raw) == "null" {
		raw = []byte("{}")
	}
	err := decode(raw, args)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && strings.HasPrefix(kind.Value, "number ") {
		err = decode(wholeNumbers(raw), args)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind):
		if kind.Field == "" {
			return fmt.Errorf("arguments: must be an object, not %s", indefinite(kind.Value))
		}
		return fmt.Errorf("%s: must be %s, not %s", leaf(kind.Field), article(kind.Type.Kind().String()), indefinite(kind.Value))
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return fmt.Errorf("%s: no such argument", strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`))
	}
	return fmt.Errorf("arguments: %w", err)
}

func decode(raw []byte, args any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(args)
}

// wholeNumbers is the object raw with 5.0 and 5e0 written as 5: to JSON Schema they are integers.
func wholeNumbers(raw []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return raw
	}
	for name, value := range members {
		if f, err := strconv.ParseFloat(string(value), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < maxWhole {
			members[name] = strconv.AppendInt(nil, int64(f), 10)
		}
	}
	plain, err := json.Marshal(members)
	if err != nil {
		return raw
	}
	return plain
}

// maxWhole is where a float64 ceases to hold every whole number.
const maxWhole = 1 << 53

// duration is n units, as far as a Duration goes; the engine refuses what is too long.
func duration(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/unit))) * unit
}

// indefinite puts an article before a kind of JSON value; a number that does not fit is named.
func indefinite(kind string) string {
	if number, ok := strings.CutPrefix(kind, "number "); ok {
		return number
	}
	if strings.HasPrefix(kind, "array") || strings.HasPrefix(kind, "object") {
		return "an " + kind
	}
	return "a " + kind
}

func article(kind string) string {
	switch {
	case kind == "slice":
		return "a list"
	case kind == "ptr":
		return "another type"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	}
	return "a " + kind
}

// metaSession is the Session that the client has named; empty: none.
func metaSession(request mcp.CallToolRequest) string {
	if request.Params.Meta == nil {
		return ""
	}
	id, _ := request.Params.Meta.AdditionalFields[metaSessionKey].(string)
	return id
}

// exitCode is how the toolsets of the specifications write the end of a program: -n is a death by signal n. -1 stands for
// one that has none at all.
func exitCode(r executor.Result) int {
	if r.ExitCode != nil {
		return *r.ExitCode
	}
	if n := executor.SignalNumber(r.Signal); n > 0 {
		return -n
	}
	return -1
}

// trimPartialRune leaves out a character of which only the beginning is there.
func trimPartialRune(text string) string {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if c := text[len(text)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRuneInString(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// argumentError is err in the words of a tool: names has its arguments by the fields of a Spec.
func argumentError(err error, names map[string]string) error {
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	fields, lines := make([]executor.FieldError, len(e.Fields)), make([]string, len(e.Fields))
	for i, f := range e.Fields {
		fields[i] = executor.FieldError{Field: cmp.Or(names[f.Field], f.Field), Message: f.Message}
		lines[i] = fields[i].Field + ": " + f.Message
	}
	return &executor.Error{Code: e.Code, Message: strings.Join(lines, "; "), Fields: fields}
}

// failure is the field that f names, and what it says, in the words of a tool. A server elsewhere does not name the field,
// but its message begins with it.
func failure(f *executor.Failure, names map[string]string) (field, message string) {
	name, rest, ok := strings.Cut(f.Message, ": ")
	if field = f.Field; field == "" && names[name] != "" {
		field = name
	}
	if ok && name == field {
		return field, cmp.Or(names[name], name) + ": " + rest
	}
	return field, f.Message
}

// leaf is a field's own name, without the embedded structs around it.
func leaf(field string) string { return field[strings.LastIndexByte(field, '.')+1:] }
