package mcpfrontend

import (
	"bytes"
	"encoding/json"
)

// plainJSON is json.Marshal without the escapes of <, > and &, which only HTML needs. Models read the text unchanged.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// unescapeHTML returns raw without the escapes that json.Marshal writes for HTML. raw is JSON, or a stream of events that
// holds JSON. mcp-go marshals its messages with these escapes.
func unescapeHTML(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\u00`)) {
		return raw
	}
	plain := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			plain = append(plain, raw[i])
			continue
		}
		escape := raw[i:min(i+6, len(raw))]
		switch string(escape) {
		case `\u003c`:
			plain = append(plain, '<')
		case `\u003e`:
			plain = append(plain, '>')
		case `\u0026`:
			plain = append(plain, '&')
		default:
			plain = append(plain, raw[i], raw[i+1]) // skips the second backslash of an escaped one
			i++
			continue
		}
		i += len(escape) - 1
	}
	return plain
}
