package mcpfrontend

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/strictjson"
)

// metaSessionKey is the key in a request's _meta that names the Session to run in.
const metaSessionKey = "com.python-executor/session"

// metaTags is the key of a tool's tags in its _meta. The protocol has no field for tags.
const metaTags = "com.python-executor/tags"

// bind reads a call's arguments into args, a pointer to a struct. An error names the argument that is unknown or has the
// wrong type, or that has text which encoding/json would change.
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
	if err := strictjson.CheckText(raw, "arguments"); err != nil {
		return err
	}
	err := strictjson.Decode(raw, args)
	var kind *json.UnmarshalTypeError
	var unknown strictjson.UnknownField
	if errors.As(err, &kind) && strings.HasPrefix(kind.Value, "number ") {
		err = strictjson.Decode(wholeNumbers(raw), args)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind):
		if kind.Field == "" {
			return fmt.Errorf("arguments: must be an object, not %s", indefinite(kind.Value))
		}
		field := leaf(kind.Field)
		return fmt.Errorf("%s: must be %s, not %s", field+elementOf(raw, field, kind), typeName(kind.Type.Kind().String()), indefinite(kind.Value))
	case errors.As(err, &unknown):
		return unknownArgument(string(unknown), args)
	}
	return fmt.Errorf("arguments: %w", err)
}

// unknownArgument names the arguments that a tool has, and the one that was probably meant.
func unknownArgument(name string, args any) error {
	var known []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(args).Elem()) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && tag != "-" && f.IsExported() {
			known = append(known, tag)
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("%s: unknown argument: the tool has none", name)
	}
	meant := ""
	if near := cmp.Or(executor.Nearest(name, known), sameArgument(name, known)); near != "" {
		meant = ": did you mean " + near + "?"
	} else if tool := toolWith[name]; tool != "" {
		meant = ": " + tool + " has it"
	}
	return fmt.Errorf("%s: unknown argument%s (the arguments are %s)", name, meant, strings.Join(known, ", "))
}

// sameArguments are names that other tools and other servers have for the same argument.
var sameArguments = [][]string{
	{"code", "script_content", "script", "source", "program"}, {"requirements", "dependencies", "packages", "deps", "libraries"},
	{"timeout_ms", "timeout_seconds", "timeout"}, {"context_id", "session_id", "session", "context", "id"}, {"job_id", "execution_id", "id", "job"},
	{"command", "cmd", "code", "shell"}, {"content", "text", "data", "body"}, {"path", "file", "filename", "file_path", "name"},
	{"directory", "dir", "cwd", "folder", "workdir"}, {"script_path", "file", "filename", "path"}, {"stdin", "input"}, {"args", "argv", "arguments"},
	{"cpu_seconds", "cpu_time", "cpu_time_seconds", "cpu_limit", "cpu"},
}

// toolWith names the tool that has an argument which models give to another one.
var toolWith = map[string]string{"language": "create_context", "python_version": "create_context", "stdin": "execute"}

// sameArgument returns the argument among known that name probably means; "" if there is none.
func sameArgument(name string, known []string) string {
	for _, group := range sameArguments {
		if i := slices.IndexFunc(known, func(k string) bool { return slices.Contains(group, k) }); i >= 0 && slices.Contains(group, name) {
			return known[i]
		}
	}
	return ""
}

// elementOf returns the place of the first element of another kind in the list or object field of raw, as "[1]" or ".name"; "" if the field
// itself is of another kind.
func elementOf(raw []byte, field string, kind *json.UnmarshalTypeError) string {
	var members map[string]any
	if json.Unmarshal(raw, &members) != nil || kind.Type.Kind() != reflect.String {
		return ""
	}
	other := func(v any) bool { _, ok := v.(string); return !ok }
	switch list := members[field].(type) {
	case []any:
		if i := slices.IndexFunc(list, other); i >= 0 {
			return fmt.Sprintf("[%d]", i)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if other(list[name]) {
				return "." + name
			}
		}
	}
	return ""
}

// wholeNumbers returns the object raw with numbers such as 5.0 and 5e0 written as 5. In JSON Schema they are integers.
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

// maxWhole bounds the whole numbers that a float64 holds exactly.
const maxWhole = 1 << 53

// cpuArgs is the argument of every tool that runs a program and has a time limit.
type cpuArgs struct {
	CPUSeconds *float64 `json:"cpu_seconds,omitempty"`
}

// bound sets the CPU time in l, if the caller has given one.
func (a cpuArgs) bound(l *executor.Limits) error {
	switch {
	case a.CPUSeconds == nil:
		return nil
	case *a.CPUSeconds <= 0:
		return fmt.Errorf("cpu_seconds: must be > 0 (got %v): leave it out for the server's default", *a.CPUSeconds)
	}
	seconds := min(*a.CPUSeconds, float64(math.MaxInt64/time.Second)) // the engine refuses a Duration that is too long
	l.CPUTime = max(1, time.Duration(math.Round(seconds*float64(time.Second))))
	return nil
}

// duration returns n units, at most the maximum Duration. The engine refuses a Duration that is too long.
func duration(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/unit))) * unit
}

// indefinite returns the type of a JSON value with an article. For "number 5.5" it returns the number itself.
func indefinite(kind string) string {
	if number, ok := strings.CutPrefix(kind, "number "); ok {
		return number
	}
	if strings.HasPrefix(kind, "array") || strings.HasPrefix(kind, "object") {
		return "an " + kind
	}
	return "a " + kind
}

// typeName returns the JSON type, with an article, of a Go kind.
func typeName(kind string) string {
	switch {
	case kind == "slice":
		return `a list, like ["a"]`
	case kind == "struct" || kind == "map":
		return "an object"
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

// metaSession returns the id of the Session that the client has named, or "".
func metaSession(request mcp.CallToolRequest) string {
	if request.Params.Meta == nil {
		return ""
	}
	id, _ := request.Params.Meta.AdditionalFields[metaSessionKey].(string)
	return id
}

// exitCode returns the exit code in the form of the toolsets' specifications. It is -n if signal n has ended the program, and
// -1 if there is neither a code nor a known signal.
func exitCode(r executor.Result) int {
	if r.ExitCode != nil {
		return *r.ExitCode
	}
	if n := executor.SignalNumber(r.Signal); n > 0 {
		return -n
	}
	return -1
}

// trimPartialRune removes an incomplete character from the end of text.
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

// argumentError returns err with the names of a tool's arguments. names maps the fields of a Spec to the arguments.
func argumentError(err error, names map[string]string) error {
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	fields, lines := make([]executor.FieldError, len(e.Fields)), make([]string, len(e.Fields))
	for i, f := range e.Fields {
		fields[i] = executor.FieldError{Field: cmp.Or(names[f.Field], f.Field), Message: f.Message}
		lines[i] = fields[i].Field + ": " + fields[i].Message
	}
	return &executor.Error{Code: e.Code, Message: strings.Join(lines, "; "), Fields: fields}
}

// failure returns the field that f names, and f's message with the name of the tool's argument. A remote server does not
// send the field, but its message begins with the field.
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

// leaf returns the last part of a field's path, without the embedded structs.
func leaf(field string) string { return field[strings.LastIndexByte(field, '.')+1:] }
