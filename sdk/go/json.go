package pyexec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The structs of this package are the bodies of the HTTP API, for client and server. The server makes its API description from
// their tags: json, doc, nullable, enum, pattern and bounds.

// member is a field of a struct, as the tags of the field describe it.
type member struct {
	// key is the quoted name and a colon.
	key                         string
	omitEmpty, nullable, output bool
}

// members caches membersOf by type.
var members sync.Map

// membersOf returns the members of the struct type t.
func membersOf(t reflect.Type) []member {
	if known, ok := members.Load(t); ok {
		return known.([]member)
	}
	list := make([]member, t.NumField())
	for i := range list {
		tag := t.Field(i).Tag
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		list[i] = member{strconv.Quote(name) + ":", strings.HasPrefix(options, "omit"), tag.Get("nullable") == "true", tag.Get("part") == "output"}
	}
	members.Store(t, list)
	return list
}

// encode returns the struct v as the API writes it. Every member is present, except an empty one that is tagged omitempty or
// omitzero. A zero member that is tagged nullable is null. withOutput is false to leave out members tagged part:"output".
func encode(v any, withOutput bool) ([]byte, error) {
	value := reflect.ValueOf(v)
	b := &bytes.Buffer{}
	encoder := newEncoder(b)
	separator := byte('{')
	for i, m := range membersOf(value.Type()) {
		field := value.Field(i)
		empty := field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0
		if empty && m.omitEmpty || m.output && !withOutput {
			continue
		}
		b.WriteByte(separator)
		separator = ','
		b.WriteString(m.key)
		if m.nullable && field.IsZero() {
			b.WriteString("null")
			continue
		}
		if err := encoder.Encode(field.Interface()); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the encoder ends with a line break
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// newEncoder returns an encoder that writes the special characters of HTML as they are.
func newEncoder(b *bytes.Buffer) *json.Encoder {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	return encoder
}

// replaced matches U+FFFD as the package json writes it in the place of bytes that are not UTF-8. An escaped backslash may be before it.
var replaced = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\ufffd`)

// fieldName matches the name of a field. In a string the quotes are escaped.
var fieldName = regexp.MustCompile(`"([^"\\]+)":`)

// marshal returns v in JSON. Text that is not UTF-8 is an error with the name of its field, because the package json would change it.
func marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil || !bytes.Contains(raw, []byte(`\ufffd`)) {
		return raw, err
	}
	at := replaced.FindIndex(raw)
	if at == nil {
		return raw, nil
	}
	if names := fieldName.FindAllSubmatch(raw[:at[0]], -1); len(names) > 0 {
		return nil, fmt.Errorf("%s: text must be UTF-8", names[len(names)-1][1])
	}
	return nil, errors.New("text must be UTF-8")
}

// isText reports whether a form of a displayed value is sent as text: its type is a text type and its bytes are UTF-8.
func isText(name string, data []byte) bool {
	mediaType, _, err := mime.ParseMediaType(name)
	if err != nil {
		mediaType = strings.ToLower(name)
	}
	_, sub, _ := strings.Cut(mediaType, "/")
	textual := strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(sub, "+json") || strings.HasSuffix(sub, "+xml") ||
		sub == "json" || sub == "xml" || sub == "javascript"
	return textual && utf8.Valid(data)
}

// notNil returns data, so that no bytes are "" in JSON instead of null.
func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}
