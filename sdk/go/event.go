package pyexec

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Event is one entry of an Execution's log.
type Event struct {
	// Seq numbers the Events of an Execution from 1 without gaps.
	Seq uint64
	// Body is a Queued, Progress, Started, Output, Display, Finished or UnknownEvent.
	Body EventBody
}

// EventBody is the body of an Event.
type EventBody interface {
	// Kind is the event's name in the stream ("output").
	Kind() string
}

// Queued means that the server accepted the Execution.
type Queued struct {
	// Position in the queue, from 0.
	Position int `json:"position"`
}

// Progress reports work before the program and beside it.
type Progress struct {
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Done and Total count Unit. Total is 0 if unknown.
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	Unit  string `json:"unit,omitzero"`
}

// Started means that the program runs.
type Started struct {
	PID           int      `json:"pid"`
	PythonVersion string   `json:"python_version" nullable:"true"`
	Requirements  []string `json:"requirements"`
	// Start tells how the process was made: "exec" or "fork".
	Start string `json:"start" nullable:"true"`
}

// Output is a piece of a stream.
type Output struct {
	// Stream is "stdout" or "stderr".
	Stream string
	// Offset of Data's first byte in its stream.
	Offset int64
	Data   []byte
	// Earlier reports whether a process of an earlier Execution of the Session wrote Data, before this Execution began.
	Earlier bool
}

// Display is a rich value in one or more forms, by their type: "text/plain", "image/png", ….
type Display struct {
	Data map[string][]byte
	// Value reports whether it is the value of the code's last expression. Otherwise the code displayed it.
	Value bool
	// Truncated reports whether forms are missing or cut.
	Truncated bool
}

// Finished is the last Event. Its Execution has no output; Get returns it with output.
type Finished struct {
	Execution Execution
}

// UnknownEvent is an event of a kind that this version does not know.
type UnknownEvent struct {
	Name string
	Raw  json.RawMessage
}

// Kind implements EventBody.
func (Queued) Kind() string { return "queued" }

// Kind implements EventBody.
func (Progress) Kind() string { return "progress" }

// Kind implements EventBody.
func (Started) Kind() string { return "started" }

// Kind implements EventBody.
func (Output) Kind() string { return "output" }

// Kind implements EventBody.
func (Display) Kind() string { return "display" }

// Kind implements EventBody.
func (Finished) Kind() string { return "finished" }

// Kind implements EventBody.
func (u UnknownEvent) Kind() string { return u.Name }

// MarshalJSON writes s as the server does.
func (s Started) MarshalJSON() ([]byte, error) { return encode(s, true) }

// outputJSON is an Output in JSON. It has Data if the piece is UTF-8, else Base64.
type outputJSON struct {
	Stream  string  `json:"stream"`
	Offset  int64   `json:"offset"`
	Data    *string `json:"data,omitempty"`
	Base64  []byte  `json:"data_base64,omitempty"`
	Earlier bool    `json:"earlier,omitzero"`
}

// UnmarshalJSON reads {"stream","offset","data"} or {…,"data_base64"}.
func (o *Output) UnmarshalJSON(raw []byte) error {
	var wire outputJSON
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	*o = Output{Stream: wire.Stream, Offset: wire.Offset, Data: wire.Base64, Earlier: wire.Earlier}
	if wire.Data != nil {
		o.Data = []byte(*wire.Data)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (o Output) MarshalJSON() ([]byte, error) {
	wire := outputJSON{Stream: o.Stream, Offset: o.Offset, Earlier: o.Earlier}
	if utf8.Valid(o.Data) {
		wire.Data = new(string(o.Data))
	} else {
		wire.Base64 = o.Data
	}
	return json.Marshal(wire)
}

// displayJSON is a Display in JSON. Each form is a string or a bytesJSON.
type displayJSON[T any] struct {
	Data      map[string]T `json:"data"`
	Value     bool         `json:"value"`
	Truncated bool         `json:"truncated,omitzero"`
}

// bytesJSON stands for bytes that are not text.
type bytesJSON struct {
	Base64 []byte `json:"base64"`
}

// UnmarshalJSON reads {"data":{type: text or {"base64"}},"value","truncated"}.
func (d *Display) UnmarshalJSON(raw []byte) error {
	var wire displayJSON[json.RawMessage]
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	*d = Display{Data: make(map[string][]byte, len(wire.Data)), Value: wire.Value, Truncated: wire.Truncated}
	for name, form := range wire.Data {
		var text string
		if json.Unmarshal(form, &text) == nil {
			d.Data[name] = []byte(text)
			continue
		}
		var bytes bytesJSON
		if err := json.Unmarshal(form, &bytes); err != nil {
			return fmt.Errorf("form %s: %w", name, err)
		}
		d.Data[name] = bytes.Base64
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Display) MarshalJSON() ([]byte, error) {
	wire := displayJSON[any]{Data: make(map[string]any, len(d.Data)), Value: d.Value, Truncated: d.Truncated}
	for name, data := range d.Data {
		if isText(name, data) {
			wire.Data[name] = string(data)
		} else {
			wire.Data[name] = bytesJSON{notNil(data)}
		}
	}
	return json.Marshal(wire)
}

// UnmarshalJSON reads the Result that the event carries.
func (f *Finished) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &f.Execution) }

// MarshalJSON writes the Result without its output.
func (f Finished) MarshalJSON() ([]byte, error) { return summary(f.Execution).MarshalJSON() }

// decodeBody reads the data of an event of the stream.
func decodeBody(kind string, raw []byte) (EventBody, error) {
	switch kind {
	case "queued":
		return decodeAs[Queued](raw)
	case "progress":
		return decodeAs[Progress](raw)
	case "started":
		return decodeAs[Started](raw)
	case "output":
		return decodeAs[Output](raw)
	case "display":
		return decodeAs[Display](raw)
	case "finished":
		return decodeAs[Finished](raw)
	default:
		return UnknownEvent{Name: kind, Raw: raw}, nil
	}
}

func decodeAs[T EventBody](raw []byte) (EventBody, error) {
	var body T
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, fmt.Errorf("event %s: %w", body.Kind(), err)
	}
	return body, nil
}
