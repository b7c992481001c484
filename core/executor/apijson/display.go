package apijson

import (
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

// MaxDisplayBytes bounds the forms that one Result carries, together, before base64. The log has more.
const MaxDisplayBytes = 8 << 20

// Display is one form of one displayed value: Data where its type is text and it is UTF-8, else Base64.
type Display struct {
	MIME   string  `json:"mime"`
	Data   *string `json:"data,omitempty"`
	Base64 *[]byte `json:"base64,omitempty"`
	// Value: it is the value of the code's last expression; else the code displayed it.
	Value bool `json:"value"`
	// Display numbers the displayed values of an Execution from 0; the forms of one value share its number.
	Display int `json:"display"`
}

// Collector turns the Displays of one Execution into those of its Result. The zero Collector is ready.
type Collector struct {
	// Truncated: forms are missing.
	Truncated bool
	seen      int
	bytes     int
}

// Add returns the forms of the next Display, sorted by type, as far as there is room; a form that is too large does not
// keep out smaller ones.
func (c *Collector) Add(d executor.Display) []Display {
	number := c.seen
	c.seen++
	c.Truncated = c.Truncated || d.Truncated
	forms := make([]Display, 0, len(d.Data))
	for _, name := range slices.Sorted(maps.Keys(d.Data)) {
		data := d.Data[name]
		if c.bytes+len(data) > MaxDisplayBytes {
			c.Truncated = true
			continue
		}
		c.bytes += len(data)
		form := Display{MIME: name, Value: d.Value, Display: number}
		if isText(name, data) {
			form.Data = new(string(data))
		} else {
			form.Base64 = new(notNil(data))
		}
		forms = append(forms, form)
	}
	return forms
}

// DisplayEvent is the data of an Event display.
type DisplayEvent struct {
	// Data holds each form by its type: a string, or Bytes.
	Data  map[string]any `json:"data"`
	Value bool           `json:"value"`
	// Truncated: forms were left out or cut.
	Truncated bool `json:"truncated,omitempty"`
}

// Bytes stand for what is not text.
type Bytes struct {
	Base64 []byte `json:"base64"`
}

// DisplayEventOf returns d as the data of an Event.
func DisplayEventOf(d executor.Display) DisplayEvent {
	e := DisplayEvent{Data: make(map[string]any, len(d.Data)), Value: d.Value, Truncated: d.Truncated}
	for name, data := range d.Data {
		if isText(name, data) {
			e.Data[name] = string(data)
		} else {
			e.Data[name] = Bytes{notNil(data)}
		}
	}
	return e
}

// notNil makes no bytes "", not null.
func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// isText reports whether a form goes as text: its type says text, and it is.
func isText(name string, data []byte) bool {
	mediaType, _, err := mime.ParseMediaType(name)
	if err != nil {
		mediaType = strings.ToLower(name)
	}
	_, sub, _ := strings.Cut(mediaType, "/")
	textual := strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(sub, "+json") || strings.HasSuffix(sub, "+xml") ||
		sub == "json" || sub == "xml" || sub == "javascript"
	return textual && utf8.Valid(data)
}
