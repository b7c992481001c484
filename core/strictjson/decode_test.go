package strictjson

import (
	"errors"
	"testing"
)

func TestDecodeNamesUnknownFields(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"a":1}`:            "",
		` {"a":1} `:          "",
		`{"a":1,"b\"c":2}`:   `b"c: unknown field`,
		`{"a":1}{}`:          "must end after the value",
		`{"a":1} x`:          "must end after the value",
		`{"a":`:              "unexpected EOF",
		`{"list":[{"x":1}]}`: "x: unknown field",
	} {
		var v struct {
			A    int
			List []struct{ Y int }
		}
		err := Decode([]byte(raw), &v)
		if got := message(err); got != want {
			t.Errorf("%s: %q", raw, got)
		}
		if name, ok := errors.AsType[UnknownField](err); ok && string(name)+": unknown field" != want {
			t.Errorf("%s: the name is %q", raw, name)
		}
	}
}

func TestTextThatWouldChangeIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"code":"\ud83d\ude00 \\ud800 \ufffd","n":1}`:  "",
		`{"code":"\ud800"}`:                             "code: must not have half of a surrogate pair",
		`{"a":"x","env":{"B":["\udc00"]},"z":"\ud800"}`: "env: must not have half of a surrogate pair",
		`{"\ud800":"x"}`:                                "the body: must not have half of a surrogate pair",
		`{"\ud800":"\ud800"}`:                           "the body: must not have half of a surrogate pair",
		`["\ud800"]`:                                    "the body: must not have half of a surrogate pair",
		"{\"a\":\"\\ud800\",\"code\":\"\xe9\"}":         "a: must not have half of a surrogate pair",
		"{\"a\":\"\u00e9\",\"code\":\"\xe9\"}":          "code: must be UTF-8",
		"\xff":                                          "the body: must be UTF-8",
		`null`:                                          "", ``: "",
	} {
		if got := message(CheckText([]byte(raw), "the body")); got != want {
			t.Errorf("%s: %q", raw, got)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
