package httpfrontend

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzMembers compares members with encoding/json.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a" : -1.5e3 , "b":true,"c":null}`, "\t{\n\"a\"\r:\n[1, {\"b\": \"}\"}, [[]]]\t,\"c\":{\"d\":{}}}",
		`{"\"":"\\"}`, `{"a\\":"\\\"","b":"\\\\"}`, `{"":"","":0}`, "{\"a\":1\r,\"b\":2\n,\"c\":3\t,\"d\":4\r\n}",
		`{"a":[],"b":{},"c":"{[\"","d":[{"e":"]"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) || kindOf(object) != "an object" {
			t.Skip()
		}
		dec := json.NewDecoder(bytes.NewReader(object))
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
		members(object, func(name, value json.RawMessage) {
			token, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			var got string
			var want json.RawMessage
			if err := json.Unmarshal(name, &got); err != nil || got != token {
				t.Fatalf("the name %s is %v, error %v", name, token, err)
			}
			if err := dec.Decode(&want); err != nil || !bytes.Equal(value, want) {
				t.Fatalf("the value %s is %s, error %v", value, want, err)
			}
		})
		if dec.More() {
			t.Fatal("members are missing")
		}
	})
}
