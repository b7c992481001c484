package detect

import (
	"bytes"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// go-toml parses arrays and inline tables by recursion. A stack overflow ends a Go process, and recover does not help: two
// megabytes of brackets in a comment are enough. These constants therefore bound the brackets of a text. Brackets in strings
// and comments count, because only the parser can tell them apart.
const (
	maxScriptBrackets  = 10_000
	maxProjectBrackets = 200_000 // a lock names each wheel in an inline table
)

// decodeTOML reads text, which is not trusted, into v. brackets bounds the opening brackets in text.
func decodeTOML(text []byte, brackets int, v any) (err error) {
	if n := bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{")); n > brackets {
		return fmt.Errorf("must not have more than %d opening brackets (got %d)", brackets, n)
	}
	defer func() {
		// go-toml 2.2.4 panics when it assigns a date to a string (unmarshaler.go, unmarshalLocalDate).
		if p := recover(); p != nil {
			err = fmt.Errorf("toml: a value has the wrong type: %v", p)
		}
	}()
	return toml.Unmarshal(text, v)
}
