package mcpfrontend

import (
	"bytes"
	"encoding/json"
	"slices"
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

// plainMessage returns a message of mcp-go as clients get it: without escapes for HTML, and with isError in the result of each tool.
// raw is one message, or an event that holds one.
func plainMessage(raw []byte) []byte { return withIsError(unescapeHTML(raw)) }

// toolResult begins the result of a tool. mcp-go sorts the members of a result, and inside of a text each quote is escaped.
const toolResult = `,"result":{"content":[`

// withIsError adds "isError":false to the result of a tool that has no isError. mcp-go leaves it out if it is false.
func withIsError(raw []byte) []byte {
	at := bytes.Index(raw, []byte(toolResult))
	if at < 0 || bytes.Contains(raw[at:], []byte(`],"isError":true`)) {
		return raw
	}
	at += len(`,"result":{`)
	return slices.Concat(raw[:at], []byte(`"isError":false,`), raw[at:])
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
