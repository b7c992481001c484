package detect

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

// go-toml parses arrays and inline tables by recursion. A stack overflow ends a Go process, and recover does not help: two
// megabytes of brackets in a comment are enough. These constants therefore bound the brackets of a text. Brackets in strings
// and comments count, because only the parser can tell them apart.
//
// go-toml also needs a hundred bytes and more for each element of an array and each part of a name. maxMarks bounds the characters
// that separate them. A lock of 4 MB has about 150,000.
const (
	maxScriptBrackets  = 10_000
	maxProjectBrackets = 200_000 // a lock names each wheel in an inline table
	maxMarks           = 400_000
)

// largeTOML is held while a text of more than maxScript bytes is parsed, so that many uploads do not need the memory at once.
var largeTOML sync.Mutex

// decodeTOML reads text, which is not trusted, into v. brackets bounds the opening brackets in text.
func decodeTOML(text []byte, brackets int, v any) (err error) {
	if n := count(text, "[", "{"); n > brackets {
		return fmt.Errorf("must not have more than %d opening brackets (got %d)", brackets, n)
	}
	if n := count(text, ",", ".", "="); n > maxMarks {
		return fmt.Errorf("must not have more than %d commas, dots and equals signs (got %d)", maxMarks, n)
	}
	if len(text) > maxScript {
		largeTOML.Lock()
		defer largeTOML.Unlock()
	}
	defer func() {
		// go-toml 2.2.4 panics when it assigns a date to a string (unmarshaler.go, unmarshalLocalDate).
		if p := recover(); p != nil {
			err = fmt.Errorf("toml: a value has the wrong type: %v", p)
		}
	}()
	return toml.Unmarshal(text, v)
}

func count(text []byte, marks ...string) int {
	n := 0
	for _, mark := range marks {
		n += bytes.Count(text, []byte(mark))
	}
	return n
}
