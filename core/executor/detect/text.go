package detect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns the text of a requirements.txt, uv.lock or pyproject.toml without its byte order mark. PowerShell writes UTF-16. Anything but UTF-8 and UTF-16 with a
// mark is an error.
func Text(raw []byte) (string, error) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(raw, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(raw, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	case utf8.Valid(raw):
		return string(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))), nil
	default:
		return "", errNoText
	}
	if len(raw)%2 != 0 {
		return "", errNoText
	}
	var units []uint16
	for raw = raw[2:]; len(raw) > 0; raw = raw[2:] {
		units = append(units, order.Uint16(raw))
	}
	return string(utf16.Decode(units)), nil
}

var errNoText = errors.New("must be UTF-8, or UTF-16 with a byte order mark")
