package pyexec

import (
	"encoding/json"
	"strings"
	"testing"
)

// The package json replaces bytes that are not UTF-8, so that a program would get another input than its caller has given.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	for name, b := range map[string]Batch{
		"code":  {Spec: Spec{Code: "\xff"}},
		"id":    {Cases: []Case{{ID: "a"}, {ID: "\xffa"}}},
		"stdin": {Cases: []Case{{Stdin: text(`\\` + "\xff")}}},
		"env":   {Cases: []Case{{Env: map[string]string{"\xc3": "x"}}}},
	} {
		if _, err := newUpload(b, "", Input{}); CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), name+": text must be UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []string{"\uFFFD", `\ufffd`, `\\ufffd`, `x\\\ufffd`, "é\x00", "\u2028"} {
		raw, err := marshal(s)
		var back string
		if err != nil || json.Unmarshal(raw, &back) != nil || back != s {
			t.Errorf("%q becomes %s, %v", s, raw, err)
		}
	}
}
