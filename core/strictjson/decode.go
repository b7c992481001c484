package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// UnknownField is the error of a field that is not in the struct. Its value is the name of the field.
type UnknownField string

// Error implements error.
func (f UnknownField) Error() string { return string(f) + ": unknown field" }

// Decode reads raw, which must be one JSON value, into the value that into points to. An unknown field is an UnknownField. Other errors are
// those of encoding/json.
func Decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		quoted, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
		if name, quoteErr := strconv.Unquote(quoted); unknown && quoteErr == nil {
			return UnknownField(name)
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("must end after the value")
	}
	return nil
}

// CheckText returns an error if encoding/json would replace text in raw, a JSON object: bytes that are not UTF-8, or half of a surrogate
// pair. The error begins with the name of the member that has the text, or with whole if no member can be named.
func CheckText(raw []byte, whole string) error {
	if bad(raw) == "" {
		return nil
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // without members the error names the whole
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if problem := bad(members[name]); problem != "" && !strings.ContainsRune(name, utf8.RuneError) {
			return fmt.Errorf("%s: %s", name, problem)
		}
	}
	return fmt.Errorf("%s: %s", whole, bad(raw))
}

// bad returns what is wrong with the text in raw; "": nothing.
func bad(raw []byte) string {
	switch {
	case !utf8.Valid(raw):
		return "must be UTF-8"
	case HasHalfPair(raw):
		return "must not have half of a surrogate pair"
	}
	return ""
}
