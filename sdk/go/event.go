package pyexec

import (
	"encoding/json"
	"fmt"
)

// Event is one entry of an Execution's log.
type Event struct {
	// Seq numbers the Events of an Execution from 1 without gaps.
	Seq uint64
	// Body is a Queued, Progress, Started, Output, Display, Finished or UnknownEvent.
	Body EventBody
}

// EventBody is what happened.
type EventBody interface {
	// Kind is the event's name in the stream ("output").
	Kind() string
}

// Queued: the Execution was accepted.
type Queued struct {
	// Position in the queue, from 0.
	Position int `json:"position"`
}

// Progress tells what happens before or beside the program.
type Progress struct {
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Done and Total count Unit; Total 0 = unknown.
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	Unit  string `json:"unit"`
}

// Started: the program runs.
type Started struct {
	PID           int      `json:"pid"`
	PythonVersion string   `json:"python_version"`
	Requirements  []string `json:"requirements"`
	// Start is how its process was made: "exec" or "fork".
	Start string `json:"start"`
}

// Output is a piece of a stream.
type Output struct {
	// Stream is "stdout" or "stderr".
	Stream string
	// Offset of Data's first byte in its stream.
	Offset int64
	Data   []byte
	// Earlier: it was written before this Execution began, by something that an earlier one of its Session left running.
	Earlier bool
}

// Display is a rich value in one or more forms, by their type: "text/plain", "image/png", ….
type Display struct {
	Data map[string][]byte
	// Value: it is the value of the code's last expression; else the code displayed it.
	Value bool
	// Truncated: forms were left out or cut.
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

// UnmarshalJSON reads {"stream","offset","data"} or {…,"data_base64"}.
func (o *Output) UnmarshalJSON(raw []byte) error {
	var wire struct {
		Stream string  `json:"stream"`
		Offset int64   `json:"offset"`
		Data   *string `json:"data"`
		Base64 []byte  `json:"data_base64"`
		// Earlier is there only when it is true.
		Earlier bool `json:"earlier"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	*o = Output{Stream: wire.Stream, Offset: wire.Offset, Data: wire.Base64, Earlier: wire.Earlier}
	if wire.Base64 == nil && wire.Data != nil {
		o.Data = []byte(*wire.Data)
	}
	return nil
}

// UnmarshalJSON reads {"data":{type: text or {"base64"}},"value","truncated"}.
func (d *Display) UnmarshalJSON(raw []byte) error {
	var wire struct {
		Data      map[string]json.RawMessage `json:"data"`
		Value     bool                       `json:"value"`
		Truncated bool                       `json:"truncated"`
	}
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
		var bytes struct {
			Base64 []byte `json:"base64"`
		}
		if err := json.Unmarshal(form, &bytes); err != nil {
			return fmt.Errorf("form %s: %w", name, err)
		}
		d.Data[name] = bytes.Base64
	}
	return nil
}

// UnmarshalJSON reads the Result that the event carries.
func (f *Finished) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &f.Execution) }

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
