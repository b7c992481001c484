package detect

import (
	"bytes"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// go-toml descends into arrays and inline tables by recursion, and a Go stack that overflows ends the process, whatever
// recovers: a comment of two megabytes of brackets was enough. These bound how many a text may have at all, because what
// stands in a string or a comment is known only to the parser.
const (
	maxScriptBrackets  = 10_000
	maxProjectBrackets = 200_000 // a lock names each wheel in an inline table
)

// decodeTOML reads text, which anybody may have written, into v.
func decodeTOML(text []byte, brackets int, v any) (err error) {
	if n := bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{")); n > brackets {
		return fmt.Errorf("%d brackets, more than %d", n, brackets)
	}
	defer func() {
		// go-toml 2.2.4 assigns a date to a string without a look (unmarshaler.go, unmarshalLocalDate), which panics.
		if p := recover(); p != nil {
			err = fmt.Errorf("toml: a value is of another kind than it must be: %v", p)
		}
	}()
	return toml.Unmarshal(text, v)
}
