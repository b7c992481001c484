package httpfrontend

import (
	"bytes"
	"encoding/json"
)

// members calls each for the members of an object, in order, with the name as it is written. object must be valid JSON. encoding/json
// looks at each byte several times for each level of nesting, which takes milliseconds for a few files of a program.
func members(object json.RawMessage, each func(name, value json.RawMessage)) {
	const between = " \t\r\n,:"
	rest := bytes.TrimLeft(object, between)[1:] // the brace
	for {
		rest = bytes.TrimLeft(rest, between)
		if len(rest) == 0 || rest[0] == '}' {
			return
		}
		n := valueBytes(rest)
		name := rest[:n]
		rest = bytes.TrimLeft(rest[n:], between)
		n = valueBytes(rest)
		each(name, rest[:n])
		rest = rest[n:]
	}
}

// valueBytes returns the length of the JSON value that text begins with.
func valueBytes(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringBytes(text[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1 + depth // the end of what is around a number is not part of it
			}
		case ' ', '\t', '\r', '\n', ',', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// stringBytes returns the length of the JSON string that text begins with.
func stringBytes(text []byte) int {
	for end := 1; ; end++ {
		n := bytes.IndexByte(text[end:], '"')
		if n < 0 {
			return len(text)
		}
		end += n
		before := bytes.TrimRight(text[:end], `\`)
		if (end-len(before))%2 == 0 {
			return end + 1
		}
	}
}
