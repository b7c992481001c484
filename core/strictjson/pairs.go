package strictjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// HasHalfPair reports whether a string in JSON has an escape that is one half of a surrogate pair. encoding/json would replace it by U+FFFD.
func HasHalfPair(raw []byte) bool {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 || at+1 >= len(raw) {
			return false
		}
		first, ok := escape(raw[at:])
		if !ok {
			raw = raw[at+2:]
			continue
		}
		raw = raw[at+6:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		second, ok := escape(raw)
		if !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
			return true
		}
		raw = raw[6:]
	}
}

// escape reads the escape of four hexadecimal digits at the beginning of raw.
func escape(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(v), err == nil //nolint:gosec // it has 16 bits
}
